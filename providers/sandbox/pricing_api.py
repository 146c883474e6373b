"""The Pricing and Service Quotas services: JSON protocols, as far as a buyer of machines needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from providers.sandbox.catalogue import describe
from providers.sandbox.cloud_core import CloudCore
from providers.sandbox.config import Market
from providers.sandbox.prices import to_usd
from providers.sandbox.wsgi import Reply, json_reply

CONTENT_TYPE = "application/x-amz-json-1.1"
PAGE = 100

# Quota codes and names as EC2 publishes them in Service Quotas.
QUOTAS: Final = MappingProxyType(
    {
        "L-1216C47A": (
            "Standard",
            Market.ON_DEMAND,
            "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        ),
        "L-34B43A08": (
            "Standard",
            Market.SPOT,
            "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
        ),
        "L-DB2E81BA": ("G and VT", Market.ON_DEMAND, "Running On-Demand G and VT instances"),
        "L-3819A6DF": ("G and VT", Market.SPOT, "All G and VT Spot Instance Requests"),
        "L-417A185B": ("P", Market.ON_DEMAND, "Running On-Demand P instances"),
        "L-7212CCBC": ("P", Market.SPOT, "All P4, P3 and P2 Spot Instance Requests"),
        "L-1945791B": ("Inf", Market.ON_DEMAND, "Running On-Demand Inf instances"),
        "L-B5D1601B": ("Inf", Market.SPOT, "All Inf Spot Instance Requests"),
        "L-2C3B7624": ("Trn", Market.ON_DEMAND, "Running On-Demand Trn instances"),
        "L-6B0D517C": ("Trn", Market.SPOT, "All Trn Spot Instance Requests"),
    }
)
# What an account without a scripted quota is told: more than any test or demo starts.
UNSCRIPTED_VCPUS = 1_000_000


def answer(core: CloudCore, target: str, body: bytes) -> Reply | None:
    """Answer a JSON call, or None when it belongs to another service."""
    service, _, action = target.partition(".")
    try:
        asked: Any = json.loads(body or b"{}")
    except ValueError:
        asked = None
    if not isinstance(asked, dict):
        return _error("SerializationException", "the body is not a JSON object")
    if service == "AWSPriceListService" and action == "GetProducts":
        return _products(core, asked)
    if service.startswith("ServiceQuotas"):
        return _quotas(core, action, asked)
    return None


def error(code: str, message: str, status: int | None = None) -> Reply:
    """An error in the JSON protocol's spelling."""
    return _error(code, message, status or 400)


def _error(code: str, message: str, status: int = 400) -> Reply:
    return json_reply({"__type": code, "message": message}, status, CONTENT_TYPE)


def _products(core: CloudCore, asked: Mapping[str, Any]) -> Reply:
    if asked.get("ServiceCode") != "AmazonEC2":
        return _error("NotFoundException", "only AmazonEC2 is sold here")
    wanted = {
        str(each.get("Field")): str(each.get("Value"))
        for each in asked.get("Filters", [])
        if each.get("Type", "TERM_MATCH") == "TERM_MATCH"
    }
    products = [_product(core, name) for name in core.config.machine_types]
    matching = [
        product
        for product in products
        if all(
            product["product"]["attributes"].get(field, value).lower() == value.lower()
            for field, value in wanted.items()
        )
    ]
    skip = int(asked.get("NextToken") or 0)
    size = min(int(asked.get("MaxResults") or PAGE), PAGE)
    page: dict[str, Any] = {
        "FormatVersion": "aws_v1",
        "PriceList": [json.dumps(product) for product in matching[skip : skip + size]],
    }
    if len(matching) > skip + size:
        page["NextToken"] = str(skip + size)
    return json_reply(page, content_type=CONTENT_TYPE)


def _product(core: CloudCore, machine_type: str) -> dict[str, Any]:
    known = describe(machine_type)
    sku = machine_type.upper().replace(".", "").replace("-", "")
    term = f"{sku}.JRTCKXETXF"
    price = to_usd(core.prices.on_demand_micros(machine_type))
    attributes = {
        "instanceType": machine_type,
        "regionCode": core.config.region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "licenseModel": "No License required",
        "operation": "RunInstances",
        "marketoption": "OnDemand",
        "servicecode": "AmazonEC2",
        "vcpu": str(known.vcpus if known else 0),
        "memory": f"{known.memory_mib / 1024:g} GiB" if known else "NA",
        "gpu": str(known.gpu_count if known else 0),
    }
    dimension = {
        "unit": "Hrs",
        "description": f"${price} per On Demand Linux {machine_type} Instance Hour",
        "beginRange": "0",
        "endRange": "Inf",
        "pricePerUnit": {"USD": f"{price:.10f}"},
    }
    return {
        "product": {"productFamily": "Compute Instance", "sku": sku, "attributes": attributes},
        "serviceCode": "AmazonEC2",
        "terms": {
            "OnDemand": {
                term: {
                    "sku": sku,
                    "offerTermCode": "JRTCKXETXF",
                    "priceDimensions": {f"{term}.6YS6EN2CT7": dimension},
                }
            }
        },
    }


def _quotas(core: CloudCore, action: str, asked: Mapping[str, Any]) -> Reply:
    if asked.get("ServiceCode") != "ec2":
        return _error("NoSuchResourceException", "only ec2 has quotas here")
    if action == "ListServiceQuotas":
        return json_reply(
            {"Quotas": [_quota(core, code) for code in QUOTAS]}, content_type=CONTENT_TYPE
        )
    code = str(asked.get("QuotaCode"))
    if action != "GetServiceQuota" or code not in QUOTAS:
        return _error("NoSuchResourceException", f"{action} {code}")
    return json_reply({"Quota": _quota(core, code)}, content_type=CONTENT_TYPE)


def _quota(core: CloudCore, code: str) -> dict[str, Any]:
    group, market, name = QUOTAS[code]
    with core.lock:
        scripted = {(rule.group, rule.market): rule.vcpus for rule in core.quotas.rules()}
    return {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaCode": code,
        "QuotaName": name,
        "Value": float(scripted.get((group, market), UNSCRIPTED_VCPUS)),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
