"""Numbers for Prometheus, read at the moment of asking, each application in its own registry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from hybrid.bootstrap import App
from hybrid.domain.claim import ClaimState
from hybrid.domain.job import JobState
from hybrid.domain.money import to_micros, to_usd
from hybrid.domain.node import NodeState
from hybrid.ports.store import World
from hybrid.runtime.tick import TickReport

WAIT_BUCKETS_S = (10.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 86_400.0)
TICK_BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
_RUNNING_COSTS = frozenset(
    {
        ClaimState.BOOTING,
        ClaimState.READY,
        ClaimState.CORDONED,
        ClaimState.DRAINING,
        ClaimState.LOST,
        ClaimState.TERMINATING,
    }
)


def registry_of(app: App) -> CollectorRegistry:
    """A registry with all of the application's numbers."""
    registry = CollectorRegistry()
    registry.register(Numbers(app))
    return registry


class Numbers(Collector):
    """Collects: rows from the store, ticks from the loop of this process."""

    def __init__(self, app: App):
        self._app = app
        self._ticks = _Ticks()

    def describe(self) -> Iterator[Metric]:
        """Nothing beforehand: registering asks no store."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Everything, now."""
        world = self._app.live.world()
        now = self._app.clock.now()
        yield from _jobs(world, now)
        yield from _machines(world)
        yield from _money(self._app, now)
        yield from self._loop()

    def _loop(self) -> Iterator[Metric]:
        standing = self._app.loop.status()
        yield _gauge("hybrid_loop_leads", "Whether this process runs the loop", standing.leads)
        yield _gauge("hybrid_loop_failing", "Ticks failed in a row", standing.failing)
        snapshot = self._app.loop.snapshot
        unknown = GaugeMetricFamily(
            "hybrid_source_unknown", "Sources that could not be read", labels=["source"]
        )
        for gap in () if snapshot is None else snapshot.unknown:
            unknown.add_metric([gap.source], 1)
        yield unknown
        self._ticks.take(self._app.loop.reports)
        yield from self._ticks.metrics()


class _Ticks:
    """Adds up the loop's reports, which it keeps only for a while. Ticks that came and went between
    two askings more than its 256 apart are not counted."""

    def __init__(self) -> None:
        self._last_at = 0.0
        self._counts = [0] * (len(TICK_BUCKETS_S) + 1)
        self._sum_s = 0.0
        self._dropped: Counter[str] = Counter()
        self._findings = 0

    def take(self, reports: object) -> None:
        """Count the reports that are new."""
        fresh = [each for each in _copied(reports) if each.at > self._last_at]
        for report in fresh:
            self._last_at = report.at
            self._sum_s += report.seconds
            place = sum(report.seconds > edge for edge in TICK_BUCKETS_S)
            self._counts[place] += 1
            self._dropped.update(str(drop.cause) for drop in report.dropped)
            self._findings += len(report.findings)

    def metrics(self) -> Iterator[Metric]:
        """What has been counted."""
        yield _histogram("hybrid_tick_seconds", "A tick", TICK_BUCKETS_S, self._counts, self._sum_s)
        dropped = CounterMetricFamily(
            "hybrid_commits_dropped", "Bundles that were not committed", labels=["cause"]
        )
        for cause, count in sorted(self._dropped.items()):
            dropped.add_metric([cause], count)
        yield dropped
        yield CounterMetricFamily(
            "hybrid_plan_findings", "Broken invariants found in plans", value=self._findings
        )


def _copied(reports: object) -> list[TickReport]:
    """The deque at one moment, though the loop appends to it."""
    while True:
        try:
            return list(reports)  # type: ignore[call-overload,no-any-return]
        except RuntimeError:
            continue


def _jobs(world: World, now: float) -> Iterator[Metric]:
    by_state = Counter(job.state for job in world.jobs.values())
    jobs = GaugeMetricFamily("hybrid_jobs", "Jobs that have not ended", labels=["state"])
    for state in JobState:
        if not state.ended:
            jobs.add_metric([state], by_state[state])
    yield jobs
    pending = Counter(
        (job.team, job.spec.priority)
        for job in world.jobs.values()
        if job.state is JobState.PENDING
    )
    queue = GaugeMetricFamily("hybrid_queue_depth", "Pending jobs", labels=["team", "priority"])
    for (team, priority), count in sorted(pending.items()):
        queue.add_metric([team, priority], count)
    yield queue
    waits = [now - job.queued_at for job in world.jobs.values() if job.state is JobState.PENDING]
    yield _gauge("hybrid_queue_oldest_seconds", "Longest wait now", max(waits, default=0.0))
    started = [
        run.started_at - job.queued_at
        for run in world.runs.values()
        if run.started_at is not None
        and (job := world.jobs.get(run.job_id)) is not None
        and run.started_at >= job.queued_at
    ]
    counts = [0] * (len(WAIT_BUCKETS_S) + 1)
    for wait in started:
        counts[sum(wait > edge for edge in WAIT_BUCKETS_S)] += 1
    yield _histogram(
        "hybrid_running_waited_seconds",
        "How long the jobs that run now had waited",
        WAIT_BUCKETS_S,
        counts,
        sum(started),
    )


def _machines(world: World) -> Iterator[Metric]:
    claims = GaugeMetricFamily(
        "hybrid_claims", "Claims that are not over", labels=["state", "pool"]
    )
    for (state, pool), count in sorted(
        Counter((claim.state, claim.pool) for claim in world.claims.values()).items()
    ):
        claims.add_metric([state, pool], count)
    yield claims
    burn = GaugeMetricFamily(
        "hybrid_burn_usd_per_hour", "Price of the machines that may be running", labels=["pool"]
    )
    rates: Counter[str] = Counter()
    for claim in world.claims.values():
        if claim.state in _RUNNING_COSTS:
            rates[claim.pool] += claim.offer.price_micros_per_hour
    for name, micros in sorted(rates.items()):
        burn.add_metric([name], float(to_usd(micros)))
    yield burn
    nodes = GaugeMetricFamily("hybrid_nodes", "Nodes", labels=["state", "pool"])
    gpus = GaugeMetricFamily("hybrid_gpus", "Devices of nodes", labels=["pool", "model"])
    for (node_state, name), count in sorted(
        Counter((node.state, str(node.pool)) for node in world.nodes.values()).items()
    ):
        nodes.add_metric([node_state, name], count)
    models = Counter(
        (str(node.pool), gpu.model)
        for node in world.nodes.values()
        if node.state is not NodeState.GONE
        for gpu in node.gpus
    )
    for (name, model), count in sorted(models.items()):
        gpus.add_metric([name, model], count)
    yield nodes
    yield gpus
    held = {
        (slot.node_id, gpu_id)
        for run in world.runs.values()
        for slot in run.slots
        for gpu_id in slot.gpu_ids
    }
    yield _gauge("hybrid_gpus_held", "Devices that a run holds, whole or in part", len(held))


def _money(app: App, now: float) -> Iterator[Metric]:
    families = {
        name: GaugeMetricFamily(f"hybrid_budget_{name}_usd", words, labels=["budget"])
        for name, words in (
            ("limit", "What may be spent in the period"),
            ("charged", "What was spent in the period"),
            ("held", "What is reserved now"),
        )
    }
    for balance in app.store.balances(now=now):
        limit = to_micros(balance.budget.limit_usd)
        for name, micros in (
            ("limit", limit),
            ("charged", balance.charged_micros),
            ("held", balance.held_micros),
        ):
            families[name].add_metric([balance.name], float(to_usd(micros)))
    yield from families.values()


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=float(value))


def _histogram(
    name: str, words: str, edges: tuple[float, ...], counts: list[int], total: float
) -> Metric:
    """``counts`` has one number per bucket, the last for what is above all edges."""
    buckets, seen = [], 0
    for edge, count in zip((*edges, float("inf")), counts, strict=True):
        seen += count
        buckets.append(("+Inf" if edge == float("inf") else repr(edge), seen))
    return HistogramMetricFamily(name, words, buckets=buckets, sum_value=total)
