"""Disks that did not go with their instances.

The boot disk of a pool's image goes with its instance (``autoDelete``). Those of an instance
template are as the template has them, and are named after their instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hybrid.domain.ids import ClaimId
from hybrid.ports.capacity import Leftover
from providers.gcp.machines import instant, last_part
from providers.gcp.names import LABEL_CLAIM, LABEL_INSTALLATION, claim_of

DISK: Final = "disk"
FIELDS: Final = (
    "nextPageToken,items/*/warning/code,items/*/disks(name,zone,labels,users,creationTimestamp)"
)
SETTLED_S: Final = 600.0
"""A disk that is being made for an instance has no user yet: only an older one is left over."""


def unused(
    rows: Iterable[Mapping[str, Any]], installation: str, now: float
) -> tuple[Leftover, ...]:
    """Disks made for machines of ours that no instance uses."""
    return tuple(
        Leftover(
            kind=DISK,
            id=str(row["name"]),
            place=last_part(str(row["zone"])),
            claim_id=_claim(row, installation),
        )
        for row in rows
        if not row.get("users") and now - instant(row["creationTimestamp"]) > SETTLED_S
    )


def _claim(row: Mapping[str, Any], installation: str) -> ClaimId | None:
    labels = row.get("labels") or {}
    claim = labels.get(LABEL_CLAIM)
    if claim and labels.get(LABEL_INSTALLATION) == installation:
        return ClaimId(claim)
    return claim_of(installation, str(row["name"]))
