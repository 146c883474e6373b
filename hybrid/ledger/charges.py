"""What to hold before a machine is asked for, and what it cost once it has ended.

Clouds bill machines by the second, with a minimum of 60 s after launch (Amazon EC2, "Per-second
billing"; Google Compute Engine, "Billing of machine types"). Every amount is rounded up to the next
micro-dollar.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

from hybrid.domain.bill import LineKind
from hybrid.domain.money import MICROS_PER_USD, cost_micros

LAUNCH_SLACK_S = 60.0
"""Paid time between a hold and the moment from which the machine's lease is counted."""

MIN_BILLED_S = 60.0
"""A machine that came to be is billed for at least this long."""


@lru_cache(maxsize=16_384)  # hot: planning asks for each offer again and again
def hold_micros(
    ceiling_micros_per_hour: int,
    *,
    lease_s: float,
    end_tail_s: float,
    slack_s: float = LAUNCH_SLACK_S,
    disk_gib: float = 0.0,
    disk_usd_per_gib_hour: Decimal = Decimal(0),
    egress_gib: float = 0.0,
    egress_usd_per_gib: Decimal = Decimal(0),
) -> int:
    """The worst case of one machine for one lease, in micro-dollars.

    ``ceiling × (slack + lease + end tail) + disk + egress``: the price is the offer's ceiling, the
    time the longest the machine can live if nobody renews its lease, the disk is paid as long as
    the machine, and the egress is bounded by what may be brought back.
    """
    seconds = billed_s(slack_s + lease_s + end_tail_s)
    return (
        cost_micros(ceiling_micros_per_hour, seconds)
        + disk_micros(disk_gib, disk_usd_per_gib_hour, seconds)
        + egress_micros(egress_gib, egress_usd_per_gib)
    )


def renewal_micros(
    ceiling_micros_per_hour: int,
    *,
    lease_until: float,
    until: float,
    disk_gib: float = 0.0,
    disk_usd_per_gib_hour: Decimal = Decimal(0),
) -> int:
    """What must be held besides to keep a machine from ``lease_until`` to ``until``.

    The slack, the end tail and the egress are in the first hold and are not paid twice. 0 when
    the lease would not grow.
    """
    seconds = float(math.ceil(max(0.0, until - lease_until)))
    return cost_micros(ceiling_micros_per_hour, seconds) + disk_micros(
        disk_gib, disk_usd_per_gib_hour, seconds
    )


def billed_s(seconds: float) -> float:
    """The seconds a machine is billed for: whole ones, at least :data:`MIN_BILLED_S`."""
    return float(math.ceil(max(MIN_BILLED_S, seconds)))


def machine_charge_micros(
    price_micros_per_hour: int,
    *,
    launched_at: float,
    ended_at: float,
    steps: Sequence[tuple[float, int]] = (),
) -> int:
    """What a machine cost by its observed times (clocks may make them negative: then the minimum).

    ``steps`` are prices that came into force meanwhile, as (instant, micro-dollars an hour), oldest
    first: each second is paid at the price that was in force.
    """
    length_s = billed_s(ended_at - launched_at)
    total = Decimal(0)
    since_s, price = 0.0, price_micros_per_hour
    for at, following in steps:
        until_s = min(max(at - launched_at, since_s), length_s)
        total += price * (Decimal(repr(until_s)) - Decimal(repr(since_s)))
        since_s, price = until_s, following
    total += price * (Decimal(repr(length_s)) - Decimal(repr(since_s)))
    return int((total / 3600).to_integral_value(ROUND_CEILING))


def charge_lines(
    price_micros_per_hour: int,
    *,
    launched_at: float,
    ended_at: float,
    steps: Sequence[tuple[float, int]] = (),
    disk_gib: float = 0.0,
    disk_usd_per_gib_hour: Decimal = Decimal(0),
    free: bool = False,
) -> tuple[tuple[LineKind, int], ...]:
    """What a machine cost by its observed times, line by line: the machine, which is always there,
    and its disk. ``free``: its cloud asks nothing for the machine's time (disks are paid all the
    same). What it sent out cannot be observed from here; the bill says so.
    """
    machine = 0
    if not free:
        machine = machine_charge_micros(
            price_micros_per_hour, launched_at=launched_at, ended_at=ended_at, steps=steps
        )
    disk = disk_micros(disk_gib, disk_usd_per_gib_hour, billed_s(ended_at - launched_at))
    lines = ((LineKind.MACHINE, machine), (LineKind.DISK, disk))
    return tuple((kind, micros) for kind, micros in lines if micros or kind is LineKind.MACHINE)


def disk_micros(gib: float, usd_per_gib_hour: Decimal, seconds: float) -> int:
    """What a disk of ``gib`` costs for ``seconds``."""
    return _micros(Decimal(repr(gib)) * usd_per_gib_hour * Decimal(repr(seconds)) / 3600)


def egress_micros(gib: float, usd_per_gib: Decimal) -> int:
    """What ``gib`` leaving the cloud cost."""
    return _micros(Decimal(repr(gib)) * usd_per_gib)


def _micros(usd: Decimal) -> int:
    return int((usd * MICROS_PER_USD).to_integral_value(ROUND_CEILING))
