"""The worked example of the concepts page is what the planner says."""

from __future__ import annotations

import itertools
import re
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from hybrid.domain.claim import CLAIM_TRANSITIONS, ClaimState
from hybrid.domain.job import JOB_TRANSITIONS, JobState
from hybrid.domain.run import RUN_TRANSITIONS, RunState
from policies.sections import Burst
from tests.scenarios.run import log_of

PAGE = Path(__file__).parents[3] / "docs" / "concepts.md"
TEXT = PAGE.read_text()
WORLD = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)[0]
SHOWN = [
    block
    for block in re.findall(r"^```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    if "local pool home" in block
]


def _log(tmp_path: Path, value: float) -> str:
    world = yaml.safe_load(WORLD)
    world["jobs"]["second"]["value"] = value
    (tmp_path / "example.yaml").write_text(yaml.safe_dump(world))
    return log_of(str(tmp_path / "example"))


@pytest.mark.parametrize(("value", "shown", "verdict"), [(2, 0, "wait"), (12, 1, "burst")])
def test_the_options_shown_are_those_of_the_planner(tmp_path, value, shown, verdict):
    log = _log(tmp_path, value)
    assert log.partition("\nsecond: ")[2].partition("\n\n")[0].startswith(verdict)
    assert SHOWN[shown] in f"{log}\n"


@pytest.mark.parametrize(("value", "verdict"), [(6.5, "wait"), (7.5, "burst")])
def test_break_even_lies_at_about_seven_dollars_an_hour(tmp_path, value, verdict):
    assert f"\nsecond: {verdict} " in _log(tmp_path, value)
    assert "about $7 an hour" in TEXT


def test_the_hold_shown_is_the_one_that_is_opened(tmp_path):
    held = re.search(r"\$(\d+\.\d{6}) held", _log(tmp_path, 12))
    assert held is not None
    assert f"that is ${held[1]}" in TEXT


def test_the_margin_told_is_the_policys_default():
    assert (Burst().margin_usd, Burst().margin) == (Decimal("0.10"), 0.05)
    assert "$0.10 and 5 % of what waiting costs" in " ".join(TEXT.split())


@pytest.mark.parametrize(
    ("entity", "states", "table"),
    [
        ("run", RunState, RUN_TRANSITIONS),
        ("claim", ClaimState, CLAIM_TRANSITIONS),
        ("job", JobState, JOB_TRANSITIONS),
    ],
)
def test_the_states_drawn_follow_each_other_as_drawn(entity, states, table):
    drawn = re.search(rf"^{entity} +(.+)$", TEXT, re.MULTILINE)
    assert drawn is not None
    path = [states(each) for each in re.findall(r"[a-z_]+", drawn[1].partition("|")[0])]
    for before, after in itertools.pairwise(path):
        assert after in table.allowed[before]
