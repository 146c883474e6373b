"""The walk through policies: every file on it is a policy that nobody would doubt."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hybrid.demo import scene
from hybrid.domain.budget import Period, Scope, ThresholdAction
from hybrid.domain.snapshot import Snapshot
from policies.document import PolicyDocument
from policies.doubts import Surroundings, doubts
from policies.loading import parse_policy
from policies.presets import ABOUT
from tests.doubles.build import a_job

TEXT = (Path(__file__).parents[3] / "docs" / "policy.md").read_text()
BLOCKS = [block.split("```")[0] for block in TEXT.split("```yaml\n")[1:]]
FILES = {
    match[1]: block
    for block in BLOCKS
    if (match := re.match(r"# ([a-z-]+\.yaml)\n", block)) is not None
}
ORDER = [
    "one-line.yaml",
    "first-budget.yaml",
    "values.yaml",
    "three-teams.yaml",
    "three-teams-with-budgets.yaml",
    "with-a-rule.yaml",
    "one-machine.yaml",
]


def test_the_walk_has_its_files_in_order() -> None:
    assert list(FILES) == ORDER
    assert len(BLOCKS) == len(FILES) + 1  # the line for editors


@pytest.mark.parametrize("block", BLOCKS, ids=["for-editors", *FILES])
def test_every_file_is_a_policy(block: str) -> None:
    parse_policy(block)


@pytest.mark.parametrize("name", FILES)
def test_nothing_in_a_file_is_doubted(name: str) -> None:
    assert doubts(parse_policy(FILES[name]), Surroundings()) == ()


def test_it_begins_with_the_empty_file_and_what_check_says_of_it() -> None:
    (doubt,) = doubts(parse_policy(""), Surroundings())
    shown = TEXT.split("```console\n")[1].split("```")[0]
    assert doubt.message in shown
    assert doubt.hint in shown
    assert TEXT.index("## The empty file") < TEXT.index("## One line")


def test_it_ends_with_three_teams_and_budgets_of_several_scopes_and_periods() -> None:
    policy = parse_policy(FILES["three-teams-with-budgets.yaml"])
    assert {"research", "product", "students"} <= set(policy.teams)
    limited = {budget.subject for budget in policy.budgets if budget.scope is Scope.TEAM}
    assert limited == {"research", "product", "students"}
    assert {b.scope for b in policy.budgets} == {Scope.ORG, Scope.TEAM, Scope.USER}
    assert {b.period for b in policy.budgets} == {Period.MONTH, Period.ROLLING, Period.DAY}
    actions = {t.action for budget in policy.budgets for t in budget.thresholds}
    assert actions == set(ThresholdAction)


def test_every_section_is_in_the_last_file_or_spoken_of() -> None:
    for section in PolicyDocument.model_fields:
        assert section in TEXT


def test_the_strategies_are_told_as_the_program_tells_them() -> None:
    for strategy, about in ABOUT.items():
        assert f"| `{strategy}` | {about} |" in TEXT


def test_the_file_for_the_demo_is_the_demos_policy_with_one_machine() -> None:
    demo = parse_policy(scene.policy().replace("machines: 6", "machines: 1"))
    assert parse_policy(FILES["one-machine.yaml"]) == demo


@pytest.mark.parametrize("command", re.findall(r"hybrid (policy|ledger) ([a-z]+)", TEXT))
def test_every_command_exists(command: tuple[str, str]) -> None:
    from importlib import import_module

    import typer

    group = typer.main.get_command(import_module(f"hybrid.cli.commands.{command[0]}").app)
    assert command[1] in group.commands  # type: ignore[attr-defined]


def test_the_rule_on_the_page_works() -> None:
    code = TEXT.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)  # our own page
    use = parse_policy(FILES["with-a-rule.yaml"]).rules[0]
    friday = datetime(2026, 3, 6, 12, tzinfo=UTC).timestamp()
    for at, words in ((friday, "nothing new starts on a Friday"), (friday + 86_400, None)):
        world = Snapshot(now=at, revision=1, installation="")
        assert names["no_fridays"](a_job(), world, use.settings) == words
