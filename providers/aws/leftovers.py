"""Volumes that did not go with their instances.

The root disk of the template goes with its instance, which is what EC2 confirms by not listing it.
One that is there all the same (a template that keeps it, a deletion that failed) costs money until
somebody sees it.
"""

from __future__ import annotations

from typing import Any, Final

from hybrid.domain.ids import ClaimId
from hybrid.ports.capacity import Leftover
from providers.aws.errors import Scopes, translated
from providers.aws.requests import TAG_CLAIM, TAG_INSTALLATION

VOLUME: Final = "disk"


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


def _volume(row: dict[str, Any]) -> Leftover:
    tags = {tag["Key"]: tag["Value"] for tag in row.get("Tags", ())}
    claim = tags.get(TAG_CLAIM)
    return Leftover(
        kind=VOLUME,
        id=row["VolumeId"],
        place=row.get("AvailabilityZone", ""),
        claim_id=ClaimId(claim) if claim else None,
    )
