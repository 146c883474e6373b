"""Capacity, quotas and faults: the most specific rule wins, and what is used up is gone."""

from __future__ import annotations

from collections import Counter

import pytest
from pydantic import ValidationError

from providers.sandbox.capacity import CapacityBook, QuotaBook, Stock
from providers.sandbox.catalogue import describe, quota_group
from providers.sandbox.config import (
    CapacityRule,
    FaultRule,
    Market,
    QuotaRule,
    SandboxConfig,
    load_config,
)
from providers.sandbox.rules import FaultBook, http_status

STOCK = Stock("us-east-1a", "g5.xlarge", Market.SPOT)


def rule(machines: int, **scope: object) -> CapacityRule:
    return CapacityRule.model_validate({"machines": machines, **scope})


def test_without_rules_capacity_has_no_limit() -> None:
    assert CapacityBook().free(STOCK, Counter()) is None


def test_machines_that_run_take_from_the_limit() -> None:
    book = CapacityBook([rule(2, zone="us-east-1a")])
    assert book.free(STOCK, Counter({STOCK: 1})) == 1


def test_a_limit_below_what_runs_leaves_nothing_and_takes_nothing_back() -> None:
    book = CapacityBook([rule(1)])
    assert book.free(STOCK, Counter({STOCK: 3})) == 0


def test_the_more_specific_rule_wins_whichever_came_first() -> None:
    book = CapacityBook([rule(5, zone="us-east-1a", machine_type="g5.xlarge"), rule(0)])
    assert book.limit(STOCK) == 5
    assert book.limit(Stock("us-east-1b", "g5.xlarge", Market.SPOT)) == 0


def test_among_equally_specific_rules_the_latest_wins() -> None:
    book = CapacityBook([rule(5, zone="us-east-1a"), rule(2, zone="us-east-1a")])
    assert book.limit(STOCK) == 2
    assert len(book.rules()) == 1


def test_a_rule_for_another_market_says_nothing() -> None:
    assert CapacityBook([rule(0, market="on_demand")]).limit(STOCK) is None


def test_clearing_a_scope_brings_the_wider_rule_back() -> None:
    book = CapacityBook([rule(3), rule(0, zone="us-east-1a")])
    book.clear("us-east-1a", None, None)
    assert book.limit(STOCK) == 3


@pytest.mark.parametrize(
    ("machine_type", "group"),
    [
        ("g5.xlarge", "G and VT"),
        ("g4dn.12xlarge", "G and VT"),
        ("vt1.3xlarge", "G and VT"),
        ("p5.48xlarge", "P"),
        ("p6-b200.48xlarge", "P"),
        ("inf2.xlarge", "Inf"),
        ("trn1.2xlarge", "Trn"),
        ("m5.large", "Standard"),
    ],
)
def test_types_count_against_the_quota_of_their_group(machine_type: str, group: str) -> None:
    assert quota_group(machine_type) == group


def test_quotas_count_vcpus_per_group_and_market() -> None:
    book = QuotaBook([QuotaRule(group="G and VT", market=Market.SPOT, vcpus=8)])
    used = Counter({("G and VT", Market.SPOT): 4})
    assert book.left("g5.xlarge", Market.SPOT, used) == 4
    assert book.left("g5.xlarge", Market.ON_DEMAND, used) is None
    assert book.left("p5.48xlarge", Market.SPOT, used) is None


def test_a_type_is_described_with_its_devices_as_a_node_declares_them() -> None:
    known = describe("g5.12xlarge")
    assert known is not None
    assert (known.vcpus, known.gpu_count, known.virtual_gpus) == (48, 4, "a10g:4:pcie")


def test_a_type_without_gpus_declares_none() -> None:
    known = describe("m5.large")
    assert known is not None
    assert (known.vcpus, known.virtual_gpus) == (2, "")


def test_a_type_that_ec2_does_not_list_is_unknown() -> None:
    assert describe("g99.huge") is None


def test_a_fault_strikes_as_often_as_it_says() -> None:
    book = FaultBook([FaultRule(action="RunInstances", code="InternalError", times=2)])
    struck = [book.strike("RunInstances", {}) is not None for _ in range(3)]
    assert struck == [True, True, False]
    assert (book.armed()[0].left, book.armed()[0].hits) == (0, 2)


def test_a_fault_without_count_strikes_until_removed() -> None:
    book = FaultBook()
    fault_id = book.arm(FaultRule(action="*", code="RequestLimitExceeded", times=None))
    assert all(book.strike("DescribeInstances", {}) for _ in range(20))
    assert book.disarm(fault_id) == 1
    assert book.strike("DescribeInstances", {}) is None


def test_a_fault_strikes_only_calls_with_the_parameters_it_names() -> None:
    book = FaultBook([FaultRule(action="RunInstances", match={"zone": "us-east-1a"}, code="X")])
    assert book.strike("RunInstances", {"zone": "us-east-1b"}) is None
    assert book.strike("TerminateInstances", {"zone": "us-east-1a"}) is None
    assert book.strike("RunInstances", {"zone": "us-east-1a"}) is not None


def test_the_first_armed_fault_that_matches_strikes() -> None:
    book = FaultBook([FaultRule(action="*", code="First"), FaultRule(action="*", code="Second")])
    struck = [book.strike("X", {}), book.strike("X", {})]
    assert [each.code for each in struck if each] == ["First", "Second"]


def test_a_seeded_fault_strikes_the_same_calls_every_time() -> None:
    def struck(seed: int) -> list[bool]:
        rules = [FaultRule(action="*", code="X", times=None, probability=0.5)]
        book = FaultBook(rules, seed=seed)
        return [book.strike("X", {}) is not None for _ in range(50)]

    assert struck(7) == struck(7)
    assert struck(7) != struck(8)
    assert 10 < sum(struck(7)) < 40


def test_every_fault_can_be_removed_at_once() -> None:
    book = FaultBook([FaultRule(action="A", code="X"), FaultRule(action="B", code="X")])
    assert book.disarm() == 2
    assert book.armed() == []


def test_capacity_errors_come_as_ec2_sends_them() -> None:
    assert http_status("InsufficientInstanceCapacity") == 500
    assert http_status("RequestLimitExceeded") == 503
    assert http_status("VcpuLimitExceeded") == 400


def test_a_lost_answer_carries_no_error_code() -> None:
    with pytest.raises(ValidationError, match="one or the other"):
        FaultRule(action="RunInstances", code="X", execute_then_lose=True)


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"zones": ["eu-west-1a"]}, "not in region"),
        ({"zones": []}, "at least one"),
        ({"zones": ["us-east-1a", "us-east-1a"]}, "each of them once"),
        ({"machine_types": ["g99.huge"]}, "has no price"),
        (
            {
                "spot_prices": [
                    {"zone": "us-east-1f", "machine_type": "g5.xlarge", "usd_per_hour": 1}
                ]
            },
            "not sold",
        ),
        ({"boot": 3}, "Extra inputs"),
        ({"boot_s": -1}, "greater than or equal"),
    ],
)
def test_a_cloud_that_contradicts_itself_is_refused(
    document: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ValidationError, match=complaint):
        SandboxConfig.model_validate(document)


def test_a_price_of_ones_own_puts_another_type_on_sale() -> None:
    config = SandboxConfig.model_validate(
        {"machine_types": ["m5.large"], "on_demand_usd_per_hour": {"m5.large": "0.096"}}
    )
    assert str(config.price_of("m5.large")) == "0.096"


def test_a_config_file_is_yaml_and_errors_name_it(tmp_path) -> None:
    good = tmp_path / "cloud.yaml"
    good.write_text("region: eu-west-1\nzones: [eu-west-1a]\n")
    assert load_config(good).zones == ("eu-west-1a",)
    bad = tmp_path / "bad.yaml"
    bad.write_text("a: [")
    with pytest.raises(ValueError, match=r"bad\.yaml is not YAML"):
        load_config(bad)
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    assert load_config(empty) == SandboxConfig()
