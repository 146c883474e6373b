"""How far a plan is from the proven optimum, on small worlds with budgets, quotas and gangs.

``python -m benchmarks.exactness [--seed N] [--quick]`` makes random worlds and lets the planner
plan each. The same choice is written down as a mixed-integer programme over the grid of possible
starts (every waiting job starts on owned GPUs now or later, or goes to a cloud now) and solved by
HiGHS in a process that can be killed. What the optimum chooses is put through the planner's own
guards and priced by its own cost terms, so both are in the same currency; the gap is
(ours - optimum) / optimum.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparison import Compared
from benchmarks.machine import Stopwatch, print_line
from benchmarks.optimum import NoSolver, NotProven, Programme, solve
from benchmarks.small_worlds import POLICY, STEP_S, small_world
from hybrid.domain.ids import OfferId
from hybrid.domain.job import Job
from hybrid.domain.money import to_micros
from hybrid.domain.offer import Offer
from hybrid.domain.plan import Plan
from hybrid.domain.snapshot import Snapshot
from hybrid.estimation.waits import Duration
from hybrid.ledger.caps import falls_under, free_micros
from hybrid.planning.choices import Choice, Choices
from hybrid.planning.claims import machine_hold_micros
from hybrid.planning.cloud import Cloud
from hybrid.planning.lint import lint
from hybrid.planning.options import EXTERNALITY, CloudOption, local_terms
from hybrid.planning.planner import plan
from hybrid.planning.queue import pending_jobs
from hybrid.planning.workspace import Workspace
from policies.document import PolicyDocument
from policies.loading import parse_policy

INSTANCES, QUICK_INSTANCES = 80, 12
LIMIT_S = 60.0
"""For one optimum to be proven."""
MEAN_WANTED, WORST_WANTED = 0.02, 0.08

_USD = 1e6
_DUST = 1e-6


@dataclass(frozen=True, slots=True)
class Local:
    """A job on owned nodes, from ``step`` on."""

    job: Job
    choice: Choice
    nodes: tuple[int, ...]
    step: int


@dataclass(frozen=True, slots=True)
class Away:
    """A job on machines of an offer, now."""

    job: Job
    option: CloudOption
    offer: Offer


@dataclass(frozen=True, slots=True)
class Pair:
    """One instance: what our plan and the optimum cost, in micro-dollars."""

    ours_micros: int
    optimum_micros: int

    @property
    def gap(self) -> float:
        """By how much ours is dearer, as a part of the optimum."""
        return self.ours_micros / self.optimum_micros - 1.0


Answer = list[Local | Away]


def compared_with_optimum(snapshot: Snapshot, policy: PolicyDocument) -> Pair:
    """Both costs of one world. Raises NoSolver, NotProven, and ValueError where one of the two is
    not what it should be: a plan that is not clean, an optimum that the planner's own guards
    refuse, or one dearer than our plan."""
    made = plan(snapshot, policy, 1)
    findings = lint(snapshot, made)
    if findings:
        raise ValueError(f"the plan is not clean: {findings[0]}")
    model = Model(snapshot, policy)
    answer = model.answer(solve(model.programme, limit_s=LIMIT_S))
    pair = Pair(planned_micros(made, snapshot, policy), price(answer, snapshot, policy))
    if pair.gap < -_DUST:
        raise ValueError(f"the optimum costs more than our plan: {pair}")
    return pair


def planned_micros(made: Plan, snapshot: Snapshot, policy: PolicyDocument) -> int:
    """What the plan costs by the terms it shows, without those that are told once more as a gain of
    others. Raises ValueError when a waiting job has nothing chosen."""
    decisions = {decision.job_id: decision for decision in made.decisions}
    total = 0
    for job in pending_jobs(Workspace(snapshot, policy, 1)):
        decision = decisions[job.id]
        chosen = [a for a in decision.alternatives if a.option == decision.chosen]
        if not chosen:
            raise ValueError(f"{job.id} has nothing chosen: {decision.sentence}")
        total += sum(term.micros for term in chosen[0].terms if term.name != EXTERNALITY)
    return total


def price(answer: Answer, snapshot: Snapshot, policy: PolicyDocument) -> int:
    """What an answer costs by the planner's own terms. Raises ValueError when a guard refuses one
    of its machines, or devices are not free for as long as it says."""
    ws = Workspace(snapshot, policy, 1)
    cloud = Cloud(ws)
    total = 0
    for away in (a for a in answer if isinstance(a, Away)):
        found = cloud.obtainable(away.option, away.job)
        if not isinstance(found, Offer):
            raise ValueError(f"{away.job.id} is refused {away.offer.id}: {found}")
        cloud.take(away.option, found, away.job)
        total += away.option.micros
    for local in sorted((a for a in answer if isinstance(a, Local)), key=lambda a: a.step):
        _hold(ws, local)
        total += local_micros(ws, local)
    return total


def _hold(ws: Workspace, local: Local) -> None:
    need = ws.classes.of(local.job).need
    at, run_s = ws.now + local.step * STEP_S, local.choice.run.mean_s
    for node in local.nodes:
        line = ws.lines[node]
        free = line.free_throughout(at, run_s, need.cpus, need.host_memory_gib)
        devices = [] if free is None else _devices(free & local.choice.fit.allowed)
        if len(devices) < need.gpus:
            raise ValueError(f"{local.job.id} does not fit on {ws.nodes[node].id} at {local.step}")
        mask = sum(1 << device for device in devices[: need.gpus])
        line.hold(at, at + run_s, mask, need.cpus, need.host_memory_gib)


def _devices(mask: int) -> list[int]:
    return [device for device in range(mask.bit_length()) if mask >> device & 1]


def local_micros(ws: Workspace, local: Local) -> int:
    """A start on owned nodes by the planner's own cost terms."""
    cls = ws.classes.of(local.job)
    rate = local.choice.types[0].rate_micros_per_hour
    wait, choice = Duration(local.step * STEP_S), local.choice
    return local_terms(cls, rate, wait, choice.run, choice.fit.part).micros


class Model:
    """The choice of one plan as a programme over binary variables."""

    def __init__(self, snapshot: Snapshot, policy: PolicyDocument) -> None:
        self.ws = Workspace(snapshot, policy, 1)
        self.programme = Programme()
        self._snapshot = snapshot
        self._jobs = pending_jobs(self.ws)
        self._choices, self._cloud = Choices(self.ws), Cloud(self.ws)
        self.starts: dict[int, tuple[Job, Choice, int]] = {}
        self.nodes: dict[int, dict[int, int]] = {}
        """For each start, the variable that says whether it takes a node."""
        self.aways: dict[int, Away] = {}
        self._horizon = self._steps()
        for job in self._jobs:
            self._one_place(job)
        self._capacities()
        self._guards()

    def answer(self, ones: Sequence[int]) -> Answer:
        """What the variables that are 1 stand for."""
        chosen = set(ones)
        found: Answer = [away for index, away in self.aways.items() if index in chosen]
        for index, (job, choice, step) in self.starts.items():
            if index in chosen:
                nodes = tuple(n for n, taken in self.nodes[index].items() if taken in chosen)
                found.append(Local(job, choice, nodes, step))
        return found

    def _steps(self) -> int:
        """Steps after which every waiting job could have started one after the other."""
        last = max(line.times[-1] for line in self.ws.lines)
        total_s = sum(
            max((c.run.mean_s for c in self._choices.of(self.ws.classes.of(job))), default=0.0)
            for job in self._jobs
        )
        return math.ceil((last - self.ws.now + total_s) / STEP_S)

    def _one_place(self, job: Job) -> None:
        """Every start and every offer of a job, of which it gets one."""
        cls = self.ws.classes.of(job)
        places: dict[int, float] = {}
        for choice in self._choices.of(cls):
            _on_grid(choice.run.mean_s)
            for step in range(self._horizon):
                local = Local(job, choice, (), step)
                index = self.programme.variable(local_micros(self.ws, local) / _USD)
                self.starts[index] = job, choice, step
                places[index] = 1.0
                self._gang(index, choice, cls.nodes)
        for option in self._cloud.open_options(cls, cls.nodes):
            found = self._cloud.obtainable(option, job)
            if isinstance(found, Offer):
                index = self.programme.variable(option.micros / _USD)
                self.aways[index] = Away(job, option, found)
                places[index] = 1.0
        self.programme.row(places, lower=1.0, upper=1.0)

    def _gang(self, start: int, choice: Choice, count: int) -> None:
        """A start takes so many different nodes, all at once."""
        taken = {node: self.programme.variable(0.0) for node in choice.members}
        self.nodes[start] = taken
        row = dict.fromkeys(taken.values(), 1.0)
        self.programme.row({**row, start: -float(count)}, lower=0.0, upper=0.0)

    def _capacities(self) -> None:
        """No more GPUs on a node at any step than are free there."""
        uses: dict[tuple[int, int], dict[int, float]] = {}
        for start, (job, choice, step) in self.starts.items():
            gpus = float(self.ws.classes.of(job).need.gpus)
            for node, variable in self.nodes[start].items():
                for at in range(step, step + _on_grid(choice.run.mean_s)):
                    uses.setdefault((node, at), {})[variable] = gpus
        for (node, step), row in uses.items():
            self.programme.row(row, upper=float(self._free(node, step)))

    def _free(self, node: int, step: int) -> int:
        line = self.ws.lines[node]
        at = self.ws.now + step * STEP_S
        for begins in line.times:
            _on_grid(begins - self.ws.now)
        mask = next(
            m for t, m in zip(reversed(line.times), reversed(line.masks), strict=True) if t <= at
        )
        return mask.bit_count()

    def _guards(self) -> None:
        """Quotas of offers, ceilings of pools, budgets."""
        quotas: dict[OfferId, dict[int, float]] = {}
        counts: dict[str, dict[int, float]] = {}
        rates: dict[str, dict[int, float]] = {}
        for index, away in self.aways.items():
            machines = float(away.job.spec.resources.nodes)
            pool = away.offer.pool
            quotas.setdefault(away.offer.id, {})[index] = machines
            counts.setdefault(pool, {})[index] = machines
            per_hour = away.offer.price_ceiling_micros_per_hour / _USD
            rates.setdefault(pool, {})[index] = machines * per_hour
        left = {offer.id: offer.quota_left for offer in self._snapshot.offers}
        for id_, row in quotas.items():
            quota = left[id_]
            if quota is not None:
                self.programme.row(row, upper=float(quota))
        for name, row in counts.items():
            pool_spec = next(a.option.offers.pool for a in self.aways.values() if _in(a, name))
            limits = pool_spec.ceilings
            self.programme.row(row, upper=float(limits.machines))
            self.programme.row(rates[name], upper=to_micros(limits.usd_per_hour) / _USD)
        for balance in self._snapshot.balances:
            holds = {
                index: away.job.spec.resources.nodes
                * machine_hold_micros(away.job, away.offer, away.option.offers.pool)
                / _USD
                for index, away in self.aways.items()
                if falls_under(
                    balance.budget,
                    team=away.job.team,
                    user=away.job.user,
                    job_id=str(away.job.id),
                )
            }
            if holds:
                self.programme.row(holds, upper=free_micros(balance) / _USD)


def _in(away: Away, pool: str) -> bool:
    return away.offer.pool == pool


def _on_grid(seconds: float) -> int:
    """Steps in so many seconds. Raises ValueError when that is no whole number."""
    steps = round(seconds / STEP_S)
    if abs(seconds - steps * STEP_S) > _DUST * STEP_S:
        raise ValueError(f"{seconds} s is no multiple of {STEP_S} s")
    return steps


def measure(*, seed: int = 0, instances: int = INSTANCES) -> dict[str, Any]:
    """All figures of the printed line. Raises NoSolver; ValueError when no optimum was proven."""
    policy = parse_policy(POLICY)
    pairs: dict[int, Pair] = {}
    unproven = 0
    for position in range(instances):
        try:
            pairs[position] = compared_with_optimum(small_world(seed, position), policy)
        except NotProven as error:
            unproven += 1
            print(f"instance {position}: {error}", flush=True)
    if not pairs:
        raise ValueError("no optimum was proven")
    gaps = {position: max(pair.gap, 0.0) for position, pair in pairs.items()}
    worst = max(gaps, key=lambda position: (gaps[position], -position))
    print(
        f"worst: instance {worst}, {pairs[worst].ours_micros / _USD:.2f} USD where"
        f" {pairs[worst].optimum_micros / _USD:.2f} are the least",
        flush=True,
    )
    return {
        "seed": seed,
        "instances": len(pairs),
        "unproven": unproven,
        "mean_gap": round(statistics.fmean(gaps.values()), 5),
        "worst_gap": round(gaps[worst], 5),
        "worst_instance": worst,
        "at_the_optimum": sum(gap <= _DUST for gap in gaps.values()),
        "gaps": {str(position): round(gap, 5) for position, gap in gaps.items() if gap > _DUST},
    }


def compare(line: Mapping[str, Any]) -> tuple[Compared, ...]:
    """The rows of the results file, from the printed line."""
    return tuple(
        Compared(
            f"{label} gap over {line['instances']} worlds",
            "0.0 % (proven)",
            f"{line[key] * 100:.2f} %",
            f"≤ {wanted * 100:.0f} %",
            line[key] <= wanted,
        )
        for key, label, wanted in (
            ("mean_gap", "mean", MEAN_WANTED),
            ("worst_gap", "worst", WORST_WANTED),
        )
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.exactness", description=__doc__)
    parser.add_argument("--data", type=Path, help="ignored: the worlds are made from the seed")
    parser.add_argument("--seed", type=int, default=0, help="of the worlds")
    parser.add_argument("--quick", action="store_true", help="fewer worlds")
    arguments = parser.parse_args(argv)
    watch = Stopwatch()
    instances = QUICK_INSTANCES if arguments.quick else INSTANCES
    try:
        figures = measure(seed=arguments.seed, instances=instances)
    except NoSolver as error:
        sys.exit(str(error))
    print_line("exactness", watch, figures)


if __name__ == "__main__":
    main()
