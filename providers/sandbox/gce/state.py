"""Instances and operations of one sandbox Compute Engine, in the cloud's own time.

Time passes when somebody looks: before every answer the cloud brings itself up to the present, so
that what is due has happened, in order, whoever asks first.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from providers.sandbox.capacity import CapacityBook, Stock
from providers.sandbox.config import Market
from providers.sandbox.gce.catalogue import GceType, quota_metric
from providers.sandbox.gce.config import GceConfig
from providers.sandbox.rules import FaultBook

ALL_REGIONS: Final = "GPUS_ALL_REGIONS"
PREEMPTED: Final = "compute.instances.preempted"


class Status(StrEnum):
    """Instance states, as Compute Engine spells them."""

    PROVISIONING = "PROVISIONING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    TERMINATED = "TERMINATED"


class Refused(Exception):
    """The API says no: HTTP status, and the reason as Google spells it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


@dataclass(frozen=True, slots=True)
class OperationError:
    """Why an operation failed. ``metric`` is the quota that was reached, lower case."""

    code: str
    message: str
    metric: str = ""


@dataclass(slots=True)
class GceInstance:
    """One instance; guarded by the cloud's lock. Instants are by the cloud's clock."""

    id: int
    name: str
    zone: str
    type: GceType
    accelerator: str
    gpus: int
    market: Market
    body: dict[str, Any]
    created_at: float
    visible_at: float
    status: Status = Status.PROVISIONING
    preempted_at: float | None = None
    taken_at: float | None = None
    stopped_at: float | None = None
    deleted_at: float | None = None
    rows: list[str] = field(default_factory=list)

    @property
    def live(self) -> bool:
        """Whether it holds capacity and quota, and costs money."""
        return self.deleted_at is None and self.status in (Status.PROVISIONING, Status.RUNNING)


@dataclass(slots=True)
class GceOperation:
    """One operation: what it does happens when it is done."""

    id: int
    kind: str
    target: str
    target_id: int
    zone: str
    began_at: float
    done_at: float
    error: OperationError | None = None
    effect: Callable[[float], None] | None = None
    collection: str = "instances"

    @property
    def name(self) -> str:
        return f"operation-{self.id}"


class GceState:
    """What one sandbox Compute Engine holds. Every method is called under ``lock``."""

    def __init__(self, config: GceConfig, clock: Callable[[], float] = time.time) -> None:
        self.config = config
        self._clock = clock
        self.lock = threading.RLock()
        self.instances: dict[int, GceInstance] = {}
        self.operations: dict[str, GceOperation] = {}
        self.capacity = CapacityBook(config.capacities)
        self.quotas: dict[str, int] = dict(config.quotas)
        self.faults = FaultBook(config.faults, seed=config.seed)
        self.calls: Counter[str] = Counter()
        self.unreachable: set[str] = set()
        self.held: Counter[Stock] = Counter()
        self.gpus_used: Counter[str] = Counter()
        self._by_name: dict[tuple[str, str], GceInstance] = {}
        self._requests: dict[str, tuple[float, str, str]] = {}
        self._ids = itertools.count(4_000_000_000_000_000_001)
        self._pending: list[GceOperation] = []
        self._leaving: list[GceInstance] = []

    def now(self) -> float:
        """The cloud's clock, seconds since the Unix epoch."""
        return self._clock() + self.config.clock_skew_s

    def catch_up(self) -> None:
        """Let happen what is due by now."""
        now = self.now()
        for operation in [each for each in self._pending if each.done_at <= now]:
            self._pending.remove(operation)
            if operation.error is None and operation.effect is not None:
                operation.effect(operation.done_at)
        for instance in [each for each in self._leaving if (each.taken_at or now) <= now]:
            self._leaving.remove(instance)
            self.remove(instance, instance.taken_at or now)

    # -- requests ---------------------------------------------------------------------------

    def remembered(self, request_id: str, fingerprint: str) -> GceOperation | None:
        """The operation of a ``requestId`` that was used. Raises Refused when it was used for
        something else."""
        at, what, name = self._requests.get(request_id, (0.0, "", ""))
        if not name or self.now() - at >= self.config.request_id_validity_s:
            return None
        if what != fingerprint:
            raise Refused(
                400, "invalid", "Invalid value for field 'requestId': it was used for another call"
            )
        return self.operations[name]

    def remember(self, request_id: str, fingerprint: str, operation: GceOperation) -> None:
        """From now on the same request is answered with this operation."""
        self._requests[request_id] = (self.now(), fingerprint, operation.name)

    # -- instances --------------------------------------------------------------------------

    def named(self, zone: str, name: str) -> GceInstance:
        """By name, or by id as the API allows. Raises Refused."""
        found = self._by_name.get((zone, name))
        if found is None and name.isdigit():
            found = self.instances.get(int(name))
        if found is None or found.deleted_at is not None or found.zone != zone:
            raise Refused(
                404,
                "notFound",
                f"The resource 'projects/{self.config.project}/zones/{zone}/instances/{name}' "
                "was not found",
            )
        return found

    def is_taken(self, zone: str, name: str) -> bool:
        """Whether an instance of that name is there."""
        return (zone, name) in self._by_name

    def shortage(
        self, stock: Stock, accelerator: str, gpus: int, count: int
    ) -> OperationError | None:
        """Why so many more machines cannot be had now; None when they can."""
        spot = stock.market is Market.SPOT
        if gpus:
            for metric in (quota_metric(accelerator, spot=spot), ALL_REGIONS):
                limit = self.quotas.get(metric)
                if limit is not None and self.gpus_used[metric] + gpus * count > limit:
                    where = "globally" if metric == ALL_REGIONS else f"in region {stock.zone[:-2]}"
                    return OperationError(
                        "QUOTA_EXCEEDED",
                        f"Quota '{metric}' exceeded.  Limit: {limit:.1f} {where}.",
                        metric.lower(),
                    )
        free = self.capacity.free(stock, self.held)
        if free is not None and free < count:
            return OperationError(
                "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
                f"The zone 'projects/{self.config.project}/zones/{stock.zone}' does not have enough"
                " resources available to fulfill the request.",
            )
        return None

    def add(
        self,
        name: str,
        stock: Stock,
        machine: GceType,
        accelerator: str,
        gpus: int,
        body: dict[str, Any],
    ) -> GceInstance:
        """A new instance: it holds capacity from now on."""
        now = self.now()
        instance = GceInstance(
            id=next(self._ids),
            name=name,
            zone=stock.zone,
            type=machine,
            accelerator=accelerator,
            gpus=gpus,
            market=stock.market,
            body=body,
            created_at=now,
            visible_at=now + self.config.listing_lag_s,
        )
        self.instances[instance.id] = instance
        self._by_name[(instance.zone, name)] = instance
        self._count(instance, +1)
        return instance

    def run(self, instance: GceInstance) -> None:
        """What an insert comes to."""
        if instance.deleted_at is None and instance.status is Status.PROVISIONING:
            instance.status = Status.RUNNING
            instance.rows.append("Booting Linux")

    def stop(self, instance: GceInstance, at: float) -> None:
        """Halted and kept: it holds no capacity, and may start again."""
        if instance.live:
            self._count(instance, -1)
            instance.stopped_at = at
            instance.status = Status.TERMINATED

    def remove(self, instance: GceInstance, at: float) -> None:
        """Nothing of it is left, its boot disk included."""
        if instance.deleted_at is not None:
            return
        if instance.live or instance.status is Status.STOPPING:
            self._count(instance, -1)
        instance.deleted_at = at
        instance.status = Status.TERMINATED
        self._by_name.pop((instance.zone, instance.name), None)

    def preempt(self, instance: GceInstance, notice_s: float | None = None) -> float:
        """Take a spot machine; returns when it ends. Raises Refused for one that is not spot."""
        if instance.market is not Market.SPOT or not instance.live:
            raise Refused(400, "invalid", f"{instance.name} is no live spot machine")
        now = self.now()
        notice_s = self.config.notice_s if notice_s is None else notice_s
        instance.preempted_at, instance.taken_at = now, now + notice_s
        self._leaving.append(instance)
        self.begin(PREEMPTED, instance, done_at=instance.taken_at)
        self.catch_up()
        return now + notice_s

    # -- operations -------------------------------------------------------------------------

    def begin(
        self,
        kind: str,
        instance: GceInstance | str,
        *,
        zone: str = "",
        error: OperationError | None = None,
        effect: Callable[[float], None] | None = None,
        done_at: float | None = None,
        collection: str = "instances",
    ) -> GceOperation:
        """An operation on an instance, or by name on one that never came to be or on something of
        another ``collection``."""
        now = self.now()
        known = isinstance(instance, GceInstance)
        operation = GceOperation(
            id=next(self._ids),
            kind=kind,
            target=instance.name if isinstance(instance, GceInstance) else instance,
            target_id=instance.id if isinstance(instance, GceInstance) else next(self._ids),
            zone=instance.zone if isinstance(instance, GceInstance) and known else zone,
            began_at=now,
            done_at=now + self.config.operation_s if done_at is None else done_at,
            error=error,
            effect=effect,
            collection=collection,
        )
        self.operations[operation.name] = operation
        self._pending.append(operation)
        self.catch_up()
        return operation

    def _count(self, instance: GceInstance, by: int) -> None:
        self.held[Stock(instance.zone, instance.type.name, instance.market)] += by
        if instance.gpus:
            spot = instance.market is Market.SPOT
            self.gpus_used[quota_metric(instance.accelerator, spot=spot)] += by * instance.gpus
            self.gpus_used[ALL_REGIONS] += by * instance.gpus
