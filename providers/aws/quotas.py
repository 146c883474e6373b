"""EC2's vCPU quotas: which one a machine type counts against, its limit, and what runs under it.

Limits come from Service Quotas, which does not tell what is in use: that is counted from the
account's running instances, ours and others', since they share the quota ("Amazon EC2 service
quotas").
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import structlog

from hybrid.domain.job_spec import Market
from hybrid.domain.offer import Quota
from hybrid.ports.errors import PortError
from providers.aws.errors import Scopes, translated

log = structlog.get_logger(__name__)

LIMITS_LAST_S: Final = 600.0


def quota_family(machine_type: str) -> str:
    """The vCPU quota that a machine type counts against ("Amazon EC2 service quotas")."""
    series = machine_type.split(".", 1)[0]
    for prefix, family in _FAMILIES:
        if series.startswith(prefix):
            return family
    return "Standard"


# the longer prefixes first: "inf2" is no "i" series
_FAMILIES: Final = (
    ("inf", "Inf"),
    ("trn", "Trn"),
    ("vt", "G and VT"),
    ("g", "G and VT"),
    ("p", "P"),
)

CODES: Final = MappingProxyType(
    {
        ("Standard", Market.ON_DEMAND): "L-1216C47A",
        ("Standard", Market.SPOT): "L-34B43A08",
        ("G and VT", Market.ON_DEMAND): "L-DB2E81BA",
        ("G and VT", Market.SPOT): "L-3819A6DF",
        ("P", Market.ON_DEMAND): "L-417A185B",
        ("P", Market.SPOT): "L-7212CCBC",
        ("Inf", Market.ON_DEMAND): "L-1945791B",
        ("Inf", Market.SPOT): "L-B5D1601B",
        ("Trn", Market.ON_DEMAND): "L-2C3B7624",
        ("Trn", Market.SPOT): "L-6B0D517C",
    }
)
"""The codes of Service Quotas."""


def quota_code(machine_type: str, market: Market) -> str | None:
    """The quota of a type in a market; None where EC2 has one of its own that we do not know.

    The spot quota of P machines is that of P2, P3 and P4; newer ones have others.
    """
    family = quota_family(machine_type)
    if family == "P" and market is Market.SPOT and machine_type[:2] not in ("p2", "p3", "p4"):
        return None
    return CODES.get((family, market))


class Quotas:
    """Reads limits and counts what runs. Safe to call from several threads."""

    def __init__(
        self,
        ec2: Any,
        service_quotas: Any,
        *,
        region: str,
        scopes: Scopes,
        now: Callable[[], float],
    ) -> None:
        self._ec2, self._quotas, self._region = ec2, service_quotas, region
        self._scopes, self._now = scopes, now
        self._lock = threading.Lock()
        self._limits: tuple[float, dict[str, int]] | None = None
        self._vcpus: dict[str, int] = {}

    def of(self, vcpus: Mapping[str, int]) -> dict[tuple[str, Market], Quota]:
        """The quota of each machine type (given with its vCPUs) and market; none where it cannot be
        read: that takes permissions which launching does without."""
        now = self._now()
        try:
            limits = self._read_limits(now)
            used = self._used()
        except PortError as error:
            log.warning("quotas unknown", provider=self._scopes.provider, error=str(error))
            return {}
        found = {}
        for machine_type, each in vcpus.items():
            for market in Market:
                code = quota_code(machine_type, market)
                if code not in limits or each <= 0:
                    continue
                family = quota_family(machine_type)
                found[(machine_type, market)] = Quota(
                    limit=limits[code],
                    used=used[code],
                    per_machine=each,
                    unit="vCPU",
                    name=f"{family} {market.replace('_', '-')} in {self._region}",
                    at=now,
                )
        return found

    def _read_limits(self, now: float) -> dict[str, int]:
        with self._lock:
            kept = self._limits
        if kept is not None and now - kept[0] < LIMITS_LAST_S:
            return kept[1]
        with translated(self._scopes):
            pages = self._quotas.get_paginator("list_service_quotas").paginate(ServiceCode="ec2")
            rows = [row for page in pages for row in page["Quotas"]]
        known = set(CODES.values())
        limits = {row["QuotaCode"]: int(row["Value"]) for row in rows if row["QuotaCode"] in known}
        with self._lock:
            self._limits = (now, limits)
        return limits

    def _used(self) -> Counter[str]:
        """vCPUs of the account's live instances by quota code."""
        live = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        with translated(self._scopes):
            pages = self._ec2.get_paginator("describe_instances").paginate(Filters=live)
            instances = [
                instance
                for page in pages
                for reservation in page["Reservations"]
                for instance in reservation["Instances"]
            ]
        vcpus = self._vcpus_of({instance["InstanceType"] for instance in instances})
        used: Counter[str] = Counter()
        for instance in instances:
            spot = instance.get("InstanceLifecycle") == "spot"
            market = Market.SPOT if spot else Market.ON_DEMAND
            code = quota_code(instance["InstanceType"], market)
            if code is not None:
                used[code] += vcpus.get(instance["InstanceType"], 0)
        return used

    def _vcpus_of(self, types: set[str]) -> dict[str, int]:
        """A type's own vCPUs: the quota counts them whatever CPU options an instance has."""
        with self._lock:
            new = sorted(types - self._vcpus.keys())
        if new:
            with translated(self._scopes):
                rows = [
                    row
                    for page in self._ec2.get_paginator("describe_instance_types").paginate(
                        Filters=[{"Name": "instance-type", "Values": new}]
                    )
                    for row in page["InstanceTypes"]
                ]
            with self._lock:
                for row in rows:
                    self._vcpus[row["InstanceType"]] = int(row["VCpuInfo"]["DefaultVCpus"])
        with self._lock:
            return dict(self._vcpus)
