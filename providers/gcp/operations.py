"""Waiting for a zone operation with a deadline, and reading what it says.

An operation may be done and carry an error; a wait that runs out says nothing of what became of the
operation, so its outcome is unknown until somebody asks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from hybrid.ports.errors import AuthFailed, OutcomeUnknown
from providers.gcp.errors import Scopes, of_operation, typed
from providers.gcp.rest import Refusal, Rest

LONGEST_HOLD_S: Final = 120.0
"""The API answers a wait after two minutes at the latest."""


def settled(
    rest: Rest,
    project: str,
    zone: str,
    operation: Mapping[str, Any],
    scopes: Scopes,
    *,
    deadline_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> Mapping[str, Any]:
    """The operation once it is done. Raises its typed error; OutcomeUnknown past the deadline."""
    until = clock() + deadline_s
    while operation.get("status") != "DONE":
        left_s = until - clock()
        if left_s <= 0:
            raise OutcomeUnknown(
                f"operation {operation.get('name')} was not done within {deadline_s:g} s"
            )
        try:
            operation = rest.write(
                "POST",
                f"/compute/v1/projects/{project}/zones/{zone}/operations/{operation['name']}/wait",
                read_s=min(left_s, LONGEST_HOLD_S),
            )
        except (Refusal, AuthFailed) as error:
            # what was refused is the waiting: the operation goes on without us
            raise OutcomeUnknown(f"operation {operation['name']}: {error}") from error
    said = of_operation(operation)
    if said is not None:
        raise typed(said, scopes)
    return operation
