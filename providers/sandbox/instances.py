"""The cloud's instances: their states, their times, and what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from providers.sandbox.billing import BilledTime, bill
from providers.sandbox.capacity import Stock
from providers.sandbox.catalogue import quota_group
from providers.sandbox.config import Market
from providers.sandbox.moto_ec2 import release, set_state
from providers.sandbox.prices import PriceBook

FIRST_HOUR_S = 3600.0


class InstanceState(StrEnum):
    """EC2's instance states, as EC2 spells them."""

    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"
    STOPPING = "stopping"
    STOPPED = "stopped"


LIVE = frozenset({InstanceState.PENDING, InstanceState.RUNNING})
ENDED = frozenset({InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED})


@dataclass(frozen=True, slots=True)
class EndReason:
    """EC2's state reason: its code, its words, and who began it (empty: the machine itself)."""

    code: str
    message: str
    begun_by: str

    def transition(self, at: float | None) -> str:
        """``User initiated (2026-07-01 10:00:00 GMT)``; empty when begun inside, as in EC2."""
        if at is None or not self.begun_by:
            return ""
        return (
            f"{self.begun_by} initiated ({datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} GMT)"
        )


USER_TERMINATED = EndReason("Client.UserInitiatedShutdown", "User initiated shutdown", "User")
SELF_TERMINATED = EndReason("Client.InstanceInitiatedShutdown", "Instance initiated shutdown", "")
SPOT_TAKEN = EndReason("Server.SpotInstanceTermination", "Spot Instance termination", "Service")
HOST_FAILED = EndReason("Server.InternalError", "Internal error on the host", "Service")


@dataclass(slots=True)
class Instance:
    """One instance; guarded by the cloud's lock. Instants are by the cloud's clock.

    ``intervals`` are the times it ran, the last one open (None) while it runs. ``moto`` is moto's
    object, which shows the same state to API callers.
    """

    instance_id: str
    machine_type: str
    vcpus: int
    zone: str
    market: Market
    token: str
    launched_at: float
    visible_at: float
    user_data: bytes
    max_price_micros: int | None
    moto: Any
    state: InstanceState = InstanceState.PENDING
    intervals: list[tuple[float, float | None]] = field(default_factory=list)
    booted_at: float | None = None
    ended_at: float | None = None
    end_reason: EndReason | None = None
    notice_at: float | None = None
    interruption_at: float | None = None
    rebalance_at: float | None = None
    group: str = ""
    starts: int = 0

    @property
    def stock(self) -> Stock:
        return Stock(self.zone, self.machine_type, self.market)

    @property
    def shutdown_behaviour(self) -> str:
        """``stop`` or ``terminate``: what a power-off from inside means."""
        return str(self.moto.instance_initiated_shutdown_behavior)

    def show(self, state: InstanceState, reason: EndReason | None = None) -> None:
        """Take a state and show it through moto."""
        self.state = state
        if reason is None:
            set_state(self.moto, state)
        else:
            at = self.ended_at if self.ended_at is not None else self.intervals[-1][1]
            words = f"{reason.code}: {reason.message}"
            set_state(self.moto, state, reason.code, words, reason.transition(at))

    def close_interval(self, at: float) -> None:
        if self.intervals and self.intervals[-1][1] is None:
            self.intervals[-1] = (self.intervals[-1][0], at)


class InstanceBook:
    """Every instance that ever was, with running counts of what the live ones hold."""

    def __init__(self) -> None:
        self._by_id: dict[str, Instance] = {}
        self.held: Counter[Stock] = Counter()
        self.vcpus_used: Counter[tuple[str, Market]] = Counter()

    def __iter__(self) -> Iterator[Instance]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, instance_id: str) -> Instance | None:
        return self._by_id.get(instance_id)

    def live(self) -> list[Instance]:
        """Instances that hold capacity now."""
        return [instance for instance in self if instance.state in LIVE]

    def invisible(self, now: float, terminated_visible_s: float) -> list[str]:
        """What a listing does not show yet, or no longer."""
        return [
            instance.instance_id
            for instance in self
            if instance.visible_at > now
            or (
                instance.state is InstanceState.TERMINATED
                and instance.ended_at is not None
                and instance.ended_at + terminated_visible_s <= now
            )
        ]

    def begin(self, instance: Instance, at: float) -> None:
        """A machine starts, for the first time or again: it holds capacity and costs money."""
        self._by_id[instance.instance_id] = instance
        instance.starts += 1
        instance.intervals.append((at, None))
        self._count(instance, +1)
        instance.show(InstanceState.PENDING)

    def end(self, instance: Instance, reason: EndReason, at: float) -> bool:
        """Begin the end. Returns False when it had ended before; the first reason stands."""
        if instance.state in ENDED:
            self.reassert(instance)
            return False
        self._let_go(instance, at)
        instance.ended_at = at
        instance.end_reason = reason
        release(instance.moto)
        instance.show(InstanceState.SHUTTING_DOWN, reason)
        return True

    def finish(self, instance: Instance) -> None:
        """Nothing is left of the machine: shutting-down becomes terminated."""
        instance.show(InstanceState.TERMINATED, instance.end_reason)

    def stop(self, instance: Instance, reason: EndReason, at: float) -> bool:
        """Begin to stop a live machine; it keeps its disk and may start again."""
        if instance.state not in LIVE:
            return False
        self._let_go(instance, at)
        instance.show(InstanceState.STOPPING, reason)
        return True

    def reassert(self, instance: Instance) -> None:
        """moto rewrites state and reason on every call: put the truth back."""
        instance.show(instance.state, instance.end_reason)

    def _let_go(self, instance: Instance, at: float) -> None:
        if instance.state in LIVE:
            self._count(instance, -1)
        instance.close_interval(at)

    def _count(self, instance: Instance, by: int) -> None:
        self.held[instance.stock] += by
        self.vcpus_used[(quota_group(instance.machine_type), instance.market)] += (
            by * instance.vcpus
        )


def billed_time(
    instance: Instance, prices: PriceBook, now: float, *, waive_first_hour: bool
) -> tuple[BilledTime, bool]:
    """What an instance owes so far, and whether the cloud waives it."""
    steps_between: Callable[[float, float], Any] = lambda start, end: prices.steps(  # noqa: E731
        instance.zone, instance.machine_type, instance.market, start, end
    )
    intervals = [(start, now if end is None else end) for start, end in instance.intervals]
    owed = bill(intervals, steps_between)
    waived = waive_first_hour and instance.end_reason is SPOT_TAKEN and owed.seconds < FIRST_HOUR_S
    return owed, waived
