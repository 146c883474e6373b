"""What part of a GPU a device is: all of it, or the compute slices of a MIG instance."""

from __future__ import annotations

import re
from functools import lru_cache

from hybrid.hardware.catalogue import MODELS

_COMPUTE_INSTANCE = re.compile(r"^(?P<slices>\d+)c\.")


@lru_cache(maxsize=1024)
def part_of_gpu(model: str) -> float:
    """The part for a device's model: 1/7 for ``h100-sxm5-80gb:1g.10gb``, and for a compute instance
    (``1c.3g.40gb``) that of its own slices. 1 for a whole device, and where the catalogue does not
    know the profile."""
    key, _, profile = model.partition(":")
    known = MODELS.get(key)
    if not profile or known is None or known.mig is None:
        return 1.0
    compute = _COMPUTE_INSTANCE.match(profile)
    whole_profile = _COMPUTE_INSTANCE.sub("", profile)
    if whole_profile not in known.mig.names:
        return 1.0
    slices = known.mig.profile(whole_profile).compute_slices
    if compute is not None:
        slices = min(int(compute["slices"]), slices)
    return slices / known.mig.compute_slices
