"""When a node is taken out of use, and when a person's word stands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hybrid.domain.node import Node, NodeState
from hybrid.domain.transitions import Step
from policies.loading import parse_policy
from policies.quarantine import reason
from tests.doubles.build import a_node

DEFAULT = parse_policy("")


def with_broken(count: int, gpus: int = 4, **fields: Any) -> Node:
    node = a_node("n1", gpus, **fields)
    devices = tuple(
        replace(gpu, healthy=False, health_reason="fell off the bus") if gpu.index < count else gpu
        for gpu in node.gpus
    )
    return replace(node, gpus=devices)


@pytest.mark.parametrize(("broken", "taken"), [(0, False), (1, False), (2, True), (4, True)])
def test_a_node_with_half_of_its_devices_broken_is_taken_out(broken: int, taken: bool):
    assert (reason(with_broken(broken), 0, DEFAULT) is not None) is taken


def test_the_reason_says_what_is_wrong():
    assert str(reason(with_broken(2), 0, DEFAULT)) == ("2 of 4 GPUs do not work: fell off the bus")
    assert str(reason(a_node(), 3, DEFAULT)) == "3 jobs have failed on it and go elsewhere"


def test_the_policy_says_how_much_is_too_much():
    strict = parse_policy("quarantine: {unhealthy_gpus: 0.25, failing_jobs: 1}")
    assert reason(with_broken(1), 0, strict) is not None
    assert reason(a_node(), 1, strict) is not None
    assert reason(a_node(), 2, DEFAULT) is None
    off = parse_policy("quarantine: {enabled: false}")
    assert reason(with_broken(4), 9, off) is None


def test_a_node_without_devices_is_not_broken():
    assert reason(a_node("cpu", 0), 0, DEFAULT) is None


def test_a_node_that_takes_no_runs_or_was_let_in_by_a_person_is_left_alone():
    assert reason(with_broken(4, state=NodeState.CORDONED), 9, DEFAULT) is None
    let_in = (Step("ready", 1.0, "joined"), Step("ready", 2.0, "uncordoned by ann"))
    assert reason(with_broken(4, history=let_in), 9, DEFAULT) is None
    again = (*let_in, Step("lost", 3.0, "silent"), Step("ready", 4.0, "heard again"))
    assert reason(with_broken(4, history=again), 9, DEFAULT) is not None
