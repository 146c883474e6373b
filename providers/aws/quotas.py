"""EC2's vCPU quotas: which one a machine type counts against."""

from __future__ import annotations

from typing import Final


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
