"""When periods begin, by the wall clock of a budget's own time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid.domain.budget import Budget, Period
from hybrid.ledger.periods import UnknownTimezone, next_period_at, period_start_at, zone

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "America/Sao_Paulo")


def a_budget(period: Period, timezone: str = "UTC", **fields: object) -> Budget:
    return Budget(name="b", period=period, timezone=timezone, limit_usd=1, **fields)


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("period", "timezone", "now", "start", "end"),
    [
        (Period.DAY, "UTC", "2026-05-14T23:59:59", "2026-05-14T00:00", "2026-05-15T00:00"),
        (Period.DAY, "UTC", "2026-05-15T00:00", "2026-05-15T00:00", "2026-05-16T00:00"),
        (Period.WEEK, "UTC", "2026-05-14T12:00", "2026-05-11T00:00", "2026-05-18T00:00"),
        (Period.WEEK, "UTC", "2026-05-11T00:00", "2026-05-11T00:00", "2026-05-18T00:00"),
        (Period.MONTH, "UTC", "2026-12-31T12:00", "2026-12-01T00:00", "2027-01-01T00:00"),
        (Period.MONTH, "UTC", "2026-01-31T12:00", "2026-01-01T00:00", "2026-02-01T00:00"),
        (Period.MONTH, "UTC", "2028-02-29T12:00", "2028-02-01T00:00", "2028-03-01T00:00"),
        # a day of its own zone begins elsewhere in UTC
        (Period.DAY, "Asia/Kathmandu", "2026-05-14T18:14", "2026-05-13T18:15", "2026-05-14T18:15"),
        (Period.DAY, "Asia/Kathmandu", "2026-05-14T18:15", "2026-05-14T18:15", "2026-05-15T18:15"),
        # 29 March 2026 has 23 hours in Berlin, 25 October has 25
        (Period.DAY, "Europe/Berlin", "2026-03-29T12:00", "2026-03-28T23:00", "2026-03-29T22:00"),
        (Period.DAY, "Europe/Berlin", "2026-10-25T12:00", "2026-10-24T22:00", "2026-10-25T23:00"),
        (Period.MONTH, "Europe/Berlin", "2026-10-31T12:00", "2026-09-30T22:00", "2026-10-31T23:00"),
        # clocks went forward at midnight: 4 November 2018 began at 01:00 in Sao Paulo
        (
            Period.DAY,
            "America/Sao_Paulo",
            "2018-11-04T03:00",
            "2018-11-04T03:00",
            "2018-11-05T02:00",
        ),
        (
            Period.DAY,
            "America/Sao_Paulo",
            "2018-11-04T02:59",
            "2018-11-03T03:00",
            "2018-11-04T03:00",
        ),
        # clocks went back at midnight: 17 February 2018 had its last hour twice
        (
            Period.DAY,
            "America/Sao_Paulo",
            "2018-02-18T02:59",
            "2018-02-17T02:00",
            "2018-02-18T03:00",
        ),
        # clocks went back at 01:00 to midnight: 1 November 2015 in Havana began at the first
        (Period.DAY, "America/Havana", "2015-11-01T05:30", "2015-11-01T04:00", "2015-11-02T05:00"),
    ],
)
def test_calendar_periods_begin_at_midnight_of_their_zone(
    period: Period, timezone: str, now: str, start: str, end: str
) -> None:
    budget = a_budget(period, timezone)
    assert period_start_at(budget, utc(now)) == utc(start)
    assert next_period_at(budget, utc(now)) == utc(end)


def test_a_rolling_period_begins_so_many_days_ago() -> None:
    budget = a_budget(Period.ROLLING, rolling_days=7)
    now = utc("2026-05-14T12:34:56")
    assert period_start_at(budget, now) == utc("2026-05-07T12:34:56")
    assert next_period_at(budget, now) is None


def test_a_rolling_period_does_not_begin_before_time() -> None:
    assert period_start_at(a_budget(Period.ROLLING, rolling_days=7), 60.0) == 0.0


def test_a_lifetime_has_always_been() -> None:
    budget = a_budget(Period.LIFETIME)
    assert (period_start_at(budget, 1e9), next_period_at(budget, 1e9)) == (0.0, None)


@pytest.mark.parametrize("name", ["Mars/Olympus_Mons", "", "../../etc/passwd", "/etc/localtime"])
def test_a_zone_that_does_not_exist_is_named(name: str) -> None:
    with pytest.raises(UnknownTimezone, match="not a time zone"):
        zone(name)


def test_utc_needs_no_zone_files() -> None:
    assert zone("UTC") is UTC


@given(
    now=st.floats(min_value=0, max_value=utc("2037-01-01T00:00")),
    period=st.sampled_from((Period.DAY, Period.WEEK, Period.MONTH)),
    timezone=st.sampled_from(ZONES),
)
def test_periods_follow_each_other_without_gap_or_overlap(
    now: float, period: Period, timezone: str
) -> None:
    budget = a_budget(period, timezone)
    start, end = period_start_at(budget, now), next_period_at(budget, now)
    assert end is not None
    assert start <= now < end
    assert period_start_at(budget, start) == start
    assert period_start_at(budget, end) == end
    if start > 86_400:
        assert next_period_at(budget, start - 1) == start
    wall = datetime.fromtimestamp(start, ZoneInfo(timezone))
    before = datetime.fromtimestamp(start - 1, ZoneInfo(timezone))
    assert wall.date() == before.date() + timedelta(days=1)
