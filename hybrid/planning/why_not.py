"""Why a job is not in one named place: a pool, an offer, or a machine type.

The plan is made as ever; then the place is judged for this job alone, whatever is chosen, and the
first guard that refuses it is told, or by how much it is dearer than what was chosen. A job that
runs is judged as one that waits with the work it has left, against going on where it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hybrid.domain.ids import PoolName
from hybrid.domain.job import Job, JobState
from hybrid.domain.plan import Alternative, Decision, Verdict
from hybrid.domain.pool_spec import LocalPool
from hybrid.domain.reasons import (
    HardwareMismatch,
    NeverFree,
    NotOffered,
    NotWorthIt,
    Reason,
    SourceUnknown,
)
from hybrid.domain.run import Run, RunState
from hybrid.domain.snapshot import Snapshot
from hybrid.planning.alternatives import STAY, Alternatives, although
from hybrid.planning.choices import Waiting
from hybrid.planning.cloud import deadline_refusal
from hybrid.planning.explain import Explainer
from hybrid.planning.offers import OfferClass
from hybrid.planning.options import local_terms
from hybrid.planning.planner import Weighed, carry_out, weigh
from policies.document import PolicyDocument


def places(snapshot: Snapshot) -> tuple[str, ...]:
    """The names that can be asked for: pools, machine types and offers."""
    pools = {str(name) for name, pool in snapshot.pools.items() if not pool.removed}
    kinds = {offer.machine_type for offer in snapshot.offers}
    return tuple(sorted(pools | kinds | {str(offer.id) for offer in snapshot.offers}))


def why_not(
    snapshot: Snapshot, policy: PolicyDocument, policy_version: int, job: Job, where: str
) -> Decision:
    """The decision for the job, with the options that ``where`` is and the one chosen instead.

    ``where`` is one of :func:`places`.
    """
    runs = {id_: run for id_, run in snapshot.runs.items() if run.job_id != job.id}
    waits = replace(job, state=JobState.PENDING)
    world = replace(snapshot, runs=runs, jobs={**snapshot.jobs, job.id: waits})
    weighed = weigh(world, policy, policy_version)
    carry_out(weighed.ws, weighed.outcome)
    explainer = Explainer(weighed.ws, weighed.cloud, weighed.outcome)
    decision = next(d for d in explainer.decisions() if d.job_id == job.id)
    chosen = next((a for a in decision.alternatives if a.option == decision.chosen), None)
    run = _live(snapshot, job)
    if run is not None:
        chosen = explainer.options.stay(run, job, weighed.ws.left_of(run))
        decision = replace(decision, verdict=Verdict.STAY, chosen=STAY, alternatives=(chosen,))
        if where == run.pool and not run.claim_ids:
            return replace(decision, sentence=f"{where} is where it runs", reason=None)
    asked = _Asked(weighed, waits, where, decision, chosen, explainer.options)
    options = sorted(asked.options(), key=_nearest)
    taken = next((o for o in options if o.option == decision.chosen), None)
    told = _sentence(where, decision, options, taken)
    shown = options if chosen is None or taken is not None else [chosen, *options]
    reason = None if taken is not None or not options else options[0].refused
    return replace(decision, sentence=told, alternatives=tuple(shown), reason=reason)


def _live(snapshot: Snapshot, job: Job) -> Run | None:
    """The job's run that goes on."""
    over = (RunState.STOPPING, RunState.ENDED)
    runs = (run for run in snapshot.runs.values() if run.job_id == job.id)
    return next((run for run in runs if run.state not in over), None)


def _nearest(option: Alternative) -> tuple[bool, int, str]:
    """Options with a cost first, the cheapest of them before the others."""
    return not option.terms, option.total_micros, option.label


def _sentence(
    where: str, decision: Decision, options: list[Alternative], taken: Alternative | None
) -> str:
    if taken is not None:
        return f"{where} is what was chosen: {decision.sentence}"
    if not options:
        return f"not in {where}: nothing of it is there"
    why = options[0].refused
    return f"not in {where}: {why if why is not None else 'it would do as well'}"


@dataclass(frozen=True, slots=True)
class _Asked:
    """One question."""

    weighed: Weighed
    job: Job
    where: str
    decision: Decision
    chosen: Alternative | None
    write: Alternatives

    def options(self) -> Iterator[Alternative]:
        """What the name stands for: an owned pool, or classes of offers."""
        name = PoolName(self.where)
        pool = self.weighed.ws.snapshot.pools.get(name)
        if pool is not None and isinstance(pool.spec, LocalPool):
            yield from self._at_home(name, pool.spec)
            return
        found = [offers for offers in self.weighed.cloud.book.classes if self._named(offers)]
        for offers in found:
            yield self._offered(offers)
        if not found:
            yield Alternative(
                option=f"burst:{self.where}",
                label=f"machines of {self.where}",
                refused=self._nothing_offered(name),
            )

    def _named(self, offers: OfferClass) -> bool:
        ids = (str(offer.id) for offer in offers.members)
        return self.where in (str(offers.offer.pool), offers.offer.machine_type, *ids)

    def _nothing_offered(self, name: PoolName) -> Reason:
        ws = self.weighed.ws
        pool = ws.burst_pool(name)
        for gap in ws.snapshot.unknown:
            if pool is not None and gap.source in (
                f"provider:{pool.provider}",
                f"offers:{pool.provider}",
            ):
                return SourceUnknown(gap.source, gap.cause)
        return NotOffered(self.where)

    # --- at home ------------------------------------------------------------------------------

    def _at_home(self, name: PoolName, pool: LocalPool) -> Iterator[Alternative]:
        ws, cls = self.weighed.ws, self._waiting.cls
        option, label = f"pool:{name}", f"local pool {name}"
        types = [t for t in ws.types if t.pool == name and not t.held]
        if not types:
            yield Alternative(option=option, label=label, refused=self._no_node(name, pool))
            return
        refusals: Counter[Reason] = Counter()
        for type_ in types:
            found = ws.usable_fits(cls, type_)
            if isinstance(found, Reason):
                refusals[found] += len(ws.members[type_.index])
        choices = [
            choice
            for choice in self.weighed.choices.of(cls)
            if choice.types[0].pool == name and not choice.held
        ]
        if not choices and refusals:
            for reason, nodes in refusals.items():
                yield Alternative(option=option, label=label, refused=reason, members=nodes)
            return
        start = self.weighed.outcome.schedule.find_among(self._waiting, choices)
        if self.decision.chosen == option:
            start = self.weighed.outcome.schedule.starts.get(self.job.id, start)
        if start is None:
            yield Alternative(option=option, label=label, refused=NeverFree(cls.nodes))
            return
        rate = start.type.rate_micros_per_hour
        priced = local_terms(cls, rate, start.wait, start.run, start.part)
        late = deadline_refusal(ws, cls, priced)
        speed = self.write.speed(cls, start.model, start.replicas)
        yield self._against(self.write.priced(option, label, priced, speed=speed), late)

    def _no_node(self, name: PoolName, pool: LocalPool) -> Reason:
        snapshot = self.weighed.ws.snapshot
        for gap in snapshot.unknown:
            if gap.source == f"engine:{pool.engine}":
                return SourceUnknown(gap.source, gap.cause)
        states = Counter(str(n.state) for n in snapshot.nodes.values() if n.pool == name)
        has = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return HardwareMismatch("nodes", "one that takes runs", has or "none")

    # --- in clouds ----------------------------------------------------------------------------

    def _offered(self, offers: OfferClass) -> Alternative:
        first = f"offer:{offers.members[0].id}"
        chosen = self.decision.chosen
        mine = any(chosen == f"offer:{offer.id}" for offer in offers.members)
        if mine and self.chosen is not None:
            return self.chosen
        option = self.weighed.cloud.judged(self._waiting.cls, self.job, offers)
        zones = ", ".join(sorted({offer.zone for offer in offers.members}))
        label = f"{offers.label} ({zones})"
        if option.priced is None:
            members = len(offers.members)
            return Alternative(option=first, label=label, refused=option.refused, members=members)
        speed = self.write.speed(self._waiting.cls, "" if option.fit is None else option.fit.model)
        priced = self.write.priced(first, label, option.priced, len(offers.members), speed)
        return self._against(priced, option.refused)

    # --- both ---------------------------------------------------------------------------------

    @property
    def _waiting(self) -> Waiting:
        for waiting in self.weighed.outcome.waiting:
            if waiting.job_id == self.job.id:
                return waiting
        ws = self.weighed.ws  # a job that is refused for ever is in no queue
        return Waiting(self.job.id, ws.classes.of(self.job), ws.now)

    def _against(self, option: Alternative, refused: Reason | None) -> Alternative:
        """The option, with what refuses it, or else by how much it is dearer than the choice."""
        if refused is None and self.chosen is not None and option.option != self.chosen.option:
            dearer = option.total_micros - self.chosen.total_micros
            refused = NotWorthIt(dearer, self.chosen.label, although(self.chosen.option))
        return replace(option, refused=refused)
