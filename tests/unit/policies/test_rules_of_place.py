"""May it burst, is spot good enough, which devices at home."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from hybrid.domain.ids import PoolName
from hybrid.domain.job_spec import Market
from hybrid.domain.pool_spec import BurstPool
from hybrid.domain.reasons import (
    CannotCheckpoint,
    InterruptedTooOften,
    KeptForOthers,
    MayNotLeave,
    MissesDeadline,
    NotAllowedThere,
    NoticeTooShort,
    NotWorthIt,
    PolicyCeiling,
    PoolCeiling,
    QuietTime,
    QuotaReached,
    Reason,
    SwitchedOff,
)
from policies import burst, placement, spot
from policies.document import PolicyDocument
from policies.loading import parse_policy
from tests.doubles.build import NOW, a_burst_pool, a_job, a_spec, an_offer

CLOUD = PoolName("cloud")
NOTHING = burst.Committed()


def may_burst(
    text: str = "", *, committed: burst.Committed = NOTHING, now: float = NOW, **fields: Any
) -> Reason | None:
    pool = a_burst_pool(**fields.pop("pool", {})).spec
    assert isinstance(pool, BurstPool)
    offer = an_offer(**fields.pop("offer", {}))
    machines = fields.pop("machines", None)
    job = a_job(spec=a_spec(**fields))
    return burst.refusal(
        job, offer, pool, parse_policy(text), committed, now=now, machines=machines
    )


def test_a_plain_job_may_burst_to_a_plain_offer():
    assert may_burst() is None


def test_who_says_that_a_job_may_not_leave_is_named():
    assert may_burst(where={"burst": "never"}) == MayNotLeave("the job")
    assert may_burst("priority_classes: {normal: {burst: never}}") == MayNotLeave(
        "priority class normal"
    )
    assert may_burst("burst: {enabled: false}") == SwitchedOff("burst")


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ({"pools": ["rack"]}, NotAllowedThere("pool", "cloud", "the job")),
        ({"providers": ["gcp"]}, NotAllowedThere("provider", "aws", "the job")),
        ({"regions": ["eu-west-1"]}, NotAllowedThere("region", "us-east-1", "the job")),
        ({"markets": ["on_demand"]}, NotAllowedThere("market", "spot", "the job")),
        (
            {"pools": ["cloud"], "providers": ["aws"], "regions": ["us-east-1"]},
            None,
        ),
    ],
)
def test_a_jobs_lists_are_kept(where: dict[str, Any], reason: Reason | None):
    assert may_burst(where=where) == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "teams: {red: {regions: [eu-west-1]}}",
            NotAllowedThere("region", "us-east-1", "team red"),
        ),
        ("teams: {red: {providers: [gcp]}}", NotAllowedThere("provider", "aws", "team red")),
        ("teams: {default: {providers: [gcp]}}", NotAllowedThere("provider", "aws", "team red")),
        ("teams: {blue: {providers: [gcp]}}", None),
        ("burst: {providers: [gcp]}", NotAllowedThere("provider", "aws", "the policy")),
        ("burst: {regions: [eu-west-1]}", NotAllowedThere("region", "us-east-1", "the policy")),
        ("burst: {markets: [on_demand]}", NotAllowedThere("market", "spot", "the policy")),
        ("burst: {markets: [spot], regions: [us-east-1]}", None),
    ],
)
def test_the_lists_of_team_and_policy_are_kept(text: str, reason: Reason | None):
    assert may_burst(text) == reason


def test_the_pools_ceiling_on_machines_counts_those_held_and_the_whole_gang():
    held = burst.Committed(machines_by_pool={CLOUD: 9, PoolName("other"): 50}, machines=59)
    assert may_burst(committed=held) is None
    assert may_burst(committed=held, resources={"nodes": 2}) == PoolCeiling("cloud", "10 machines")


def test_the_pools_ceiling_on_dollars_counts_price_ceilings():
    held = burst.Committed(micros_per_hour_by_pool={CLOUD: 98_800_000})
    assert may_burst(committed=held) is None
    over = burst.Committed(micros_per_hour_by_pool={CLOUD: 98_800_001})
    assert may_burst(committed=over) == PoolCeiling("cloud", "$100.00 an hour")


def test_the_policys_ceilings_hold_over_all_pools():
    text = "burst: {ceilings: {machines: 3, usd_per_hour: 10}}"
    assert may_burst(text, committed=burst.Committed(machines=2)) is None
    assert may_burst(text, committed=burst.Committed(machines=3)) == PolicyCeiling("3 machines")
    dear = burst.Committed(machines=1, micros_per_hour=8_800_001)
    assert may_burst(text, committed=dear) == PolicyCeiling("$10.00 an hour")


def test_a_quota_that_is_known_is_kept():
    assert may_burst(offer={"quota_left": 1}) is None
    offer = an_offer()
    assert may_burst(offer={"quota_left": 1}, resources={"nodes": 2}) == QuotaReached(offer.id)


def test_a_machine_held_already_passes_no_ceiling_and_no_quiet_hour():
    full = burst.Committed(machines_by_pool={CLOUD: 10})
    text = "burst: {quiet_hours: [{start: '00:00', until: '23:59'}]}"
    now = at(2027, 3, 1, 12)
    assert may_burst(text, committed=full, now=now, machines=0) is None
    assert may_burst(text, committed=full, now=now, machines=0, where={"burst": "never"})


def at(*when: int, zone: str = "UTC") -> float:
    year, month, day, hour, *rest = when
    minute = rest[0] if rest else 0
    tz = UTC if zone == "UTC" else ZoneInfo(zone)
    return datetime(year, month, day, hour, minute, tzinfo=tz).timestamp()


NIGHTS = "burst: {quiet_hours: [{start: 22:00, until: 06:00, days: [fri], timezone: Europe/Paris}]}"


@pytest.mark.parametrize(
    ("when", "quiet"),
    [
        ((2027, 7, 2, 21, 59), False),  # Friday
        ((2027, 7, 2, 22, 0), True),
        ((2027, 7, 3, 5, 59), True),  # the night belongs to Friday
        ((2027, 7, 3, 6, 0), False),
        ((2027, 7, 3, 22, 30), False),  # Saturday night
        ((2027, 7, 2, 3, 0), False),  # Thursday's night
    ],
)
def test_a_quiet_night_belongs_to_the_day_it_starts_on_by_the_clock_there(
    when: tuple[int, ...], quiet: bool
):
    now = at(*when, zone="Europe/Paris")
    expected = QuietTime("22:00", "06:00", "Europe/Paris") if quiet else None
    assert burst.closed(parse_policy(NIGHTS), now) == expected
    assert may_burst(NIGHTS, now=now) == expected


def test_quiet_hours_within_a_day_and_on_every_day():
    policy = parse_policy("burst: {quiet_hours: [{start: 09:00, until: 17:00}]}")
    assert burst.closed(policy, at(2027, 7, 3, 8, 59)) is None
    assert burst.closed(policy, at(2027, 7, 3, 9)) is not None
    assert burst.closed(policy, at(2027, 7, 4, 16, 59)) is not None
    assert burst.closed(policy, at(2027, 7, 4, 17)) is None


def test_quiet_hours_follow_the_wall_clock_through_a_change_to_summer_time():
    policy = parse_policy(
        "burst: {quiet_hours: [{start: 01:00, until: 04:00, timezone: Europe/Paris}]}"
    )
    # 28 March 2027: the clock goes from 02:00 to 03:00 at 01:00 UTC
    assert burst.closed(policy, at(2027, 3, 28, 0, 30)) is not None
    assert burst.closed(policy, at(2027, 3, 28, 1, 59)) is not None
    assert burst.closed(policy, at(2027, 3, 28, 2, 0)) is None


def test_the_margin_is_the_larger_of_the_two():
    policy = parse_policy("burst: {margin_usd: 0.10, margin: 0.05}")
    assert burst.margin_micros(1_000_000, policy) == 100_000
    assert burst.margin_micros(10_000_000, policy) == 500_000
    assert burst.margin_micros(-5, policy) == 100_000


def test_a_gain_must_exceed_the_margin():
    policy = parse_policy("burst: {margin_usd: 0.10, margin: 0}")
    assert burst.gain_refusal(100_001, 0, policy, "waiting") is None
    assert burst.gain_refusal(100_000, 0, policy, "waiting") == NotWorthIt(-100_000, "waiting")
    assert str(burst.gain_refusal(-2_000_000, 0, policy, "waiting")) == "$2.00 dearer than waiting"


def good_enough(text: str = "", checkpoint_s: float = 30, **fields: Any) -> Reason | None:
    offer = {"notice_s": 120.0, "interruptions_per_hour": 0.1, **fields.pop("offer", {})}
    spec = a_spec(**{"checkpoint": {"enabled": True}, **fields})
    return spot.refusal(a_job(spec=spec), an_offer(**offer), checkpoint_s, parse_policy(text))


def test_spot_is_good_enough_for_a_job_that_saves_its_work_in_time():
    assert good_enough() is None


def test_spot_is_refused_when_the_notice_is_shorter_than_a_checkpoint():
    assert good_enough(checkpoint_s=115) is None
    assert good_enough(checkpoint_s=116) == NoticeTooShort(120, 121)
    assert good_enough("spot: {notice_margin: 0}", checkpoint_s=120) is None


def test_spot_is_refused_to_a_job_that_would_lose_its_work():
    never = {"checkpoint": {"enabled": False}}
    assert good_enough(**never) == CannotCheckpoint()
    assert good_enough(**never, retries={"on_spot_restart": True}, checkpoint_s=999) is None


def test_interruptions_count_over_all_machines_of_a_gang():
    assert good_enough(resources={"nodes": 5}) is None
    assert good_enough(resources={"nodes": 6}) == InterruptedTooOften(pytest.approx(0.6))
    assert good_enough("spot: {max_interruptions_per_hour: 1}", resources={"nodes": 6}) is None


def test_the_rules_of_spot_say_nothing_of_on_demand():
    offer = {"market": Market.ON_DEMAND, "notice_s": 0.0}
    assert good_enough(offer=offer, checkpoint={"enabled": False}) is None


def test_a_chance_of_missing_the_deadline_is_tolerated_as_far_as_the_policy_says():
    policy = PolicyDocument()
    assert spot.deadline_refusal(-60, 0.05, policy) is None
    assert spot.deadline_refusal(-60, 0.06, policy) == MissesDeadline(-60, 0.06)
    assert spot.deadline_refusal(1, 0.0, policy) == MissesDeadline(1, 0.0)


def test_a_job_that_names_pools_runs_in_no_other_at_home():
    job = a_job(spec=a_spec(where={"pools": ["lab"]}))
    policy = PolicyDocument()
    assert placement.refusal(job, "lab", "t4", policy) is None
    assert placement.refusal(job, "rack", "t4", policy) == NotAllowedThere(
        "pool", "rack", "the job"
    )


def test_lists_of_clouds_keep_no_job_from_home():
    job = a_job(spec=a_spec(where={"providers": ["aws"], "regions": ["eu-west-1"]}))
    assert placement.refusal(job, "rack", "t4", PolicyDocument()) is None


RESERVED = """
placement:
  reserved:
  - {models: [h100], teams: [blue]}
  - {models: [h100-sxm5-80gb], classes: [urgent]}
"""


def test_reserved_cards_are_for_those_they_are_kept_for():
    policy = parse_policy(RESERVED)
    card = "h100-sxm5-80gb"
    assert placement.reserved(a_job(), card, policy) == KeptForOthers(
        card, ("priority urgent", "team blue")
    )
    assert placement.reserved(a_job(team="blue"), card, policy) is None
    urgent = a_job(spec=a_spec(priority="urgent"))
    assert placement.reserved(urgent, card, policy) is None
    assert placement.reserved(urgent, "h100-pcie-80gb", policy) is not None
    assert placement.reserved(a_job(), "a100-sxm4-80gb", policy) is None


def test_a_cpu_job_takes_no_reserved_card():
    assert placement.refusal(a_job(), "rack", "", parse_policy(RESERVED)) is None


def test_only_jobs_bound_by_latency_prefer_efficient_cards():
    latency = a_job(spec=a_spec(profile="latency"))
    assert placement.prefers_efficient(latency, PolicyDocument())
    assert not placement.prefers_efficient(a_job(), PolicyDocument())
    off = parse_policy("placement: {prefer_efficient: false}")
    assert not placement.prefers_efficient(latency, off)
