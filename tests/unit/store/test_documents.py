"""Values come back from their text exactly."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid.domain.job import Checkpoint, Job, StopCause
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.learned import Estimate, Learned
from hybrid.domain.node import Node
from hybrid.domain.pool_spec import BurstPool, LocalPool
from hybrid.domain.snapshot import Pool
from hybrid.store.documents import dump, load, load_learned
from tests.doubles.build import (
    NOW,
    a_burst_pool,
    a_claim,
    a_job,
    a_local_pool,
    a_node,
    a_run,
    a_spec,
)


@pytest.mark.parametrize(
    "value",
    [
        a_job(),
        a_run(),
        a_claim(),
        a_node(gpus=4),
        a_burst_pool(tags={"team": "réd"}),
        a_local_pool(rate_per_gpu_hour="0.1000"),
        Checkpoint(seq=1, step=2, committed_at=NOW, size_bytes=2**50, commit_s=0.1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_comes_back_equal_and_of_its_type(value: Any) -> None:
    back = load(type(value), dump(value))
    assert back == value
    assert load(type(value), dump(back)) == back
    assert type(back) is type(value)


def test_a_pool_comes_back_as_the_kind_it_was() -> None:
    assert isinstance(load(Pool, dump(a_burst_pool())).spec, BurstPool)
    assert isinstance(load(Pool, dump(a_local_pool())).spec, LocalPool)


def test_durations_shorter_than_what_people_write_are_kept() -> None:
    job = a_job(spec=a_spec(walltime=0.0004, expected_runtime=0.0001))
    assert load(Job, dump(job)).spec.walltime == 0.0004


def test_money_and_instants_keep_their_digits_and_their_offset() -> None:
    berlin = timezone(timedelta(hours=2))
    spec = a_spec(
        value_per_hour=Decimal("1.10"), deadline=datetime(2030, 1, 1, 12, 30, tzinfo=berlin)
    )
    back = load(JobSpec, dump(spec))
    assert str(back.value_per_hour) == "1.10"
    assert back.deadline == datetime(2030, 1, 1, 10, 30, tzinfo=UTC)
    assert back == spec


def test_enumerations_come_back_as_members() -> None:
    job = load(Job, dump(a_job(stop_cause=StopCause.RETURN)))
    assert job.stop_cause is StopCause.RETURN


def test_infinite_numbers_survive() -> None:
    node = replace(a_node(), links_gbps=((0.0, float("inf")),))
    assert load(Node, dump(node)) == node


def test_half_a_surrogate_pair_is_replaced_rather_than_written_and_never_read() -> None:
    assert load(Job, dump(a_job(reason="a\ud800b"))).reason == "a?b"


def test_speeds_by_family_and_model_come_back() -> None:
    learned = Learned(
        boot_s={"cloud": Estimate(90.5, 3)},
        speed={("bert", "h100"): Estimate(2.5, 7), ("a,b", "c"): Estimate(1.0, 1)},
        interruptions={"offer": 2},
    )
    assert load_learned(dump(learned)) == learned
    assert load_learned(dump(Learned())) == Learned()


def test_what_later_versions_leave_out_has_its_default() -> None:
    row = json.loads(dump(a_job(cost_micros=5)))
    del row["cost_micros"]
    assert load(Job, json.dumps(row)).cost_micros == 0


def test_a_value_without_a_form_in_json_is_refused() -> None:
    with pytest.raises(TypeError, match="has no form"):
        dump({"when": object()})


@settings(max_examples=40)
@given(
    text=st.text(),
    env=st.dictionaries(st.from_regex(r"[A-Z]{1,8}", fullmatch=True), st.text(max_size=40)),
    number=st.floats(allow_nan=False),
)
def test_any_text_and_number_come_back(text: str, env: dict[str, str], number: float) -> None:
    env = {f"X{name}": value for name, value in env.items()}
    job = a_job(reason=text, not_before=number, spec=a_spec(env=env))
    assert load(Job, dump(job)) == job
