"""Volumes that did not go with their instances, and placement groups of gangs.

The root disk of the template goes with its instance, which is what EC2 confirms by not listing it.
One that is there all the same (a template that keeps it, a deletion that failed) costs money until
somebody sees it. A placement group costs nothing and counts against a quota; EC2 removes none by
itself.
"""

from __future__ import annotations

from typing import Any, Final

from hybrid.domain.ids import ClaimId
from hybrid.ports.capacity import Leftover
from providers.aws.errors import Scopes, translated
from providers.aws.requests import TAG_CLAIM, TAG_GANG, TAG_INSTALLATION

VOLUME: Final = "disk"
GROUP: Final = "placement group"


def volumes(ec2: Any, installation: str, scopes: Scopes) -> tuple[Leftover, ...]:
    """Volumes of this installation that are attached to nothing."""
    filters = [
        {"Name": f"tag:{TAG_INSTALLATION}", "Values": [installation]},
        {"Name": "status", "Values": ["available"]},
    ]
    with translated(scopes):
        rows = [
            row
            for page in ec2.get_paginator("describe_volumes").paginate(Filters=filters)
            for row in page["Volumes"]
        ]
    return tuple(_volume(row) for row in rows)


def _tags(row: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in row.get("Tags", ())}


def _volume(row: dict[str, Any]) -> Leftover:
    claim = _tags(row).get(TAG_CLAIM)
    return Leftover(
        kind=VOLUME,
        id=row["VolumeId"],
        place=row.get("AvailabilityZone", ""),
        claim_id=ClaimId(claim) if claim else None,
    )


def groups(ec2: Any, installation: str, scopes: Scopes) -> tuple[Leftover, ...]:
    """Placement groups of this installation. EC2 does not list whether one is in use."""
    filters = [{"Name": f"tag:{TAG_INSTALLATION}", "Values": [installation]}]
    with translated(scopes):
        rows = ec2.describe_placement_groups(Filters=filters)["PlacementGroups"]
    return tuple(
        Leftover(kind=GROUP, id=row["GroupName"], gang=_tags(row).get(TAG_GANG, ""))
        for row in rows
        if row["State"] in ("available", "pending")
    )
