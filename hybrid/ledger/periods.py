"""When a budget's period began, in its own time zone.

A day begins at the first instant that has its date: where clocks are put forward at midnight that
is 01:00 by the wall clock. Days of 23 and 25 hours follow from counting by dates and not by hours.
Weeks begin on Monday.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from hybrid.domain.budget import Budget, Period

DAY_S = 86_400.0


class UnknownTimezone(ValueError):
    """A budget names a time zone that does not exist (or that this machine does not know)."""


def zone(name: str) -> tzinfo:
    """The zone of that name; raises UnknownTimezone. UTC needs no zone files."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as problem:
        raise UnknownTimezone(f"{name!r} is not a time zone such as Europe/Berlin") from problem


def period_start_at(budget: Budget, now: float) -> float:
    """When the period began that ``now`` lies in (0 for a lifetime)."""
    match budget.period:
        case Period.LIFETIME:
            return 0.0
        case Period.ROLLING:
            return max(0.0, now - budget.rolling_days * DAY_S)
        case _:
            where = zone(budget.timezone)
            return _midnight(_first_day(budget.period, _date(now, where)), where)


def next_period_at(budget: Budget, now: float) -> float | None:
    """When the next calendar period begins: None where there is none (rolling, lifetime)."""
    if budget.period in (Period.LIFETIME, Period.ROLLING):
        return None
    where = zone(budget.timezone)
    first = _first_day(budget.period, _date(now, where))
    match budget.period:
        case Period.DAY:
            following = first + timedelta(days=1)
        case Period.WEEK:
            following = first + timedelta(days=7)
        case _:
            following = (first + timedelta(days=31)).replace(day=1)
    return _midnight(following, where)


def _date(now: float, where: tzinfo) -> date:
    return datetime.fromtimestamp(now, where).date()


def _first_day(period: Period, day: date) -> date:
    match period:
        case Period.DAY:
            return day
        case Period.WEEK:
            return day - timedelta(days=day.weekday())
        case _:
            return day.replace(day=1)


def _midnight(day: date, where: tzinfo) -> float:
    # fold=0 takes the first of two midnights, and in a gap the offset before it, which is the
    # instant of the jump itself: both are the first instant that has this date
    return datetime(day.year, day.month, day.day, tzinfo=where).timestamp()
