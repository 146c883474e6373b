"""What DescribeInstances and RunInstances say of an instance → :class:`Machine`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from hybrid.domain.ids import ClaimId, MachineId
from hybrid.domain.job_spec import Market
from hybrid.ports.capacity import Machine, MachineState
from providers.aws.requests import TAG_CLAIM, TAG_TOKEN

STATES: Final = MappingProxyType(
    {
        "pending": MachineState.PENDING,
        "running": MachineState.RUNNING,
        "shutting-down": MachineState.ENDING,
        "terminated": MachineState.ENDED,
        "stopping": MachineState.STOPPED,
        "stopped": MachineState.STOPPED,
    }
)

INTERRUPTED: Final = "Server.SpotInstanceTermination"
"""The state reason of an instance that EC2 took back (EC2 API reference, StateReason)."""

# StateTransitionReason ends with the instant: "User initiated (2026-07-01 10:00:00 GMT)"
_WHEN = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def machine(instance: Mapping[str, Any]) -> Machine:
    """The machine of an instance."""
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
    claim = tags.get(TAG_CLAIM)
    state = STATES[instance["State"]["Name"]]
    reason = instance.get("StateReason") or {}
    spot = instance.get("InstanceLifecycle") == "spot"
    return Machine(
        id=MachineId(instance["InstanceId"]),
        claim_id=ClaimId(claim) if claim else None,
        token=tags.get(TAG_TOKEN, ""),
        state=state,
        zone=instance.get("Placement", {}).get("AvailabilityZone", ""),
        machine_type=instance["InstanceType"],
        market=Market.SPOT if spot else Market.ON_DEMAND,
        launched_at=instance["LaunchTime"].timestamp(),
        ended_at=_ended_at(instance) if state is MachineState.ENDED else None,
        address=instance.get("PrivateIpAddress") or "",
        end_reason=reason.get("Message", "") if state in _OVER else "",
        interrupted=reason.get("Code") == INTERRUPTED,
    )


_OVER = (MachineState.STOPPED, MachineState.ENDING, MachineState.ENDED)


def _ended_at(instance: Mapping[str, Any]) -> float | None:
    found = _WHEN.search(instance.get("StateTransitionReason") or "")
    if found is None:
        return None
    when = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    return when.timestamp()
