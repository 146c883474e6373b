"""What an empty document says, and how a written one refines it."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pydantic import ValidationError

from hybrid.domain.job_spec import BurstRule
from policies.document import PolicyDocument
from policies.loading import parse_policy
from policies.sections import Scheduling, Spread, Strategy, Team
from policies.writing import preset, to_yaml


def test_an_empty_document_has_no_budget_and_breaks_even():
    policy = PolicyDocument()
    assert policy.budgets == ()
    assert policy.scheduling.strategy is Strategy.BREAK_EVEN
    assert policy.burst.enabled


def test_the_built_in_classes_are_ranked_and_only_urgent_preempts():
    classes = PolicyDocument().classes_by_rank
    assert {name: group.rank for name, group in classes.items()} == {
        "low": 0,
        "normal": 100,
        "high": 200,
        "urgent": 300,
    }
    assert [name for name, group in classes.items() if group.preempts] == ["urgent"]


def test_a_built_in_class_is_refined_and_not_replaced():
    policy = parse_policy("priority_classes: {urgent: {value_per_hour: 99}, low: {burst: never}}")
    assert policy.priority_classes["urgent"].rank == 300
    assert policy.priority_classes["urgent"].value_per_hour == Decimal(99)
    assert policy.priority_classes["low"].burst is BurstRule.NEVER
    assert list(policy.classes_by_rank) == ["low", "normal", "high", "urgent"]


def test_a_strategy_by_name_alone_brings_its_settings():
    fifo = parse_policy("scheduling: fifo")
    assert not fifo.burst.enabled
    assert not fifo.preemption.enabled
    assert fifo.aging.per_hour == 0
    assert fifo == parse_policy("scheduling: {strategy: fifo}")
    assert fifo == PolicyDocument(scheduling=Scheduling(strategy=Strategy.FIFO))


def test_what_is_written_goes_before_the_preset():
    policy = parse_policy("scheduling: fifo\nburst: {enabled: true}\naging: {max: 5}\n")
    assert policy.burst.enabled
    assert (policy.aging.per_hour, policy.aging.max) == (0, 5)
    assert not policy.preemption.enabled


def test_a_section_with_nothing_under_it_says_nothing():
    assert parse_policy("burst:\nteams:\n") == PolicyDocument()
    assert parse_policy("") == parse_policy("# nothing\n") == PolicyDocument()


def test_a_team_that_is_not_named_is_the_default_one():
    policy = parse_policy("teams: {default: {weight: 3}, red: {weight: 5}}")
    assert policy.team("red").weight == 5
    assert policy.team("blue").weight == 3
    assert PolicyDocument().team("blue") == Team()


def test_the_top_rank_is_above_what_class_and_age_can_give():
    policy = parse_policy("priority_classes: {vip: {rank: 900}}\naging: {max: 50}")
    assert policy.top_rank == 951


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_printed_preset_reads_back_as_the_strategy(strategy: Strategy):
    assert parse_policy(preset(strategy)) == parse_policy(f"scheduling: {strategy}")


def test_a_document_written_out_whole_reads_back_as_itself():
    policy = parse_policy(
        """
        scheduling: best_fit
        teams: {red: {regions: ["no", "1e5"], guaranteed_gpus: 4}}
        budgets: [{name: all, limit_usd: 12.50, thresholds: [{at: 0.8, action: notify}]}]
        burst: {quiet_hours: [{start: 22:00, until: 06:00, days: [sat]}]}
        retire: {idle_after: 90}
        """
    )
    assert parse_policy(to_yaml(policy)) == policy
    assert policy.teams["red"].regions == ("no", "1e5")
    assert policy.placement.strategy is Spread.PACK
    assert policy.burst.quiet_hours[0].start == "22:00"


def test_json_is_read_too():
    assert parse_policy('{"burst": {"margin": 0.5}}').burst.margin == 0.5


def test_a_document_built_in_code_is_checked_like_a_written_one():
    with pytest.raises(ValidationError, match="there is no priority class 'hgih'"):
        PolicyDocument(teams={"red": Team(classes=("hgih",))})
    with pytest.raises(ValidationError):
        PolicyDocument.model_validate(["not", "a", "mapping"])


def test_the_schema_lets_an_editor_write_a_strategy_by_name_and_refine_a_class():
    schema = PolicyDocument.model_json_schema()
    name, section = schema["$defs"]["Scheduling"]["anyOf"]
    assert "fair_share" in name["enum"]
    assert "strategy" in section["properties"]
    assert "required" not in schema["$defs"]["PriorityClass"]
    assert schema["additionalProperties"] is False
