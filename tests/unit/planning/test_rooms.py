"""Room on a device held in shares, against looking at every instant that could matter."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid.domain.ids import NodeId, PoolName
from hybrid.domain.job_spec import GpuRequest, JobSpec, Resources
from hybrid.hardware import REFERENCE_KEY
from hybrid.planning.rooms import Hold, ending, first_room, least_free, next_change, uncovered
from hybrid.simulation.replay import Arrival, Replay
from hybrid.simulation.world import node_report

instants = st.integers(0, 12).map(float)
spans = st.tuples(instants, instants).filter(lambda span: span[0] < span[1])
holds = st.lists(
    st.builds(lambda span, eighths: Hold(*span, eighths / 8), spans, st.integers(1, 8)), max_size=6
)


@given(holds, spans)
def test_the_least_free_part_is_that_of_some_instant(
    held: list[Hold], span: tuple[float, float]
) -> None:
    begins, ends = span
    steps = [begins + half / 2 for half in range(int(2 * (ends - begins)))]
    free = [1 - sum(h.share for h in held if h.start <= at < h.end) for at in steps]
    assert least_free(held, begins, ends) == min(free)


@given(holds, spans)
def test_what_is_uncovered_is_held_by_nobody_and_is_all_of_it(
    held: list[Hold], span: tuple[float, float]
) -> None:
    begins, ends = span
    gaps = list(uncovered(held, begins, ends))
    for half in range(int(2 * (ends - begins))):
        at = begins + half / 2
        in_a_gap = any(first <= at < last for first, last in gaps)
        assert in_a_gap == (not any(h.start <= at < h.end for h in held))
    assert all(begins <= first < last <= ends for first, last in gaps)


@given(holds, instants, st.integers(1, 8))
def test_the_first_room_is_the_first_instant_with_so_much_free(
    held: list[Hold], after: float, eighths: int
) -> None:
    share = eighths / 8
    instants = (after + half / 2 for half in range(30))
    enough = next(at for at in instants if least_free(held, at, at) >= share)
    assert first_room(held, share, after) == enough


@given(holds, instants)
def test_the_next_change_is_the_first_after(held: list[Hold], after: float) -> None:
    later = [at for h in held for at in (h.start, h.end) if at > after]
    assert next_change(held, after) == min(later, default=None)


def test_of_holds_that_end_together_the_least_certain_counts() -> None:
    sure, unsure = Hold(0, 2, 0.5, variance=1.0), Hold(0, 2, 0.25, variance=9.0)
    assert ending([sure, unsure, Hold(0, 3, 0.25, variance=16.0)], 2) == unsure
    assert ending([sure], 1) is None


POLICY = """
scheduling: {strategy: fifo}
burst: {enabled: false}
preemption: {enabled: false}
"""
HOUR_S = 3600.0


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 8), st.integers(1, 9)), min_size=2, max_size=7
    )
)
@settings(max_examples=40, deadline=None)
def test_shares_start_when_they_were_told(jobs: list[tuple[int, int, int]]) -> None:
    """One GPU, first come first served, run times that are known: nobody is told too much or too
    little, whatever shares come when."""
    node = node_report(
        NodeId("n1"), PoolName("home"), REFERENCE_KEY, 1, "nvswitch", run_lease_s=math.inf,
        cpus=1e6, memory_gib=1e6,
    )  # fmt: skip
    pool = {"kind": "local", "name": "home", "rate_per_gpu_hour": 0}
    at = 0.0
    arrivals = []
    for position, (gap, eighths, hours) in enumerate(jobs):
        at += gap * HOUR_S
        resources = Resources(gpus=1, gpu=GpuRequest(share=eighths / 8))
        spec = JobSpec(
            command=("train",),
            resources=resources,
            expected_runtime=hours * HOUR_S,
            walltime=3 * hours * HOUR_S,
        )
        arrivals.append(Arrival(job_id=f"j{position}", at_s=at, spec=spec, work_s=hours * HOUR_S))
    done = Replay(policy=POLICY, pools=(pool,), nodes=[node]).run(arrivals)
    for fate in done.fates:
        assert fate.told is not None
        began_at = fate.submitted_at + fate.wait_s
        assert fate.told.p50_at <= began_at + 1e-3
        assert began_at <= fate.told.p90_at + 1e-3
