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
TAG_GANG = "hybrid:gang"

USER_DATA_LIMIT = 16_384
"""Bytes of user data that EC2 accepts, before base64."""


def prepare(claim: Claim, pool: BurstPool, boot: BootInfo, *, adapters: int = 0) -> str:
    """The request of a claim; ``adapters`` is how many Elastic Fabric Adapters its machine type
    has. Raises ValueError when its user data is too large for EC2."""
    user_data = render(claim, pool, boot, cloud="aws")
    if len(user_data.encode()) > USER_DATA_LIMIT - 128:
        raise ValueError(
            f"user data of pool {pool.name} is {len(user_data.encode())} bytes;"
            f" EC2 takes {USER_DATA_LIMIT}"
        )
    params = _params(claim, pool, boot)
    request: dict[str, Any] = {"params": params, "user_data": user_data}
    if claim.gang and pool.gangs.efa and adapters:
        params |= _with_adapters(params, adapters)
        for key in ("SecurityGroupIds", "SubnetId"):
            params.pop(key, None)
    if claim.gang and pool.gangs.placement_group:
        group = group_parameters(claim.pool, boot.installation, claim.gang)
        params["Placement"] = {**params.get("Placement", {}), "GroupName": group["GroupName"]}
        request["placement_group"] = group
    return json.dumps(request, sort_keys=True)


def group_name(installation: str, gang: str) -> str:
    """The name of a gang's placement group."""
    return f"hybrid-{installation}-{gang}"[:255]


def placement_group(request: str) -> dict[str, Any] | None:
    """The keyword arguments of ``create_placement_group`` of a stored request, if it wants one."""
    group: dict[str, Any] | None = json.loads(request).get("placement_group")
    return group


def group_parameters(pool: str, installation: str, gang: str) -> dict[str, Any]:
    """What CreatePlacementGroup is asked for a gang."""
    tags = {TAG_INSTALLATION: installation, TAG_GANG: gang, TAG_POOL: pool}
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]
    return {
        "GroupName": group_name(installation, gang),
        "Strategy": "cluster",
        "TagSpecifications": [{"ResourceType": "placement-group", "Tags": listed}],
    }


def _with_adapters(params: Mapping[str, Any], adapters: int) -> dict[str, Any]:
    """One interface on each network card. The first carries IP; the others carry EFA alone, and so
    take no address of the subnet ("Maximize network bandwidth on Amazon EC2 instances with multiple
    network cards", EC2 user guide)."""
    common: dict[str, Any] = {
        "Groups": params["SecurityGroupIds"],
        "DeleteOnTermination": True,
    }
    if "SubnetId" in params:
        common["SubnetId"] = params["SubnetId"]
    return {
        "NetworkInterfaces": [
            {
                "NetworkCardIndex": card,
                "DeviceIndex": 0 if card == 0 else 1,
                "InterfaceType": "efa" if card == 0 else "efa-only",
                **common,
            }
            for card in range(adapters)
        ]
    }


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
