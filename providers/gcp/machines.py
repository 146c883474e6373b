"""What Compute Engine says of instances and of operations on them → :class:`Machine`.

A deleted instance is not listed any more; the operation that ended it is, for two weeks. From both
together come the machines that are there, and those that ended lately with the cloud's own instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from hybrid.domain.ids import ClaimId, MachineId
from hybrid.domain.job_spec import Market
from hybrid.ports.capacity import Machine, MachineState, Notice, NoticeKind
from providers.gcp.names import LABEL_CLAIM, LABEL_TOKEN, LABEL_TOKEN_REST, claim_of
from providers.gcp.requests import Order

STATES: Final = MappingProxyType(
    {
        "PROVISIONING": MachineState.PENDING,
        "STAGING": MachineState.PENDING,
        "RUNNING": MachineState.RUNNING,
        "REPAIRING": MachineState.RUNNING,
        "PENDING_STOP": MachineState.RUNNING,
        "STOPPING": MachineState.ENDING,
        "SUSPENDING": MachineState.ENDING,
        "SUSPENDED": MachineState.STOPPED,
        "STOPPED": MachineState.STOPPED,
        "TERMINATED": MachineState.STOPPED,
    }
)

PREEMPTED: Final = "compute.instances.preempted"
"""The operation that Compute Engine itself begins when it takes a spot machine."""
NOTICE_S: Final = 30.0
"""Between its beginning and the end of the machine ("Spot VMs", Compute Engine documentation)."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One operation on an instance: what, on which, when."""

    kind: str
    machine_id: MachineId
    name: str
    zone: str
    began_at: float
    ended_at: float | None


def instant(text: str) -> float:
    """RFC 3339 as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def last_part(url: str) -> str:
    """The name at the end of a resource's URL."""
    return url.rsplit("/", 1)[-1]


def machine(instance: Mapping[str, Any]) -> Machine:
    """The machine of an instance. Raises KeyError on a status that nobody has heard of."""
    labels = instance.get("labels") or {}
    claim = labels.get(LABEL_CLAIM)
    state = STATES[instance["status"]]
    scheduling = instance.get("scheduling") or {}
    spot = scheduling.get("provisioningModel") == "SPOT" or scheduling.get("preemptible") is True
    addresses = [each.get("networkIP", "") for each in instance.get("networkInterfaces") or ()]
    accelerators = instance.get("guestAccelerators") or ()
    return Machine(
        id=MachineId(str(instance["id"])),
        claim_id=ClaimId(claim) if claim else None,
        token=labels.get(LABEL_TOKEN, "") + labels.get(LABEL_TOKEN_REST, ""),
        state=state,
        zone=last_part(instance["zone"]),
        machine_type=_written(last_part(instance["machineType"]), accelerators),
        market=Market.SPOT if spot else Market.ON_DEMAND,
        launched_at=instant(instance["creationTimestamp"]),
        address=addresses[0] if addresses else "",
        end_reason="stopped" if state is MachineState.STOPPED else "",
    )


def _written(base: str, accelerators: Iterable[Mapping[str, Any]]) -> str:
    """N1 types have no GPUs of their own: what is attached belongs to how the pool writes it."""
    attached = list(accelerators)
    if not attached or not base.startswith("n1-"):
        return base
    count = int(attached[0]["acceleratorCount"])
    name = last_part(attached[0]["acceleratorType"])
    return f"{base}+{count}x{name}" if count > 1 else f"{base}+{name}"


def launched(order: Order, operation: Mapping[str, Any]) -> Machine:
    """The machine that a finished insert made."""
    return Machine(
        id=MachineId(str(operation["targetId"])),
        claim_id=order.claim,
        token=order.token,
        state=MachineState.PENDING,
        zone=order.zone,
        machine_type=order.machine_type,
        market=order.market,
        launched_at=instant(operation["insertTime"]),
    )


def deed(operation: Mapping[str, Any]) -> Deed | None:
    """What an operation did to an instance; None when it failed or was about something else."""
    if operation.get("error") or "targetId" not in operation:
        return None
    target = str(operation.get("targetLink", ""))
    done = operation.get("status") == "DONE" and "endTime" in operation
    return Deed(
        kind=str(operation.get("operationType", "")),
        machine_id=MachineId(str(operation["targetId"])),
        name=last_part(target),
        zone=last_part(str(operation.get("zone", ""))),
        began_at=instant(operation["insertTime"]),
        ended_at=instant(operation["endTime"]) if done else None,
    )


def with_ends(
    machines: Iterable[Machine], deeds: Iterable[Deed], installation: str
) -> tuple[Machine, ...]:
    """The machines that are there, and behind them those that the deeds say have ended."""
    there = {each.id: each for each in machines}
    by_machine: dict[MachineId, list[Deed]] = {}
    for each in deeds:
        by_machine.setdefault(each.machine_id, []).append(each)
    found = list(there.values())
    for id_, done in by_machine.items():
        taken = any(each.kind == PREEMPTED for each in done)
        if id_ in there:
            if taken:
                at = found.index(there[id_])
                found[at] = replace(there[id_], interrupted=True)
            continue
        ended = _ended(id_, done, installation, taken=taken)
        if ended is not None:
            found.append(ended)
    return tuple(found)


def _ended(id_: MachineId, done: list[Deed], installation: str, *, taken: bool) -> Machine | None:
    ends = [e for e in done if e.kind in ("delete", PREEMPTED) and e.ended_at is not None]
    began = [e.began_at for e in done if e.kind in ("insert", "bulkInsert")]
    claim = claim_of(installation, done[0].name)
    if not ends or not began or claim is None:
        # what does not tell its whole life is left to the listings that miss it
        return None
    return Machine(
        id=id_,
        claim_id=claim,
        token="",
        state=MachineState.ENDED,
        zone=done[0].zone,
        machine_type="",
        market=Market.SPOT if taken else Market.ON_DEMAND,
        launched_at=min(began),
        # whichever came first: a machine that is being taken may be deleted before it is
        ended_at=min(e.ended_at for e in ends if e.ended_at is not None),
        end_reason="preempted" if taken else "deleted",
        interrupted=taken,
    )


def notices(deeds: Iterable[Deed]) -> tuple[Notice, ...]:
    """The machines that Compute Engine is taking."""
    return tuple(
        Notice(
            machine_id=each.machine_id, kind=NoticeKind.INTERRUPTION, at=each.began_at + NOTICE_S
        )
        for each in deeds
        if each.kind == PREEMPTED
    )
