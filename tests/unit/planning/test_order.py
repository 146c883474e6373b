"""The order of the queue under each strategy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid.domain.ids import JobId
from hybrid.domain.job import Job
from hybrid.planning.order import Ranking, served_first
from policies.document import PolicyDocument
from policies.loading import parse_policy
from policies.sections import Strategy
from tests.doubles.build import NOW, a_job, a_spec

HOUR = 3600.0


def job(id_: str, priority: str = "normal", age_h: float = 0.0, **fields: Any) -> Job:
    team = fields.pop("team", "red")
    resources = {"gpus": fields.pop("gpus", 1)}
    spec = a_spec(priority=priority, resources=resources, **fields)
    return a_job(id_, spec=spec, team=team, submitted_at=NOW - age_h * HOUR)


def ordered(
    jobs: Iterable[Job], policy: PolicyDocument, now: float, usage: dict[str, float], **more: Any
) -> tuple[JobId, ...]:
    return Ranking(jobs, policy, now, usage, **more).order()


def order(*jobs: Job, text: str = "", usage: dict[str, float] | None = None, **more: Any) -> str:
    return " ".join(ordered(jobs, parse_policy(text), NOW, usage or {}, **more))


def test_a_higher_class_goes_first_then_who_came_first_then_the_id():
    jobs = [job("d"), job("c"), job("b", age_h=1), job("a", "low", age_h=5), job("e", "high")]
    assert order(*jobs) == "e b c d a"


def test_an_overdue_job_goes_before_every_class_and_the_longest_overdue_first():
    jobs = [
        job("urgent", "urgent"),
        job("late", "normal", age_h=25),
        job("later", "low", age_h=72.5),
        job("latest", "normal", age_h=26),
    ]
    assert order(*jobs) == "latest late later urgent"


def test_fifo_looks_at_nothing_but_the_time_of_submission():
    jobs = [job("urgent", "urgent"), job("old", "low", age_h=90), job("mid", age_h=2)]
    assert order(*jobs, text="scheduling: fifo") == "old mid urgent"


def test_under_priority_teams_have_no_shares():
    jobs = [job("a", age_h=2, team="red"), job("b", age_h=1, team="blue")]
    usage = {"red": 1e9}
    assert order(*jobs, text="scheduling: priority", usage=usage) == "a b"
    assert order(*jobs, text="scheduling: break_even", usage=usage) == "b a"


def test_the_shortest_predicted_job_of_a_bucket_goes_first():
    jobs = [
        job("stated", expected_runtime="20m"),
        job("learned", expected_runtime="10m"),
        job("unknown", expected_runtime=None, walltime="15m"),
        job("urgent", "urgent", expected_runtime="9h"),
    ]
    predicted = {JobId("learned"): 3600.0}
    assert (
        order(*jobs, text="scheduling: shortest_predicted", predicted_s=predicted)
        == "urgent unknown stated learned"
    )


def test_under_shortest_predicted_a_valuable_job_goes_before_a_shorter_cheap_one():
    jobs = [
        job("cheap", expected_runtime="1h", value_per_hour=1),
        job("dear", expected_runtime="2h", value_per_hour=4),
        job("worthless", expected_runtime="1m", value_per_hour=0),
        job("idle", expected_runtime="10m", value_per_hour=0),
    ]
    assert order(*jobs, text="scheduling: shortest_predicted") == "dear cheap worthless idle"


def test_under_shortest_predicted_a_wide_job_counts_with_the_root_of_its_width():
    jobs = [
        job("wide", gpus=16, expected_runtime="30m"),
        job("long", expected_runtime="119m"),
        job("longer", expected_runtime="121m"),
    ]
    assert order(*jobs, text="scheduling: shortest_predicted") == "long wide longer"


def test_below_zero_the_width_exponent_puts_wide_jobs_first():
    jobs = [
        job("wide", gpus=16, expected_runtime="2h"),
        job("short", expected_runtime="29m"),
        job("long", expected_runtime="31m"),
        job("cpus", gpus=0, expected_runtime="1m"),
    ]
    text = "scheduling: {strategy: shortest_predicted, width_exponent: -0.5}"
    assert order(*jobs, text=text) == "cpus short wide long"
    text = "scheduling: {strategy: shortest_predicted, width_exponent: 0}"
    assert order(*jobs, text=text) == "cpus short long wide"
    text = "scheduling: {strategy: shortest_predicted, width_exponent: -2}"
    assert order(*jobs, text=text) == "wide short long cpus"


def test_under_best_fit_the_widest_job_of_a_bucket_goes_first():
    jobs = [job("one", age_h=1), job("eight", gpus=8), job("two", gpus=2)]
    assert order(*jobs, text="scheduling: best_fit") == "eight two one"


def test_under_fair_share_the_team_with_least_goes_first_whatever_the_class():
    jobs = [job("a", "urgent", team="red"), job("b", "low", team="blue")]
    usage = {"red": 10.0, "blue": 1.0}
    assert order(*jobs, text="scheduling: fair_share", usage=usage) == "b a"
    assert order(*jobs, text="scheduling: break_even", usage=usage) == "a b"


def test_within_its_turn_a_team_serves_its_own_higher_class_first():
    jobs = [job("a", "low", age_h=2), job("b", "urgent")]
    assert order(*jobs, text="scheduling: fair_share") == "b a"


def test_many_small_jobs_get_a_team_no_more_than_a_few_large_ones():
    small = [job(f"s{i}", team="small", expected_runtime="10m") for i in range(8)]
    large = [job(f"x{i}", team="large", gpus=4, expected_runtime="10m") for i in range(2)]
    assert order(*small, *large) == "s0 x0 s1 s2 s3 s4 x1 s5 s6 s7"


def test_a_teams_weight_divides_what_it_uses():
    red = [job(f"r{i}", team="red") for i in range(4)]
    blue = [job(f"b{i}", team="blue") for i in range(2)]
    assert order(*red, *blue, text="teams: {red: {weight: 2}}") == "b0 r0 r1 b1 r2 r3"


def test_a_job_that_meets_its_deadline_only_now_goes_before_all_but_the_overdue():
    jobs = [job("urgent", "urgent"), job("due", "low"), job("old", "low", age_h=73)]
    assert order(*jobs, no_slack=[JobId("due"), JobId("old")]) == "old due urgent"


def test_what_a_team_lacks_of_its_guarantee_goes_before_other_teams_classes():
    text = "teams: {red: {guaranteed_gpus: 4}}"
    jobs = [
        job("wide", "low", gpus=4, team="red"),
        job("small", "low", gpus=2, team="red"),
        job("more", "low", gpus=1, team="red"),
        job("cpu", "low", gpus=0, team="red"),
        job("urgent", "urgent", team="blue"),
    ]
    assert order(*jobs, text=text, team_gpus={"red": 2}) == "more urgent cpu small wide"
    assert order(*jobs, text=text, team_gpus={"red": 4}).startswith("urgent")
    assert order(*jobs, text=text).startswith("more small urgent")


def test_an_empty_queue_has_an_empty_order():
    assert order() == ""


SPECS = st.sampled_from(
    [
        a_spec(priority=name, resources={"gpus": gpus}, expected_runtime=runtime)
        for name in ("low", "normal", "high", "urgent", "gone")
        for gpus in (0, 1, 8)
        for runtime in ("10m", "2h")
    ]
)


@st.composite
def queues(draw: st.DrawFn) -> list[Job]:
    entries = draw(
        st.lists(
            st.tuples(SPECS, st.sampled_from(["red", "blue", "grey"]), st.integers(0, 100)),
            max_size=25,
        )
    )
    return [
        a_job(f"j{i:02}", spec=spec, team=team, submitted_at=NOW - age * HOUR)
        for i, (spec, team, age) in enumerate(entries)
    ]


POLICIES = {
    strategy: PolicyDocument.model_validate(
        {"scheduling": strategy, "teams": {"red": {"weight": 3, "guaranteed_gpus": 2}}}
    )
    for strategy in Strategy
}


@pytest.mark.parametrize("strategy", list(Strategy))
@settings(max_examples=40, deadline=None)
@given(data=st.data(), jobs=queues())
def test_the_order_is_total_and_does_not_depend_on_the_order_of_the_input(
    strategy: Strategy, data: st.DataObject, jobs: list[Job]
):
    usage = {"red": 5000.0, "blue": 100.0}
    found = ordered(jobs, POLICIES[strategy], NOW, usage)
    assert Counter(found) == Counter(job.id for job in jobs)
    shuffled = data.draw(st.permutations(jobs))
    assert ordered(shuffled, POLICIES[strategy], NOW, usage) == found


@pytest.mark.parametrize("strategy", list(Strategy))
@settings(max_examples=40, deadline=None)
@given(jobs=queues())
def test_of_two_like_jobs_of_a_team_the_one_submitted_first_goes_first(
    strategy: Strategy, jobs: list[Job]
):
    place = {id_: i for i, id_ in enumerate(ordered(jobs, POLICIES[strategy], NOW, {}))}
    for one in jobs:
        for other in jobs:
            like = one.spec is other.spec and one.team == other.team
            if like and one.submitted_at < other.submitted_at:
                assert place[one.id] < place[other.id]


@pytest.mark.parametrize("strategy", list(Strategy))
@settings(max_examples=40, deadline=None)
@given(jobs=queues(), extra=st.lists(SPECS, max_size=10))
def test_nobody_starves_no_later_submission_passes_an_overdue_job(
    strategy: Strategy, jobs: list[Job], extra: list[Any]
):
    policy = POLICIES[strategy]
    much_later = NOW + 200 * HOUR  # all of ``jobs`` are overdue by then
    before = ordered(jobs, policy, much_later, {})
    stream = [
        a_job(f"new{i}", spec=spec, team="grey", submitted_at=much_later)
        for i, spec in enumerate(extra)
    ]
    assert ordered([*jobs, *stream], policy, much_later, {})[: len(jobs)] == before


@pytest.mark.parametrize(
    ("first", "second", "tight", "before"),
    [
        ("urgent", "normal", (), True),
        ("normal", "urgent", (), False),
        ("normal", "normal", (), False),
        ("normal", "urgent", ("a",), True),
        ("normal", "urgent", ("a", "b"), False),
        ("urgent", "normal", ("b",), False),
    ],
)
def test_a_tight_deadline_goes_before_a_class_and_a_class_before_another(
    first: str, second: str, tight: tuple[str, ...], before: bool
) -> None:
    jobs = [a_job(id_, spec=a_spec(priority=name)) for id_, name in (("a", first), ("b", second))]
    ids = [job.id for job in jobs if job.id in tight]
    assert served_first(*jobs, PolicyDocument(), NOW, no_slack=ids) is before
