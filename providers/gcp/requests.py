"""A claim → the complete instances.insert request, as JSON text that is stored before the call.

Repeating it under the same ``requestId`` is what makes a launch safe to repeat; so nothing in it
may depend on when or by whom it is sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from hybrid.domain.claim import Claim
from hybrid.domain.ids import ClaimId
from hybrid.domain.job_spec import Market
from hybrid.domain.pool_spec import BurstPool
from hybrid.ports.capacity import BootInfo
from providers.gcp.names import (
    LABEL_CLAIM,
    LABEL_INSTALLATION,
    LABEL_POOL,
    LABEL_TEAM,
    exact_label,
    instance_name,
    loose_label,
    read_type,
    request_id,
    token_labels,
)
from providers.user_data import JOIN_TOKEN, render

METADATA_LIMIT: Final = 262_144
"""Bytes of one metadata value that Compute Engine accepts."""

LONGEST_RUN_S: Final = 90 * 86_400
"""``maxRunDuration``: no machine outlives this, whatever else fails. It cannot be extended on a
running machine (the API takes up to 120 days), so it is far beyond any lease: the lease timer
inside is what ends a machine in time."""


@dataclass(frozen=True, slots=True)
class Order:
    """A stored request, read back."""

    zone: str
    offer: str
    family: str
    machine_type: str
    market: Market
    claim: ClaimId
    token: str
    params: dict[str, str]
    body: dict[str, Any]


def prepare(claim: Claim, pool: BurstPool, boot: BootInfo) -> str:
    """The request of a claim. Raises ValueError when Compute Engine could not take it."""
    user_data = render(claim, pool, boot, cloud="gcp")
    if len(user_data.encode()) > METADATA_LIMIT - 128:
        raise ValueError(
            f"user data of pool {pool.name} is {len(user_data.encode())} bytes;"
            f" Compute Engine takes {METADATA_LIMIT}"
        )
    params = {"requestId": request_id(claim.token)}
    if pool.template.id is not None:
        params["sourceInstanceTemplate"] = _template(pool.template.id)
    request = {
        "zone": claim.offer.zone,
        "offer": claim.offer.id,
        "family": claim.offer.quota_family or claim.offer.machine_type,
        "machine_type": claim.offer.machine_type,
        "market": str(claim.offer.market),
        "claim": claim.id,
        "token": claim.token,
        "params": params,
        "body": _body(claim, pool, boot),
        "user_data": user_data,
    }
    return json.dumps(request, sort_keys=True)


def read(request: str, join_token: str = "") -> Order:
    """A stored request; with its join token where the placeholder stands."""
    stored = json.loads(request)
    user_data = stored["user_data"].replace(JOIN_TOKEN, join_token)
    body = {**stored["body"], "metadata": {"items": [{"key": "user-data", "value": user_data}]}}
    return Order(
        zone=stored["zone"],
        offer=stored["offer"],
        family=stored["family"],
        machine_type=stored["machine_type"],
        market=Market(stored["market"]),
        claim=ClaimId(stored["claim"]),
        token=stored["token"],
        params=stored["params"],
        body=body,
    )


def _template(id_: str) -> str:
    return id_ if "/" in id_ else f"global/instanceTemplates/{id_}"


def _body(claim: Claim, pool: BurstPool, boot: BootInfo) -> dict[str, Any]:
    offer, template = claim.offer, pool.template
    written = read_type(offer.machine_type)
    labels = _labels(claim, pool, boot)
    zone = next(zone for zone in pool.zones if zone.name == offer.zone)
    body: dict[str, Any] = {
        "name": instance_name(boot.installation, claim.id),
        "machineType": f"zones/{offer.zone}/machineTypes/{written.base}",
        "labels": labels,
        "scheduling": _scheduling(offer.market),
    }
    if written.accelerator:
        body["guestAccelerators"] = [
            {
                "acceleratorType": f"zones/{offer.zone}/acceleratorTypes/{written.accelerator}",
                "acceleratorCount": written.count,
            }
        ]
    if template.image is not None:
        body["disks"] = [_boot_disk(template.image, pool, labels)]
    if zone.subnet is not None:
        body["networkInterfaces"] = [{"subnetwork": zone.subnet}]
    elif template.id is None:
        body["networkInterfaces"] = [{"network": "global/networks/default"}]
    if template.instance_profile is not None:
        body["serviceAccounts"] = [
            {
                "email": template.instance_profile,
                "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
            }
        ]
    if template.security_groups:
        body["tags"] = {"items": list(template.security_groups)}
    if template.reservation is not None and offer.market is Market.ON_DEMAND:
        body["reservationAffinity"] = {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": [template.reservation],
        }
    return body


def _scheduling(market: Market) -> dict[str, Any]:
    return {
        # a machine with GPUs cannot be moved, and a restarted one would come back without its run
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "provisioningModel": "SPOT" if market is Market.SPOT else "STANDARD",
        "instanceTerminationAction": "DELETE",
        "maxRunDuration": {"seconds": str(LONGEST_RUN_S)},
    }


def _boot_disk(image: str, pool: BurstPool, labels: dict[str, str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {"sourceImage": image, "labels": labels}
    if pool.disk > 0:
        parameters["diskSizeGb"] = str(int(pool.disk))
    # the disk goes with its machine: nothing is left to pay for
    return {"boot": True, "autoDelete": True, "initializeParams": parameters}


def _labels(claim: Claim, pool: BurstPool, boot: BootInfo) -> dict[str, str]:
    return {
        **{loose_label(key): loose_label(value) for key, value in sorted(pool.tags.items())},
        LABEL_INSTALLATION: exact_label("installation", boot.installation),
        LABEL_CLAIM: exact_label("claim", claim.id),
        **token_labels(claim.token),
        LABEL_POOL: loose_label(pool.name),
        LABEL_TEAM: loose_label(claim.team),
    }
