"""A claim → the complete RunInstances request, as JSON text that is stored before the call.

Repeating it under the same ClientToken is what makes a launch safe to repeat; so nothing in it may
depend on when or by whom it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from hybrid.domain.claim import Claim
from hybrid.domain.job_spec import Market
from hybrid.domain.money import to_usd
from hybrid.domain.pool_spec import BurstPool, Zone
from hybrid.ports.capacity import BootInfo
from providers.user_data import JOIN_TOKEN, render

TAG_INSTALLATION = "hybrid:installation"
TAG_CLAIM = "hybrid:claim"
TAG_TOKEN = "hybrid:token"
TAG_POOL = "hybrid:pool"
TAG_TEAM = "hybrid:team"
TAG_ZONE = "hybrid:zone"

USER_DATA_LIMIT = 16_384
"""Bytes of user data that EC2 accepts, before base64."""


def prepare(claim: Claim, pool: BurstPool, boot: BootInfo) -> str:
    """The request of a claim. Raises ValueError when its user data is too large for EC2."""
    user_data = render(claim, pool, boot, cloud="aws")
    if len(user_data.encode()) > USER_DATA_LIMIT - 128:
        raise ValueError(
            f"user data of pool {pool.name} is {len(user_data.encode())} bytes;"
            f" EC2 takes {USER_DATA_LIMIT}"
        )
    request = {"params": _params(claim, pool, boot), "user_data": user_data}
    return json.dumps(request, sort_keys=True)


def parameters(request: str, join_token: str) -> dict[str, Any]:
    """The keyword arguments of ``run_instances`` of a stored request."""
    stored = json.loads(request)
    user_data = stored["user_data"].replace(JOIN_TOKEN, join_token)
    params: dict[str, Any] = stored["params"]
    # botocore encodes user data by itself
    return {**params, "UserData": user_data}


def machine_parameters(
    pool: BurstPool, zone: Zone, machine_type: str, tags: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """What RunInstances is asked for by the pool alone: one machine of a type in a zone, from the
    pool's template, it and its disks with these tags."""
    template = pool.template
    params: dict[str, Any] = {
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceType": machine_type,
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": list(tags)} for kind in ("instance", "volume")
        ],
    }
    if template.id is not None:
        params["LaunchTemplate"] = {
            "LaunchTemplateId": template.id,
            "Version": template.version,
        }
    if template.image is not None:
        params["ImageId"] = template.image
    if template.instance_profile is not None:
        params["IamInstanceProfile"] = {"Name": template.instance_profile}
    if template.security_groups:
        params["SecurityGroupIds"] = list(template.security_groups)
    if zone.subnet is not None:
        params["SubnetId"] = zone.subnet
    else:
        params["Placement"] = {"AvailabilityZone": zone.name}
    return params


def _params(claim: Claim, pool: BurstPool, boot: BootInfo) -> dict[str, Any]:
    offer = claim.offer
    zone = next(zone for zone in pool.zones if zone.name == offer.zone)
    tags = _tags(claim, pool, boot)
    template = pool.template
    params = {
        **machine_parameters(pool, zone, offer.machine_type, tags),
        "ClientToken": claim.token,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
    }
    if template.reservation is not None and offer.market is Market.ON_DEMAND:
        params["CapacityReservationSpecification"] = {
            "CapacityReservationTarget": {"CapacityReservationId": template.reservation}
        }
        if template.capacity_block:
            params["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    if offer.market is Market.SPOT:
        params["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {
                "SpotInstanceType": "one-time",
                "InstanceInterruptionBehavior": "terminate",
                "MaxPrice": _price(to_usd(offer.price_ceiling_micros_per_hour)),
            },
        }
    return params


def _price(usd: Decimal) -> str:
    return format(usd.normalize(), "f")


def _tags(claim: Claim, pool: BurstPool, boot: BootInfo) -> list[dict[str, str]]:
    tags = {
        **dict(sorted(pool.tags.items())),
        "Name": f"hybrid {pool.name} {claim.id}"[:255],
        TAG_INSTALLATION: boot.installation,
        TAG_CLAIM: claim.id,
        TAG_TOKEN: claim.token,
        TAG_POOL: pool.name,
        TAG_TEAM: claim.team,
        TAG_ZONE: claim.offer.zone,
    }
    return [{"Key": key, "Value": value} for key, value in tags.items()]
