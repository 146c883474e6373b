"""What else there was for a job, and what is: every option with its cost terms, or the first guard
that refused it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hybrid.domain.claim import Claim
from hybrid.domain.ids import PoolName
from hybrid.domain.job import Job
from hybrid.domain.money import whole_cents
from hybrid.domain.plan import Alternative, CostTerm
from hybrid.domain.pool_spec import LocalPool
from hybrid.domain.reasons import HardwareMismatch, Reason
from hybrid.domain.run import Run
from hybrid.estimation.waits import Duration
from hybrid.planning.adopt import Adoption
from hybrid.planning.burst import Burst
from hybrid.planning.choices import Start, Waiting
from hybrid.planning.classes import JobClass
from hybrid.planning.cloud import Cloud, deadline_refusal
from hybrid.planning.fit import speed_words
from hybrid.planning.offers import OfferClass
from hybrid.planning.openings import Refused
from hybrid.planning.options import (
    EXTERNALITY,
    WAITING,
    CloudOption,
    Priced,
    cost_micros,
    held_option,
    local_terms,
)
from hybrid.planning.outcome import Outcome
from hybrid.planning.preempt import Preemption, Spared
from hybrid.planning.return_home import stay_cost
from hybrid.planning.workspace import Workspace

_SHOWN = 6
"""Priced offers shown for a job, cheapest first: one for each machine type, market and pool."""

_JUDGED = 16
"""Offers judged for them at most."""

STAY = "stay"
"""What is chosen for a run that goes on."""

PREEMPT = "preempt"
"""What options of taking the place of others begin with; ``preempt:POOL`` says where."""


@dataclass(frozen=True, slots=True)
class _Offers:
    """What clouds offer a class of jobs: ``lasting`` whatever else is planned, and ``all``."""

    lasting: tuple[Alternative, ...]
    all: tuple[Alternative, ...]
    cheapest: Alternative | None


@dataclass(frozen=True, slots=True)
class _InLine:
    """What all jobs of a class that wait for one pool are told alike."""

    option: str
    label: str
    energy: CostTerm
    running: CostTerm
    speed: str
    before: tuple[Alternative, ...]
    after: tuple[Alternative, ...]
    fixed_micros: int
    """What it costs but for the wait."""
    p90_factor: float
    best: Alternative | None
    """The cheapest of the others."""
    best_micros: int


@dataclass(slots=True)
class _Refusals:
    """Refused offers, counted by pool and reason; the first of each speaks for all."""

    found: dict[tuple[PoolName, str], tuple[Reason, int]] = field(default_factory=dict)

    def add(self, offers: OfferClass, reason: Reason, members: int) -> None:
        self._count((offers.offer.pool, reason.code), reason, members)

    def add_all(self, others: Refused) -> None:
        for key, (reason, members) in others.items():
            self._count(key, reason, members)

    def _count(self, key: tuple[PoolName, str], reason: Reason, members: int) -> None:
        known = self.found.get(key)
        self.found[key] = (reason, members) if known is None else (known[0], known[1] + members)

    def alternatives(self) -> Iterator[Alternative]:
        for (pool, _), (reason, members) in sorted(self.found.items(), key=lambda i: i[0]):
            yield Alternative(
                option=f"burst:{pool}",
                label=f"machines of {pool}",
                refused=reason,
                members=members,
            )


class Alternatives:
    """The options of one plan's jobs."""

    def __init__(self, ws: Workspace, cloud: Cloud, outcome: Outcome) -> None:
        self.ws = ws
        self.cloud = cloud
        self.outcome = outcome
        self._offers: dict[int, _Offers] = {}
        self._in_line: dict[tuple[int, PoolName, int, float, str, float], _InLine] = {}
        self._homes: dict[int, tuple[tuple[PoolName, str, Alternative | None], ...]] = {}
        self._speeds: dict[tuple[int, str, int], str] = {}

    def home(self, run: Run) -> Iterator[Alternative]:
        """Coming home, where that was weighed."""
        coming = self.outcome.homecomings.get(run.id)
        if coming is not None:
            pool = coming.start.type.pool
            yield self.priced(f"pool:{pool}", f"coming home to {pool}", coming.home)

    def together(self, run: Run) -> Iterator[Alternative]:
        """Giving its machine up for others that are held anyway, where that was weighed, and what
        going on comes to beside it: of all runs of the machine together."""
        weighed = self.outcome.consolidation_of(run)
        if weighed is not None:
            target, others = weighed.target_of(run), len(weighed.runs) - 1
            also = f" with {others} other run(s) of {weighed.claim.id}" if others else ""
            label = f"moving to {target.id}, held anyway{also}"
            yield self.priced(f"claim:{target.id}", label, weighed.move)
            yield self.priced(STAY, f"going on in {run.pool}{also}", weighed.stay)

    def stay(self, run: Run, job: Job, left: Duration) -> Alternative:
        """Going on where the run is."""
        coming = self.outcome.homecomings.get(run.id)
        priced = stay_cost(self.ws, run, job) if coming is None else coming.stay
        return Alternative(
            option=STAY,
            label=f"going on in {run.pool}",
            start_p50_at=self.ws.now,
            start_p90_at=self.ws.now,
            finish_at=self.ws.now + left.mean_s,
            terms=priced.terms,
        )

    def preempting(
        self, preemption: Preemption | None, spared: Spared | None
    ) -> Iterator[Alternative]:
        """Taking the place of others, where that was chosen; else why not, where it was weighed."""
        refused = None
        if preemption is None and spared is not None:
            preemption, refused = spared.weighed, spared.refused
        if preemption is not None:
            names = ", ".join(str(victim.job.id) for victim in preemption.victims)
            label = f"in place of {names}"
            yield self.priced(
                f"{PREEMPT}:{preemption.pool}", label, preemption.priced, refused=refused
            )
        elif spared is not None:
            label = f"in place of {spared.protected or 'others'}"
            yield Alternative(option=PREEMPT, label=label, refused=spared.refused)

    def homes(self, waiting: Waiting, start: Start | None, *, stays: bool) -> Iterator[Alternative]:
        """Owned pools: the one of ``start`` with its cost, the others that refuse."""
        cls = waiting.cls
        here = None if start is None or start.type.held else start.type
        for name, label, refused in self._local(cls):
            if start is not None and here is not None and here.pool == name:
                priced = local_terms(
                    cls, here.rate_micros_per_hour, start.wait, start.run, start.part
                )
                late = None if stays else deadline_refusal(self.ws, cls, priced)
                speed = self.speed(cls, start.model, start.replicas)
                factor = self._p90_factor(name)
                yield self.priced(
                    f"pool:{name}", label, priced, speed=speed, refused=late, p90_factor=factor
                )
            elif refused is not None:
                yield refused

    def in_line(
        self, waiting: Waiting, start: Start, wait_s: float, p50_s: float, p90_s: float
    ) -> tuple[str, tuple[Alternative, ...], str]:
        """For a job that waits for owned GPUs, without a deadline and without a machine chosen: the
        name of the option of waiting there, all options with it among them, and how much it is
        better than the best of the others. ``start`` is its own or one like it; the wait is given.

        Hot: once for each job that waits; but for the wait, all is that of its class.
        """
        cls, run, type_ = waiting.cls, start.run, start.type
        rate = type_.rate_micros_per_hour
        key = (cls.index, type_.pool, rate, run.mean_s, start.model, start.share)
        line = self._in_line.get(key)
        if line is None:
            line = self._in_line[key] = self._line(waiting, start)
        waits = CostTerm(name=WAITING, micros=cost_micros(cls.value_micros_per_hour, wait_s))
        now = self.ws.now
        here = Alternative(
            option=line.option,
            label=line.label,
            start_p50_at=now + p50_s,
            start_p90_at=now + max(p50_s, p90_s * line.p90_factor),
            finish_at=now + (wait_s + run.mean_s),
            terms=(line.energy, waits, line.running),
            speed=line.speed,
        )
        better = ""
        if line.best is not None:
            mine = line.fixed_micros + waits.micros
            better = better_words(mine, line.best_micros, line.best.label)
        return line.option, (*line.before, here, *line.after), better

    def _line(self, waiting: Waiting, start: Start) -> _InLine:
        cls, type_ = waiting.cls, start.type
        energy, _, running = local_terms(
            cls, type_.rate_micros_per_hour, start.wait, start.run, start.part
        ).terms
        pools = self._local(cls)
        place = next(i for i, (name, _, _) in enumerate(pools) if name == type_.pool)
        refused = [option for _, _, option in pools]
        offered = self._offered(waiting)
        best = offered.cheapest
        return _InLine(
            f"pool:{type_.pool}",
            pools[place][1],
            energy,
            running,
            self.speed(cls, start.model, start.replicas),
            tuple(option for option in refused[:place] if option is not None),
            (*(option for option in refused[place + 1 :] if option is not None), *offered.all),
            energy.micros + running.micros,
            self._p90_factor(type_.pool),
            best,
            0 if best is None else best.total_micros,
        )

    def _p90_factor(self, pool: PoolName) -> float:
        """What the p90 of a wait for the pool is to be multiplied by."""
        return self.ws.snapshot.learned.wait_factor.get(pool, 1.0)

    def _local(self, cls: JobClass) -> tuple[tuple[PoolName, str, Alternative | None], ...]:
        """The owned pools, and for each that does not take the class, why."""
        found = self._homes.get(cls.index)
        if found is None:
            pools = []
            for name in self._local_pools:
                refused, label = self.refused_at(cls, name), f"local pool {name}"
                option = None
                if refused is not None:
                    option = Alternative(option=f"pool:{name}", label=label, refused=refused)
                pools.append((name, label, option))
            found = self._homes[cls.index] = tuple(pools)
        return found

    def refused_at(self, cls: JobClass, pool: PoolName) -> Reason | None:
        """Why the class cannot run in a pool, or None if it could."""
        reason: Reason | None = HardwareMismatch("nodes", "one that takes runs", "none")
        for type_ in self.ws.types:
            if type_.pool != pool or type_.held:
                continue
            found = self.ws.usable_fits(cls, type_)
            if not isinstance(found, Reason):
                return None
            reason = found
        return reason

    def held(
        self, waiting: Waiting, adoption: Adoption | None, start: Start | None, *, chosen: bool
    ) -> Iterator[Alternative]:
        """Cloud machines that are held or asked for already; ``chosen`` if the job awaits them."""
        if adoption is not None:
            claim = adoption.claims[0]
            word = "held" if adoption.machines else "asked for"
            option = awaited_option(waiting, adoption) if chosen else f"claim:{claim.id}"
            yield self.priced(option, _held_label(word, adoption.claims), adoption.priced)
        if (
            start is not None
            and start.type.held
            and not _is_of(adoption, chosen_option(start, self.ws))
        ):
            found = self.ws.fits_of(waiting.cls, start.type)
            if isinstance(found, Reason):
                return
            fit = next(fit for fit in found if fit.model == start.model)
            held = held_option(self.ws, waiting.cls, start.type, fit)
            if isinstance(held, Reason):
                return
            on = (self.ws.nodes[node].claim for node in start.nodes)
            label = _held_label("held", [claim for claim in on if claim is not None])
            speed = self.speed(waiting.cls, start.model, start.replicas)
            yield self.priced(chosen_option(start, self.ws), label, held.priced, speed=speed)

    def cheapest_cloud(self, waiting: Waiting) -> Alternative | None:
        """The cheapest new machine that is not refused."""
        return self._offered(waiting).cheapest

    def _offered(self, waiting: Waiting) -> _Offers:
        shared = self._offers.get(waiting.cls.index)
        if shared is None:
            shared = self._offers[waiting.cls.index] = self._offers_of(waiting)
        return shared

    def clouds(self, waiting: Waiting, burst: Burst | None) -> tuple[Alternative, ...]:
        """New machines, the chosen one first."""
        shared = self._offered(waiting)
        if burst is None:
            return shared.all
        chosen = self._chosen_offer(waiting.cls, burst)
        # what this plan has used up was there when the choice was made
        return (chosen, *(a for a in shared.lasting if a.label != chosen.label))

    def _chosen_offer(self, cls: JobClass, burst: Burst) -> Alternative:
        priced = burst.option.priced
        assert priced is not None
        terms = priced.terms
        if burst.shortened_micros:
            terms = (*terms, CostTerm(name=EXTERNALITY, micros=-burst.shortened_micros))
        return self.priced(
            f"offer:{burst.offer.id}",
            burst.option.offers.label,
            Priced(terms, priced.start_in, priced.finish_in),
            len(burst.option.offers.members),
            self.speed(cls, "" if burst.option.fit is None else burst.option.fit.model),
        )

    def _offers_of(self, waiting: Waiting) -> _Offers:
        """Priced offers, cheapest first and one of each kind, then the refused by pool and
        reason."""
        job = self.ws.snapshot.jobs[waiting.job_id]
        priced: dict[tuple[str, str, str], Alternative] = {}
        always = _Refusals()
        now = _Refusals()
        for option in self.cloud.options(waiting.cls, _JUDGED):
            offers = option.offers
            if option.refused is not None:
                always.add(offers, option.refused, len(offers.members))
                continue
            found = self.cloud.obtainable(option, job)
            if isinstance(found, Reason):
                now.add(offers, found, len(offers.members))
            elif option.priced is not None:
                first = f"offer:{offers.members[0].id}"
                model = "" if option.fit is None else option.fit.model
                speed = self.speed(waiting.cls, model)
                members = len(offers.members)
                alternative = self.priced(first, offers.label, option.priced, members, speed)
                priced.setdefault(_key(option), alternative)
                if len(priced) == _SHOWN:
                    break  # why dearer ones are refused tells nobody anything
        always.add_all(self.cloud.refused_at_once(waiting.cls))
        lasting = (*priced.values(), *always.alternatives())
        return _Offers(lasting, (*lasting, *now.alternatives()), cheapest(lasting))

    def speed(self, cls: JobClass, model: str, replicas: int = 1) -> str:
        """How fast a class is taken to be on a GPU model, or one of its replicas, in words."""
        key = cls.index, model, replicas
        if key not in self._speeds:
            self._speeds[key] = speed_words(cls.sample.spec, model, cls.learned, replicas)
        return self._speeds[key]

    def priced(
        self,
        option: str,
        label: str,
        priced: Priced,
        members: int = 1,
        speed: str = "",
        refused: Reason | None = None,
        p90_factor: float = 1.0,
    ) -> Alternative:
        """An option with its cost and its instants; ``p90_factor`` is what came of the p90 of waits
        told before."""
        now = self.ws.now
        p50_s, p90_s = priced.start_in.p50_p90_s
        return Alternative(
            option=option,
            label=label,
            start_p50_at=now + p50_s,
            start_p90_at=now + max(p50_s, p90_s * p90_factor),
            finish_at=now + priced.finish_in.mean_s,
            terms=priced.terms,
            refused=refused,
            members=members,
            speed=speed,
        )

    @cached_property
    def _local_pools(self) -> tuple[PoolName, ...]:
        return tuple(
            name
            for name, pool in sorted(self.ws.snapshot.pools.items())
            if isinstance(pool.spec, LocalPool) and not pool.removed
        )


def cheapest(options: Iterable[Alternative]) -> Alternative | None:
    """The cheapest of those that are priced and not refused; of equals the first by name."""
    open_ones = [a for a in options if a.terms and a.refused is None]
    return min(open_ones, key=lambda a: (a.total_micros, a.option), default=None)


def although(option: str) -> str:
    """Why an option is kept although another one is cheaper: what is there already is not given up
    for what would have to be got or waited for."""
    if option == STAY:
        return "but it runs there already"
    return "but that was asked for already" if option.startswith("claim:") else "within the margin"


def better_words(mine_micros: int, other_micros: int, other: str, option: str = "") -> str:
    """How much an ``option`` is better than another one, of their totals as they are shown."""
    difference = whole_cents(other_micros) - whole_cents(mine_micros)
    usd = f"${abs(difference) // 100}.{abs(difference) % 100:02d}"
    if difference < 0:
        return f"; {other} would be {usd} cheaper, {although(option)}"
    return f"; {usd} better than {other}"


def awaited_option(waiting: Waiting, adoption: Adoption) -> str:
    """How alternatives name the machines that a job waits for: as when it chose them, if they were
    asked for on its account, so that no new row is written for it."""
    claim = adoption.claims[0]
    mine = claim.job_id == waiting.job_id
    return f"offer:{claim.offer.id}" if mine else f"claim:{claim.id}"


def _is_of(adoption: Adoption | None, option: str) -> bool:
    """Whether an option is one of the machines that a job waits for."""
    return adoption is not None and any(option == f"claim:{c.id}" for c in adoption.claims)


def chosen_option(start: Start, ws: Workspace) -> str:
    """How alternatives name the place of a start."""
    if start.type.held:
        claim = ws.nodes[start.nodes[0]].claim
        assert claim is not None
        return f"claim:{claim.id}"
    return f"pool:{start.type.pool}"


def _key(option: CloudOption) -> tuple[str, str, str]:
    offer = option.offers.offer
    return str(offer.pool), offer.machine_type, str(offer.market)


def _held_label(word: str, claims: Sequence[Claim]) -> str:
    label = f"machine {word} in {claims[0].pool}"
    hinted = any(claim.rebalance_at is not None for claim in claims)
    return f"{label}, which its provider recommends to leave" if hinted else label
