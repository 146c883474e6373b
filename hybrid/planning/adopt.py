"""Jobs and the machines on their way to them: those they asked for, and those whose own job no
longer needs them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import JobId
from hybrid.domain.reasons import Reason
from hybrid.planning.choices import Choices, Start, Waiting
from hybrid.planning.claims import interruptions_per_hour
from hybrid.planning.classes import JobClass
from hybrid.planning.fit import fits, offer_shape
from hybrid.planning.options import (
    CloudTime,
    Priced,
    checkpoint_time_s,
    cloud_time,
    idle_saving_s,
    machine_terms,
)
from hybrid.planning.schedule import Schedule
from hybrid.planning.workspace import Workspace
from policies import burst as burst_rules
from policies import spot as spot_rules

_NOTHING_GIVEN: Mapping[JobId, Start] = MappingProxyType({})

_LEAST_BOOT_S = 1.0
"""A machine that should have been there is expected any moment."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """A job has these machines, or waits for them: ``ready_in_s`` from now, 0 when all are there
    (``machines`` then names them as node types do). With them it comes to ``priced``."""

    claims: tuple[Claim, ...]
    ready_in_s: float
    priced: Priced
    machines: str = ""


def adopt(
    ws: Workspace,
    choices: Choices,
    waiting: Sequence[Waiting],
    leaving: Collection[JobId] = (),
) -> dict[JobId, Adoption]:
    """Which pending jobs have machines, or wait for some. Jobs that are ``leaving`` for other
    machines need none and are in nobody's way."""
    found: dict[JobId, Adoption] = {}
    for job in waiting if ws.moved or ws.covering else ():
        moved = ws.moved.get(job.job_id)
        claims = ws.covering.get(job.job_id) if moved is None else (moved,)
        if claims is None:
            continue
        adoption = _adoption(ws, job.cls, claims)
        if adoption is None:
            ws.disown(job.job_id)
            continue
        if job.ready_at > ws.now:
            # not yet: its machines wait with it
            wait_s = max(adoption.ready_in_s, job.ready_at - ws.now)
            adoption = replace(adoption, ready_in_s=wait_s, machines="")
        found[job.job_id] = adoption
    if ws.orphans:
        _adopt_orphans(ws, choices, waiting, found, leaving)
    return found


def _adopt_orphans(
    ws: Workspace,
    choices: Choices,
    waiting: Sequence[Waiting],
    found: dict[JobId, Adoption],
    leaving: Collection[JobId],
) -> None:
    """Each machine nobody waits for goes to the first job in the queue for which it is better
    than home by the margin."""
    rest = [
        job
        for job in waiting
        if job.job_id not in found
        and job.job_id not in leaving
        and job.job_id not in ws.covering
        and job.ready_at <= ws.now
    ]
    if not rest:
        return
    home = schedule_of(ws, choices, waiting, found, leaving)
    for claim in ws.orphans:
        for job in rest:
            if job.job_id in found or job.cls.nodes != 1:
                continue
            if ws.snapshot.jobs[job.job_id].team != claim.team:
                continue
            adoption = _adoption(ws, job.cls, (claim,))
            start = home.starts.get(job.job_id)
            if adoption is None or (start is not None and start.type.held):
                continue
            margin = burst_rules.margin_micros(0, ws.policy)
            if start is None or adoption.priced.micros + margin < start.micros:
                found[job.job_id] = adoption
                break


def urgent_first(ws: Workspace, waiting: Sequence[Waiting]) -> list[Waiting]:
    """The queue, with the jobs in front for which runs are stopped."""
    first = set(ws.first)
    return sorted(waiting, key=lambda job: job.job_id not in first)


def schedule_of(
    ws: Workspace,
    choices: Choices,
    waiting: Sequence[Waiting],
    adoptions: Mapping[JobId, Adoption],
    leave_out: Collection[JobId] = (),
    given: Mapping[JobId, Start] = _NOTHING_GIVEN,
) -> Schedule:
    """One pass over the queue: first the starts that are ``given``; then jobs whose own machines
    are there, on these; then those for which room is made; then all others in order. Jobs whose
    machines are on their way, and those to ``leave_out``, are not in it."""
    schedule = Schedule(ws, choices)
    if given:
        for job in waiting:
            start = given.get(job.job_id)
            if start is not None and job.job_id not in leave_out:
                schedule.take(start, job.cls)
    for job in waiting:
        adoption = adoptions.get(job.job_id)
        if adoption is None or job.job_id in schedule.starts:
            continue
        if adoption.machines and job.job_id not in leave_out:
            start = schedule.find(replace(job, now_only=True, machines=adoption.machines))
            if start is not None:
                schedule.take(start, job.cls)
    coming = {id_ for id_, adoption in adoptions.items() if not adoption.machines}
    elsewhere = {*leave_out, *coming, *schedule.starts.found}
    return schedule.run(job for job in urgent_first(ws, waiting) if job.job_id not in elsewhere)


def _adoption(ws: Workspace, cls: JobClass, claims: tuple[Claim, ...]) -> Adoption | None:
    """The option of waiting for machines on their way; None if a rule or a filter forbids it, or
    they are there and cannot be paid for any longer."""
    there = all(_there(ws, claim) for claim in claims)
    if there and any(claim.id in ws.closing for claim in claims):
        return None
    ready_in_s = 0.0 if there else max(_ready_in_s(ws, claim) for claim in claims)
    offer = claims[0].offer
    pool = ws.burst_pool(claims[0].pool)
    if pool is None:
        return None
    refused: Reason | None = burst_rules.refusal(
        cls.sample, offer, pool, ws.policy, ws.committed, now=ws.now, machines=0
    ) or spot_rules.refusal(cls.sample, offer, checkpoint_time_s(ws, cls, pool), ws.policy)
    fitting = fits(cls.need, offer_shape(offer))
    if refused is not None or not isinstance(fitting, tuple):
        return None
    time = cloud_time(
        ws,
        cls,
        offer,
        pool,
        cls.fastest(fitting),
        rate_per_machine_hour=max(interruptions_per_hour(claim) for claim in claims),
        boot_s=offer.boot_s,
    )
    if not isinstance(time, CloudTime):
        return None
    saved_s = idle_saving_s(ws, claims[0], pool) if there else 0.0
    priced = machine_terms(
        cls, offer, pool, time, boot_s=ready_in_s, saved_s=saved_s, end_tail=False
    )
    machines = (claims[0].gang or str(claims[0].id)) if there else ""
    return Adoption(claims, ready_in_s, priced, machines)


def _ready_in_s(ws: Workspace, claim: Claim) -> float:
    if claim.state is ClaimState.READY:
        return _LEAST_BOOT_S
    learned = ws.snapshot.learned.boot_s.get(claim.pool)
    boot_s = learned.mean if learned is not None else claim.offer.boot_s
    return max(claim.requested_at + boot_s - ws.now, _LEAST_BOOT_S)


def _there(ws: Workspace, claim: Claim) -> bool:
    """Whether the machine can take a run now."""
    return claim.node_id is not None and claim.node_id in ws.node_index
