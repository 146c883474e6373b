"""Rules of others: what they object to waits, and so does what they could not be asked about."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from hybrid.domain.ids import JobId
from hybrid.domain.job import Job, JobState
from hybrid.domain.plan import Place
from hybrid.domain.snapshot import Snapshot
from hybrid.planning.planner import plan
from hybrid.runtime.rule_judge import MOST_LETTERS, RuleJudge
from policies.document import PolicyDocument
from policies.loading import parse_policy
from policies.rules import Rule
from policies.sections import Setting
from tests.doubles.build import NOW, a_job, a_local_pool, a_node
from tests.scenarios.world import build

POLICY = parse_policy("rules: [{name: no-red, settings: {team: red}}, {name: other}]")


def a_world(*jobs: Job) -> Snapshot:
    return Snapshot(
        now=NOW,
        revision=1,
        installation="i",
        jobs={job.id: job for job in jobs},
        nodes={node.id: node for node in (a_node("n1", 2),)},
        pools={pool.name: pool for pool in (a_local_pool(),)},
    )


def no_red(job: Job, snapshot: Snapshot, settings: Mapping[str, Setting]) -> str | None:
    """Objects to a team."""
    return f"team {job.team} rests" if job.team == settings.get("team") else None


def agrees(job: Job, snapshot: Snapshot, settings: Mapping[str, Setting]) -> str | None:
    return None


def judge_of(**rules: Rule) -> RuleJudge:
    return RuleJudge(lambda name: rules[name.replace("-", "_")], limit_s=5.0)


def said(judge: RuleJudge, world: Snapshot, policy: PolicyDocument = POLICY) -> dict[str, str]:
    return {job_id: str(reason) for job_id, reason in judge.judged(world, policy).items()}


def test_what_a_rule_objects_to_is_held_back_with_its_words() -> None:
    world = a_world(a_job("j1"), a_job("j2", team="blue"), a_job("j3", JobState.RUNNING))
    assert said(judge_of(no_red=no_red, other=agrees), world) == {
        "j1": "rule no-red: team red rests"
    }


def test_without_rules_nobody_is_asked() -> None:
    def never(name: str) -> Rule:
        raise AssertionError(name)

    assert RuleJudge(never).judged(a_world(a_job()), parse_policy("")) == {}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: 1 / 0, "it raised ZeroDivisionError: division by zero"),
        (lambda: 7, "it answered int where text or None is wanted"),
        (lambda: "  ", "it answered nothing to read where text or None is wanted"),
        (lambda: False, "it answered bool where text or None is wanted"),
    ],
)
def test_a_rule_that_fails_lets_nothing_start(answer: Callable[[], Any], words: str) -> None:
    judge = judge_of(no_red=lambda *_: answer(), other=agrees)
    assert said(judge, a_world(a_job("j1"))) == {"j1": f"rule no-red could not be asked: {words}"}


def test_a_rule_that_is_not_installed_lets_nothing_start() -> None:
    found = said(judge_of(other=agrees), a_world(a_job("j1")))
    assert found == {"j1": "rule no-red could not be asked: it cannot be had: 'no_red'"}


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_rule_that_takes_too_long_is_left_behind_and_not_asked_again(
    released: threading.Event,
) -> None:
    asked: list[JobId] = []

    def slow(job: Job, snapshot: Snapshot, settings: Mapping[str, Setting]) -> str | None:
        asked.append(job.id)
        if job.id == "j2":
            released.wait(30)
        return None

    judge = judge_of(no_red=slow, other=agrees)
    judge.limit_s = 0.2
    world = a_world(a_job("j1"), a_job("j2"), a_job("j3"))
    late = "rule no-red could not be asked: it took longer than 0.2 s"
    # what it has answered in time counts
    assert said(judge, world) == {"j2": late, "j3": late}
    assert said(judge, world) == {"j1": late, "j2": late, "j3": late}
    assert asked == ["j1", "j2"]
    # under other settings it is another rule
    other = parse_policy("rules: [{name: no-red, settings: {team: blue}}]")
    assert set(said(judge, a_world(a_job("j1")), other)) == set()


def test_what_a_rule_says_is_bounded() -> None:
    judge = judge_of(no_red=lambda *_: "x" * 10_000, other=agrees)
    (words,) = said(judge, a_world(a_job("j1"))).values()
    assert len(words) == MOST_LETTERS + len("rule no-red: ")


def test_a_job_that_is_held_back_waits_and_keeps_nobody_waiting() -> None:
    snapshot, policy = build(
        {"nodes": {"n1": {"gpus": 1}}, "jobs": {"a": {"run": "1h"}, "b": {"run": "1h"}}}
    )
    from dataclasses import replace

    from hybrid.domain.reasons import RuleObjects

    held = replace(snapshot, held_back={JobId("a"): RuleObjects("no-fridays", "it is Friday")})
    made = plan(held, policy, 1)
    assert [action.run.job_id for action in made.actions if isinstance(action, Place)] == ["b"]
    decision = next(d for d in made.decisions if d.job_id == "a")
    assert (decision.verdict, decision.sentence) == ("wait", "rule no-fridays: it is Friday")
    assert decision.reason is not None
    assert decision.reason.code == "rule_objects"
