"""Whether a job can ever run: the first "no" that no waiting would turn into a "yes".

What may change by itself (busy or sick GPUs, quotas, breakers, quiet hours, what is left of a
budget) is no ground here. Nor is a gap in what we know: a local pool that no node has joined yet
or whose engine could not be read, and a machine type that neither the catalogue nor a listing
describes, could have what the job needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from hybrid.domain.budget import Balance
from hybrid.domain.ids import JobId
from hybrid.domain.job import Job, JobState
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.node import Node
from hybrid.domain.offer import Offer
from hybrid.domain.pool_spec import BurstPool
from hybrid.domain.reasons import (
    CannotCheckpoint,
    DeadlineInThePast,
    GpuMemoryTooSmall,
    HardwareMismatch,
    NoSuchHardware,
    Nowhere,
    Reason,
    SwitchedOff,
    TooManyGpusPerNode,
    UnknownGpu,
)
from hybrid.domain.snapshot import Pool
from hybrid.hardware import UnknownGpuModel, resolve
from hybrid.ledger.charges import hold_micros
from hybrid.planning.conflicts import contradiction, in_the_catalogue
from hybrid.planning.fit import Fit, Need, Shape, accepted_models, fits, need_of
from hybrid.planning.supply import Site, Supply, Unclear, supply
from policies import budget, burst, placement, priority, spot
from policies.document import PolicyDocument

_MOST_TOLD = 6
"""Places whose own reason is told when they do not all have the same."""

_LACKS = (HardwareMismatch, GpuMemoryTooSmall)


def admission(
    job: Job | JobSpec,
    team: str,
    nodes: Iterable[Node],
    pools: Iterable[Pool],
    offers: Iterable[Offer],
    policy: PolicyDocument,
    now: float,
    *,
    user: str = "",
    unknown: Collection[str] = (),
) -> Reason | None:
    """Why the job can never run, or None: :func:`admitted` on what these make up together."""
    return admitted(job, team, supply(nodes, pools, offers, unknown), policy, now, user=user)


def admitted(
    job: Job | JobSpec,
    team: str,
    there: Supply,
    policy: PolicyDocument,
    now: float,
    *,
    user: str = "",
) -> Reason | None:
    """Why the job can never run, or None.

    A spec is judged as a submission of ``user`` (whose own budget may pay): its priority class and
    its deadline too. A job that was accepted keeps its place when the policy's classes change or
    its deadline passes. The rest is asked of both: hardware that no pool has, lists that leave no
    place, and machines that would have to be paid for where nothing may be spent.
    """
    if isinstance(job, JobSpec):
        refused = _as_submission(job, team, policy, now)
        if refused is not None:
            return refused
        job = _as_job(job, team, user, now)
    need = need_of(job.spec)
    refused = unknown_model(need, there)
    if refused is not None:
        return refused
    because: dict[str, Reason] = {}
    verdicts: dict[Shape, tuple[Fit, ...] | Reason] = {}
    if _has_room(job, need, there, policy, because, verdicts):
        return None
    clash = in_the_catalogue(job.spec)
    if clash is not None:
        return clash  # whatever an unclear pool has
    gaps: dict[str, Reason] = {}
    for gap in there.unclear:
        closed = _closed(job, gap, policy)
        if closed is None:
            return None
        gaps[f"pool {gap.pool.name}"] = closed
    if not because and not gaps:
        return None  # no pool at all: one may come
    if verdicts and all(isinstance(found, Reason) for found in verdicts.values()):
        refused = _hardware(need, there, verdicts)
        if refused is not None:
            because = {"what is there": refused}
    if not isinstance(refused, TooManyGpusPerNode):
        clash = contradiction(job.spec, lambda s: _possible(replace(job, spec=s), there, policy))
    told = _together(because | gaps)
    return told if clash is None else replace(clash, places=str(told))


def _possible(job: Job, there: Supply, policy: PolicyDocument) -> bool:
    """Whether there is a place for the job, or there could be in a pool of which little is
    known."""
    return _has_room(job, need_of(job.spec), there, policy, {}, {}) or any(
        _closed(job, gap, policy) is None for gap in there.unclear
    )


def _as_submission(spec: JobSpec, team: str, policy: PolicyDocument, now: float) -> Reason | None:
    refused = priority.refusal(spec.priority, team, policy)
    if refused is not None:
        return refused
    if spec.deadline_at is not None and spec.deadline_at <= now:
        return DeadlineInThePast(now - spec.deadline_at)
    return None


def _as_job(spec: JobSpec, team: str, user: str, now: float) -> Job:
    """The spec as the job it would be."""
    return Job(
        id=JobId(""),
        spec=spec,
        team=team,
        user=user,
        state=JobState.PENDING,
        submitted_at=now,
        queued_at=now,
    )


def unknown_model(need: Need, there: Supply) -> UnknownGpu | None:
    """A name that neither the catalogue nor any pool knows. One of several is enough: it is a slip
    of the pen, and the job would wait for what its author did not mean."""
    if not need.models:
        return None
    models = {_key(model) for model in there.models}
    for name in need.models:
        if name in models:
            continue
        try:
            resolve(name)
        except UnknownGpuModel as error:
            return UnknownGpu(name, error.nearest, there.models)
    return None


def _has_room(
    job: Job,
    need: Need,
    there: Supply,
    policy: PolicyDocument,
    because: dict[str, Reason],
    verdicts: dict[Shape, tuple[Fit, ...] | Reason],
) -> bool:
    """Whether one pool has, or may get, as many fitting machines as the job has nodes. Notes why
    not by site in ``because``, and what each shape is good for in ``verdicts``."""
    nodes = job.spec.resources.nodes
    room: dict[str, int] = {}
    for site in there.sites:
        found = verdicts.get(site.shape)
        if found is None:
            found = verdicts[site.shape] = fits(need, site.shape)
        refused = found if isinstance(found, Reason) else _rules(job, site, found, policy)
        if refused is None:
            pool = site.pool.name
            room[pool] = room.get(pool, 0) + site.most
            if room[pool] >= nodes:
                return True
            refused = NoSuchHardware(f"{nodes} such machines", (f"{room[pool]} in pool {pool}",))
        because[site.label] = refused
    return False


def _rules(job: Job, site: Site, found: tuple[Fit, ...], policy: PolicyDocument) -> Reason | None:
    """The lasting rule that keeps the job from a site where its devices are."""
    if site.offer is None or not isinstance(site.pool, BurstPool):
        refusals = [placement.refusal(job, site.pool.name, f.model, policy) for f in found]
        return None if None in refusals else refusals[0]
    return _away(job, site.offer, site.pool, policy)


def _away(job: Job, offer: Offer, pool: BurstPool, policy: PolicyDocument) -> Reason | None:
    """The lasting rule that keeps the job from such a machine, with nothing else held or spent."""
    nodes = job.spec.resources.nodes
    refused = (
        burst.may_leave(job, policy)
        or (None if policy.burst.enabled else SwitchedOff("burst"))
        or burst.not_allowed(job, offer, policy)
        or burst.ceiling(nodes, replace(offer, quota_left=None), pool, policy, burst.Committed())
    )
    if refused is not None:
        return refused
    restart = spot.refusal(job, offer, 0.0, policy)
    if isinstance(restart, CannotCheckpoint):
        return restart
    worst = nodes * hold_micros(
        offer.price_ceiling_micros_per_hour,
        lease_s=pool.lease.duration,
        end_tail_s=pool.lease.end_tail,
    )
    return budget.refusal(worst, job, [Balance(budget=b) for b in policy.budgets], {})


def _closed(job: Job, gap: Unclear, policy: PolicyDocument) -> Reason | None:
    """The lasting rule that keeps the job from whatever an unclear pool may have."""
    pool = gap.pool
    if not isinstance(pool, BurstPool):
        return placement.refusal(job, pool.name, "", policy)
    refusals = [_away(job, offer, pool, policy) for offer in gap.offers]
    return None if None in refusals else refusals[0]


def _hardware(
    need: Need, there: Supply, verdicts: Mapping[Shape, tuple[Fit, ...] | Reason]
) -> Reason | None:
    """What no machine has, when that can be said in one sentence: a model, so many devices on one
    machine, so much memory, or one named aspect that all lack."""
    if need.gpus == 0:
        return None
    counts = {site.label: _accepted(need.models, site.shape.models) for site in there.sites}
    where, largest = max(counts.items(), key=lambda item: item[1])
    if largest == 0:
        return NoSuchHardware(" or ".join(need.models) or "a GPU", there.models)
    if need.gpus > largest:
        return TooManyGpusPerNode(need.gpus, largest, where)
    told = [verdicts[site.shape] for site in there.sites if counts[site.label] >= need.gpus]
    memory = [found for found in told if isinstance(found, GpuMemoryTooSmall)]
    if len(memory) == len(told):
        return max(memory, key=lambda found: found.largest_gib)
    aspects = [found for found in told if isinstance(found, HardwareMismatch)]
    if len(aspects) == len(told) and len({found.aspect for found in aspects}) == 1:
        has = tuple(sorted({found.has for found in aspects}))
        return NoSuchHardware(f"{aspects[0].aspect} {aspects[0].wanted}", has)
    return None


@lru_cache(maxsize=65_536)
def _accepted(names: tuple[str, ...], models: tuple[str, ...]) -> int:
    """How many of the devices a request by these names accepts."""
    if not names:
        return len(models)
    accepted = accepted_models(names)
    return sum(_key(model) in accepted for model in models)


def _key(model: str) -> str:
    return model.partition(":")[0]


def _together(because: Mapping[str, Reason]) -> Reason:
    """The one reason all places share, or each place's own."""
    first, *others = because.values()
    if all(reason == first for reason in others):
        return first
    reasons = list(because.items())
    more = len(reasons) - _MOST_TOLD
    if more > 0:
        # a place whose devices would do is nearer than one that has none of them
        reasons.sort(key=lambda item: isinstance(item[1], _LACKS))
    told = [f"{label}: {reason}" for label, reason in reasons]
    if more > 0:
        told = [*told[:_MOST_TOLD], f"and {more} more"]
    return Nowhere(tuple(told))
