"""The cloud itself: instances that begin, run, are taken back and end, in the cloud's own time.

Everything here runs under one lock, because moto's EC2 is not thread-safe and because a launch must
see the capacity that the launch before it left. Ending a machine's processes takes a while and
happens outside the lock, on the timeline.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from providers.sandbox.capacity import CapacityBook, QuotaBook
from providers.sandbox.config import Market, SandboxConfig, SpotPrice
from providers.sandbox.instances import (
    ENDED,
    HOST_FAILED,
    LIVE,
    SELF_TERMINATED,
    SPOT_TAKEN,
    USER_TERMINATED,
    EndReason,
    Instance,
    InstanceBook,
    InstanceState,
)
from providers.sandbox.launch import LaunchDesk, LaunchOrder, Refused
from providers.sandbox.moto_ec2 import MotoEc2, stamp_launch, user_data_of
from providers.sandbox.prices import PriceBook
from providers.sandbox.rules import FaultBook
from providers.sandbox.timeline import Timeline

Clock = Callable[[], float]

INTERRUPTION = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"


class Machines(Protocol):
    """What acts as the machines: it starts and cuts them, and says when one died by itself."""

    def boot(self, instance: Instance, on_death: Callable[[], None]) -> None: ...

    def cut(self, instance_id: str) -> None: ...


class UnknownInstance(Exception):
    """There is no such instance."""


class WrongState(Exception):
    """The instance exists but cannot do this now; the message says why."""


class CloudCore:
    """State and rules of one sandbox cloud. ``machines`` None: instances without processes."""

    def __init__(
        self,
        config: SandboxConfig,
        account_id: str,
        machines: Machines | None,
        clock: Clock = time.time,
    ) -> None:
        self.config = config
        self.account_id = account_id
        self._clock = clock
        self._machines = machines
        self.lock = threading.RLock()
        self.started_at = self.now()
        self.ec2 = MotoEc2(account_id, config.region)
        known = self.ec2.subnets()
        missing = [zone for zone in config.zones if zone not in known]
        if missing:
            raise ValueError(f"{config.region} has no zone {', '.join(missing)}")
        self.subnets = {zone: known[zone] for zone in config.zones}
        self.ec2.register_image(config.image_id, "hybrid-sandbox-node")
        self.instances = InstanceBook()
        self.capacity = CapacityBook(config.capacities)
        self.quotas = QuotaBook(config.quotas)
        self.prices = PriceBook(config, self.started_at)
        self.faults = FaultBook(config.faults, seed=config.seed)
        self.desk = LaunchDesk(
            config, self.ec2, self.instances, self.capacity, self.quotas, self.prices
        )
        self.calls: Counter[str] = Counter()
        self._timeline = Timeline("sandbox-timeline")

    def now(self) -> float:
        """The cloud's clock, seconds since the Unix epoch."""
        return self._clock() + self.config.clock_skew_s

    def start(self) -> None:
        self._timeline.start()
        self._watch_prices(self.config.spot_prices)

    def close(self) -> None:
        """End every machine at once and stop the cloud's time."""
        self._timeline.close()
        for instance in self.instances:
            if instance.state is InstanceState.TERMINATED:
                continue
            with self.lock:
                self.instances.end(instance, USER_TERMINATED, self.now())
            self._finish(instance)
        self.ec2.forget()

    # -- what API calls do ------------------------------------------------------------------

    def launched(
        self, order: LaunchOrder, zone: str, token: str, created: Sequence[Any]
    ) -> list[Instance]:
        """Enter what moto just created. Called under the lock."""
        at = self.now()
        entered = []
        for moto_instance in created:
            instance = Instance(
                instance_id=moto_instance.id,
                machine_type=order.machine_type.name,
                vcpus=order.machine_type.vcpus,
                zone=zone,
                market=order.market,
                token=token,
                launched_at=at,
                visible_at=at + self.config.listing_lag_s,
                user_data=user_data_of(moto_instance),
                max_price_micros=order.max_price_micros,
                group=order.group,
                moto=moto_instance,
            )
            stamp_launch(moto_instance, at=at, state="pending", spot=order.market is Market.SPOT)
            self.instances.begin(instance, at)
            self._run_up(instance)
            entered.append(instance)
        return entered

    def terminate(
        self, instance_ids: Iterable[str], reason: EndReason = USER_TERMINATED
    ) -> list[tuple[str, str, str]]:
        """End instances; returns (id, state before, state now). Raises ``UnknownInstance``."""
        with self.lock:
            return [
                (instance.instance_id, str(instance.state), str(self._end(instance, reason)))
                for instance in self._all(instance_ids)
            ]

    def stop(self, instance_ids: Iterable[str]) -> list[tuple[str, str, str]]:
        """Stop instances without ending them. Raises ``UnknownInstance``, ``WrongState``."""
        changes = []
        with self.lock:
            for instance in self._all(instance_ids):
                if instance.state in ENDED:
                    raise WrongState(f"{instance.instance_id} is {instance.state}")
                before = str(instance.state)
                self._stop(instance, USER_TERMINATED)
                changes.append((instance.instance_id, before, str(instance.state)))
        return changes

    def start_again(self, instance_ids: Iterable[str]) -> list[tuple[str, str, str]]:
        """Start stopped instances. Raises ``UnknownInstance``, ``WrongState``, ``Refused``."""
        changes = []
        with self.lock:
            for instance in self._all(instance_ids):
                before = str(instance.state)
                if instance.state is InstanceState.STOPPED:
                    free = self.capacity.free(instance.stock, self.instances.held)
                    if free == 0:
                        raise Refused("InsufficientInstanceCapacity", "Insufficient capacity.")
                    self.instances.begin(instance, self.now())
                    self._run_up(instance)
                elif instance.state not in LIVE:
                    raise WrongState(f"{instance.instance_id} is {instance.state}")
                changes.append((instance.instance_id, before, str(instance.state)))
        return changes

    # -- what happens to machines -----------------------------------------------------------

    def interrupt(self, instance_id: str, notice_s: float | None = None) -> float:
        """Take a spot machine back after a notice; returns when it ends, by the cloud's clock.

        A second interruption of the same machine can only bring the end forward. Raises
        ``UnknownInstance``, and ``WrongState`` for machines that are not live spot machines.
        """
        with self.lock:
            instance = self._one(instance_id)
            if instance.market is not Market.SPOT:
                raise WrongState(f"{instance_id} is on demand: the cloud does not take it back")
            if instance.state not in LIVE:
                raise WrongState(f"{instance_id} is {instance.state}")
            notice_s = self.config.spot_notice_s if notice_s is None else notice_s
            end_at = self.now() + notice_s
            if instance.interruption_at is None or end_at < instance.interruption_at:
                instance.notice_at = self.now()
                instance.interruption_at = end_at
                detail = {"instance-action": "terminate"}
                self.ec2.emit(INTERRUPTION, instance_id, detail, instance.notice_at)
                self._timeline.after(notice_s, partial(self._take_back, instance, end_at))
            return instance.interruption_at

    def recommend_rebalance(self, instance_id: str) -> float:
        """Arm the rebalance recommendation of a live spot machine; returns its instant."""
        with self.lock:
            instance = self._one(instance_id)
            if instance.market is not Market.SPOT or instance.state not in LIVE:
                raise WrongState(f"{instance_id} is not a live spot machine")
            instance.rebalance_at = self.now()
            self.ec2.emit(REBALANCE, instance_id, {}, instance.rebalance_at)
            return instance.rebalance_at

    def power_off(self, instance_id: str) -> str:
        """The machine switches itself off: it stops or ends, as its shutdown behaviour says."""
        with self.lock:
            instance = self._one(instance_id)
            if instance.shutdown_behaviour == "terminate":
                return str(self._end(instance, SELF_TERMINATED))
            self._stop(instance, SELF_TERMINATED)
            return str(instance.state)

    def script_spot_prices(self, prices: Sequence[SpotPrice]) -> None:
        """Add steps to the spot price series; machines whose ceiling is passed are taken back."""
        with self.lock:
            self.prices.script(prices)
        self._watch_prices(prices)

    def one(self, instance_id: str) -> Instance:
        """The instance. Raises ``UnknownInstance``."""
        with self.lock:
            return self._one(instance_id)

    # -- inside -----------------------------------------------------------------------------

    def _one(self, instance_id: str) -> Instance:
        instance = self.instances.get(instance_id)
        if instance is None:
            raise UnknownInstance(instance_id)
        return instance

    def _all(self, instance_ids: Iterable[str]) -> list[Instance]:
        # all or none: EC2 checks every id before it acts on the first
        return [self._one(instance_id) for instance_id in instance_ids]

    def _run_up(self, instance: Instance) -> None:
        turn = instance.starts
        if self.config.pending_s > 0:
            self._timeline.after(self.config.pending_s, partial(self._run, instance, turn))
        else:
            self._run(instance, turn)

    def _run(self, instance: Instance, turn: int) -> None:
        with self.lock:
            if instance.starts != turn or instance.state is not InstanceState.PENDING:
                return
            instance.show(InstanceState.RUNNING)
        if self._machines is not None:
            self._timeline.after(self.config.boot_s, partial(self._boot, instance, turn))

    def _boot(self, instance: Instance, turn: int) -> None:
        with self.lock:
            if instance.starts != turn or instance.state is not InstanceState.RUNNING:
                return
            instance.booted_at = self.now()
        if self._machines is not None:
            self._machines.boot(instance, partial(self._died, instance, turn))

    def _died(self, instance: Instance, turn: int) -> None:
        with self.lock:
            if instance.starts == turn and instance.state in LIVE:
                self._end(instance, HOST_FAILED)

    def _end(self, instance: Instance, reason: EndReason) -> InstanceState:
        if self.instances.end(instance, reason, self.now()):
            if self._machines is None and self.config.shutting_down_s == 0:
                shown = instance.state
                self.instances.finish(instance)
                return shown
            self._timeline.after(self.config.shutting_down_s, partial(self._finish, instance))
        return instance.state

    def _finish(self, instance: Instance) -> None:
        # terminated is said only once nothing of the machine is left
        if self._machines is not None:
            self._machines.cut(instance.instance_id)
        with self.lock:
            self.instances.finish(instance)

    def _stop(self, instance: Instance, reason: EndReason) -> None:
        if self.instances.stop(instance, reason, self.now()):
            self._timeline.after(0.0, partial(self._stopped, instance, reason))

    def _stopped(self, instance: Instance, reason: EndReason) -> None:
        if self._machines is not None:
            self._machines.cut(instance.instance_id)
        with self.lock:
            if instance.state is InstanceState.STOPPING:
                instance.show(InstanceState.STOPPED, reason)

    def _take_back(self, instance: Instance, end_at: float) -> None:
        with self.lock:
            if instance.interruption_at == end_at and instance.state in LIVE:
                self._end(instance, SPOT_TAKEN)

    def _watch_prices(self, prices: Sequence[SpotPrice]) -> None:
        for at_s in sorted({price.at_s for price in prices}):
            due_s = self.started_at + at_s - self.now()
            self._timeline.after(due_s, self._enforce_price_ceilings)

    def _enforce_price_ceilings(self) -> None:
        with self.lock:
            for instance in self.instances.live():
                if instance.market is not Market.SPOT or instance.max_price_micros is None:
                    continue
                price = self.prices.spot_micros(instance.zone, instance.machine_type, self.now())
                if price > instance.max_price_micros and instance.interruption_at is None:
                    self.interrupt(instance.instance_id)
