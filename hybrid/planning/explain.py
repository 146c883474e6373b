"""The report: for every live job one sentence, the option chosen, and what else there was, each
with its cost terms or the first guard that refused it."""

from __future__ import annotations

from hybrid.domain.ids import JobId, PoolName
from hybrid.domain.job import Job, StopCause
from hybrid.domain.plan import Alternative, Decision, Verdict
from hybrid.domain.quantities import format_duration
from hybrid.domain.reasons import (
    BackingOff,
    HardwareMismatch,
    Nowhere,
    Reason,
    Said,
    SourceUnknown,
    WaitingForMachine,
    WaitsForSpot,
)
from hybrid.domain.run import Run
from hybrid.estimation.spot_value import Machine
from hybrid.estimation.waits import p50_p90
from hybrid.planning import failed_places
from hybrid.planning.adopt import Adoption
from hybrid.planning.alternatives import (
    PREEMPT,
    STAY,
    Alternatives,
    awaited_option,
    better_words,
    cheapest,
    chosen_option,
)
from hybrid.planning.awaited import Awaited
from hybrid.planning.burst import Burst
from hybrid.planning.choices import Start, Waiting
from hybrid.planning.cloud import Cloud, deadline_refusal
from hybrid.planning.options import local_terms
from hybrid.planning.outcome import Outcome
from hybrid.planning.preempt import Preemption
from hybrid.planning.workspace import Workspace


class Explainer:
    """Writes the decisions of one plan."""

    def __init__(self, ws: Workspace, cloud: Cloud, outcome: Outcome) -> None:
        self.ws = ws
        self.cloud = cloud
        self.outcome = outcome
        self.options = Alternatives(ws, cloud, outcome)
        self._awaited = Awaited(ws, outcome.schedule.lines)
        chosen = (outcome.bursts, outcome.placed, outcome.adoptions, outcome.preemptions)
        self._chosen: frozenset[JobId] = frozenset().union(*chosen, outcome.spared)
        """Jobs that do not just wait in line."""

    def decisions(self) -> tuple[Decision, ...]:
        """One for every live job, by id."""
        found: dict[JobId, Decision] = {}
        served: dict[PoolName, int] = {}
        """How many of those before wait for each pool."""
        wait_of, now = self.outcome.schedule.starts.wait, self.ws.now
        for waiting in self.outcome.waiting:
            wait, ahead = wait_of(waiting.job_id), 0
            if wait is not None and wait[0].at + wait[1] > now:
                pool = wait[0].type.pool
                ahead = served.get(pool, 0)
                served[pool] = ahead + 1
            if waiting.job_id not in self.ws.run_of:
                found[waiting.job_id] = self._pending(waiting, wait, ahead)
        jobs = self.ws.snapshot.jobs
        for job_id, job in jobs.items():
            if job_id in found:
                continue
            refused = self.ws.refused.get(job_id)
            run = self.ws.run_of.get(job_id)
            if refused is not None:
                found[job_id] = self._decision(
                    job_id, Verdict.REFUSE, f"ends here: {refused}", "", reason=refused
                )
            elif run is not None:
                found[job_id] = self._known(job_id, run) or self._live(job, run)
            else:
                # its run has ended and the job follows at the next look at the facts
                found[job_id] = self._decision(job_id, Verdict.STAY, "its run has ended", "")
        return tuple([found[job_id] for job_id in sorted(jobs)])

    # --- jobs that run ------------------------------------------------------------------------

    def _known(self, job_id: JobId, run: Run) -> Decision | None:
        """The decision on record, where nothing about it has changed: most runs just go on."""
        known = self.ws.snapshot.decisions.get(job_id)
        goes_on = (
            known is not None
            and known.verdict is Verdict.STAY
            and known.chosen == STAY
            and known.reason is None
            and known.policy_version == self.ws.policy_version
            and run.id not in self.outcome.homecomings
            and self.outcome.consolidation_of(run) is None
            and not run.checkpoint_problem
            and self.ws.stopping(run) is None
        )
        return known if goes_on else None

    def _live(self, job: Job, run: Run) -> Decision:
        cause = self.ws.stopping(run)
        if cause is not None:
            return self._stopping(job, run, cause)
        left = self.ws.left_of(run)
        alternatives = (
            self.options.stay(run, job, left),
            *self.options.home(run),
            *(one for one in self.options.together(run) if one.option != STAY),
        )
        where = "local" if not run.claim_ids else "cloud"
        sentence = (
            f"runs on {_places(run)} ({where} pool {run.pool}), about {_words(left.mean_s)} to go"
        )
        reason = None
        if run.checkpoint_problem:
            reason = Said("checkpoint_not_safe", run.checkpoint_problem)
            sentence += f"; it is not moved while its work is not safe: {reason}"
        return self._decision(job.id, Verdict.STAY, sentence, STAY, alternatives, reason)

    def _stopping(self, job: Job, run: Run, cause: StopCause) -> Decision:
        verdict = Verdict.RETURN if cause is StopCause.RETURN else Verdict.STOP
        chosen = ""
        alternatives: tuple[Alternative, ...] = ()
        coming = self.outcome.homecomings.get(run.id)
        if coming is not None and cause is StopCause.RETURN:
            left = self.ws.unstopped_left(run, job)
            alternatives = (*self.options.home(run), self.options.stay(run, job, left))
            chosen = alternatives[0].option
        together = self.outcome.consolidation_of(run)
        if together is not None and cause is StopCause.CONSOLIDATE:
            alternatives = tuple(self.options.together(run))
            chosen = f"claim:{together.target_of(run).id}"
        planned = self.ws.stops.get(run.id)
        words = run.history[-1].cause if run.history else ""
        if planned is not None:
            words = planned.words
        sentence = f"is being stopped ({str(cause).replace('_', ' ')})"
        if words:
            sentence += f": {words}"
        burst = self.outcome.bursts.get(job.id)
        adoption = self.outcome.adoptions.get(job.id)
        offer = burst.offer if burst is not None else None
        moved = self.ws.moved.get(job.id)
        if adoption is not None and moved is not None:
            chosen = f"claim:{moved.id}"
            sentence += f"; its slot on {moved.node_id} is kept for it"
        elif adoption is not None:
            offer = adoption.claims[0].offer
        if offer is not None:
            chosen = f"offer:{offer.id}"
            sentence += f"; goes on on a {offer.machine_type} of {offer.pool} asked for it"
        return self._decision(job.id, verdict, sentence, chosen, alternatives)

    # --- jobs that wait -----------------------------------------------------------------------

    def _pending(self, waiting: Waiting, wait: tuple[Start, float] | None, ahead: int) -> Decision:
        """``wait`` is its start, or the one that it follows, and how much later it is; ``ahead``
        how many that wait for the same pool are served before it."""
        id_, outcome = waiting.job_id, self.outcome
        if (
            wait is not None
            and id_ not in self._chosen
            and waiting.cls.deadline_at is None
            and not wait[0].type.held
            and waiting.ready_at <= self.ws.now
        ):
            return self._in_line(waiting, *wait, ahead)
        burst = outcome.bursts.get(id_)
        placed = outcome.placed.get(id_)
        adoption = outcome.adoptions.get(id_)
        start = outcome.schedule.starts.get(id_)
        home = burst.instead if burst is not None else start
        if placed is not None:
            home = placed[0]
        preemption = outcome.preemptions.get(id_)
        if preemption is not None:
            home = preemption.instead
        awaits = placed is None and preemption is None and burst is None
        own = (
            *self.options.preempting(preemption, None if placed else outcome.spared.get(id_)),
            *self.options.homes(waiting, home, stays=burst is None and adoption is None),
            *self.options.held(waiting, adoption, home, chosen=awaits),
        )
        clouds = self.options.clouds(waiting, burst)
        if adoption is not None and awaits:  # the machine asked for bears the name of its offer
            named = awaited_option(waiting, adoption)
            clouds = tuple(one for one in clouds if one.option != named)
        alternatives = (*own, *clouds)
        if placed is not None:
            return self._placed(waiting, *placed, alternatives)
        if preemption is not None:
            return self._preempts(id_, preemption, alternatives)
        if burst is not None:
            return self._burst(waiting, burst, alternatives)
        if adoption is not None:
            return self._coming(waiting, adoption, alternatives)
        if waiting.ready_at > self.ws.now:
            job = self.ws.snapshot.jobs[id_]
            backing = self.ws.snapshot.held_back.get(id_) or BackingOff(
                waiting.ready_at - self.ws.now, job.failures
            )
            return self._decision(id_, Verdict.WAIT, str(backing), "", alternatives, backing)
        if start is None:
            return self._nowhere(waiting, alternatives)
        return self._waits(waiting, start, ahead, own, alternatives)

    def _placed(
        self, waiting: Waiting, start: Start, run: Run, alternatives: tuple[Alternative, ...]
    ) -> Decision:
        chosen = chosen_option(start, self.ws)
        against = self._failed(waiting) or self._against(chosen, alternatives)
        late = self._late(waiting, start)
        sentence = f"starts now on {_places(run)} in {run.pool}{against}{late}"
        return self._decision(waiting.job_id, Verdict.PLACE, sentence, chosen, alternatives)

    def _burst(
        self, waiting: Waiting, burst: Burst, alternatives: tuple[Alternative, ...]
    ) -> Decision:
        chosen = f"offer:{burst.offer.id}"
        nodes = waiting.cls.nodes
        machines = "a machine" if nodes == 1 else f"{nodes} machines"
        sentence = (
            f"asks for {machines}: {burst.option.offers.label},"
            f" ready in about {_words(burst.option.offers.boot_s)}"
            f"{self._failed(waiting) or self._against(chosen, alternatives)}"
        )
        if burst.instead is None:
            sentence += "; no local GPUs will do"
        way = self.cloud.deadlines.of(waiting.cls)
        if way is not None:
            sentence += f"; {way.words}"
        reason = WaitingForMachine((), burst.option.offers.boot_s)
        return self._decision(waiting.job_id, Verdict.BURST, sentence, chosen, alternatives, reason)

    def _preempts(
        self, id_: JobId, preemption: Preemption, alternatives: tuple[Alternative, ...]
    ) -> Decision:
        chosen = f"{PREEMPT}:{preemption.pool}"
        names = ", ".join(str(victim.job.id) for victim in preemption.victims)
        against = self._against(chosen, alternatives)
        if preemption.reclaims:
            against = "; its team takes back what it is guaranteed"
        sentence = f"takes the place of {names}{against}"
        return self._decision(id_, Verdict.PREEMPT, sentence, chosen, alternatives)

    def _coming(
        self, waiting: Waiting, adoption: Adoption, alternatives: tuple[Alternative, ...]
    ) -> Decision:
        names = tuple(str(claim.id) for claim in adoption.claims)
        reason = WaitingForMachine(names, adoption.ready_in_s)
        chosen = awaited_option(waiting, adoption)
        return self._decision(
            waiting.job_id, Verdict.BURST, str(reason), chosen, alternatives, reason
        )

    def _in_line(self, waiting: Waiting, start: Start, later_s: float, ahead: int) -> Decision:
        """A job that waits for owned GPUs and nothing else, until ``start`` or so much later. Hot:
        most jobs of a long queue do."""
        wait_s = start.wait.mean_s + later_s
        p50_s, p90_s = p50_p90(wait_s, start.wait.sd_s)
        chosen, options, better = self.options.in_line(waiting, start, wait_s, p50_s, p90_s)
        reason = self._awaited.reason(waiting.cls, start.type.pool, p50_s, ahead)
        sentence = f"{reason}{better}"
        return self._decision(waiting.job_id, Verdict.WAIT, sentence, chosen, options, reason)

    def _waits(
        self,
        waiting: Waiting,
        start: Start,
        ahead: int,
        own: tuple[Alternative, ...],
        alternatives: tuple[Alternative, ...],
    ) -> Decision:
        chosen = chosen_option(start, self.ws)
        reason = self._awaited.reason(waiting.cls, start.type.pool, start.wait.p50_s, ahead)
        away = self.options.cheapest_cloud(waiting)
        against = self._against(chosen, own if away is None else (*own, away))
        sentence = f"{reason}{against}{self._late(waiting, start)}"
        way = self.cloud.deadlines.of(waiting.cls)
        if way is not None and way.choice.machine is Machine.NONE:
            sentence += f"; {way.words}"
        return self._decision(waiting.job_id, Verdict.WAIT, sentence, chosen, alternatives, reason)

    def _nowhere(self, waiting: Waiting, alternatives: tuple[Alternative, ...]) -> Decision:
        id_ = waiting.job_id
        places = [a for a in alternatives if not a.option.startswith(PREEMPT)]
        refusals = [a.refused for a in places if a.refused is not None]
        clouds = [
            a.refused
            for a in places
            if a.refused is not None
            and not a.option.startswith("pool:")
            and not isinstance(a.refused, HardwareMismatch)
        ]
        # what keeps it from the nearest thing to a place is what a person can do something about
        reason: Reason
        spot = [refused for refused in clouds if isinstance(refused, WaitsForSpot)]
        if spot:
            way = self.cloud.deadlines.of(waiting.cls)
            words = "" if way is None else f"; {way.words}"
            return self._decision(id_, Verdict.WAIT, f"{spot[0]}{words}", "", alternatives, spot[0])
        if clouds:
            reason = clouds[0]
        elif refusals:
            reason = refusals[0]
        else:
            reason = self._unseen() or Nowhere(("no pool has room for it now",))
        return self._decision(
            id_, Verdict.WAIT, f"waits, nowhere to go now: {reason}", "", alternatives, reason
        )

    def _unseen(self) -> Reason | None:
        """The cloud that could not be asked: what it would have offered is not known."""
        for gap in self.ws.snapshot.unknown:
            if gap.source.startswith(("provider:", "offers:")):
                return SourceUnknown(gap.source, gap.cause)
        return None

    # --- words --------------------------------------------------------------------------------

    def _failed(self, waiting: Waiting) -> str:
        """Where the job is not tried again while there is another place, whatever that costs."""
        failed = failed_places.words(self.ws.snapshot.jobs[waiting.job_id])
        return f"; {failed}" if failed else ""

    def _late(self, waiting: Waiting, start: Start) -> str:
        """What its user must know of an owned place in which it would miss its deadline, and which
        it has because nothing else that it may have meets that either."""
        cls = waiting.cls
        if cls.deadline_at is None or start.type.held:
            return ""
        rate = start.type.rate_micros_per_hour
        priced = local_terms(cls, rate, start.wait, start.run, start.part)
        refused = deadline_refusal(self.ws, cls, priced)
        return "" if refused is None else f"; it {refused}"

    def _against(self, chosen: str, alternatives: tuple[Alternative, ...]) -> str:
        """How much the choice is better than the best of the others."""
        mine = next((a for a in alternatives if a.option == chosen and a.terms), None)
        other = cheapest(a for a in alternatives if a.option != chosen)
        if mine is None or other is None:
            return ""
        return better_words(mine.total_micros, other.total_micros, other.label, chosen)

    def _decision(
        self,
        job_id: JobId,
        verdict: Verdict,
        sentence: str,
        chosen: str,
        alternatives: tuple[Alternative, ...] = (),
        reason: Reason | None = None,
    ) -> Decision:
        return Decision(
            job_id=job_id,
            at=self.ws.now,
            verdict=verdict,
            sentence=sentence,
            chosen=chosen,
            policy_version=self.ws.policy_version,
            alternatives=alternatives,
            reason=reason,
        )


def _places(run: Run) -> str:
    names = [str(slot.node_id) for slot in run.slots]
    if len(names) > 3:
        return f"{names[0]} and {len(names) - 1} more nodes"
    slot = run.slots[0]
    gpus = len(slot.gpu_ids)
    where = ", ".join(names)
    profile = run.gpu_model.partition(":")[2]
    if profile:
        return f"{where} (a MIG instance of {profile})"
    if slot.replicas > 1:
        return f"{where} (one of {slot.replicas} replicas of a GPU)"
    if slot.share < 1:
        gib = "" if slot.gpu_memory_gib is None else f" with {slot.gpu_memory_gib:.4g} GiB"
        return f"{where} ({slot.share:.3g} of a GPU{gib})"
    return f"{where} ({gpus} GPU{'s' if gpus != 1 else ''} each)" if gpus else where


def _words(seconds: float) -> str:
    return format_duration(float(round(seconds)))
