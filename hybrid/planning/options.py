"""What an option costs, term by term, and when the job would be done.

Local: ``local_rate × gpu_hours + value × (E[wait] + run)``.
Cloud: ``machines × price × paid_hours + egress + disks + end_tail + value × T`` with
``T = boot + transfer + run × stretch``. On a machine already held there is no boot, and what is
paid in any case is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybrid.domain.claim import Claim
from hybrid.domain.hot_values import hot_value
from hybrid.domain.job_spec import Market
from hybrid.domain.offer import Offer
from hybrid.domain.plan import CostTerm
from hybrid.domain.pool_spec import BurstPool
from hybrid.domain.reasons import InterruptedTooOften, Reason, SourceUnknown
from hybrid.estimation import interruptions, transfer
from hybrid.estimation.runtime import checkpoint_s as measured_checkpoint_s
from hybrid.estimation.runtime import restart_s as measured_restart_s
from hybrid.estimation.waits import Duration
from hybrid.ledger.charges import egress_micros
from hybrid.planning.claims import interruptions_per_hour
from hybrid.planning.classes import JobClass
from hybrid.planning.fit import Fit
from hybrid.planning.nodes import NodeType
from hybrid.planning.offers import OfferClass
from hybrid.planning.workspace import Workspace
from policies import retire

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST = 2**62
"""Above it 64 bits do not do, and Python's integers, slow and boundless, are taken."""

ENERGY = "local energy"
MACHINES = "machines"
HELD = "held already"
WAITING = "waiting"
RUNNING = "running"
EGRESS = "egress"
DISKS = "disks"
END_TAIL = "end tail"
EXTERNALITY = "waits it shortens for others"
LOST_WORK = "work lost by others"
DELAY = "delay of others"
CHECKPOINT = "saving and restoring"

CLOUD_TERMS = frozenset({MACHINES, HELD, DISKS, EGRESS, END_TAIL})
"""The terms of an option's cost that a cloud sends a bill for."""


def cost_micros(micros_per_hour: int, seconds: float) -> int:
    """What so long at a rate comes to, rounded up; time counts in milliseconds.

    Integers throughout: terms add up exactly, and this is hot (ten times as fast as decimals).
    """
    return -(-micros_per_hour * round(seconds * 1000.0) // 3_600_000)


def costs_micros(micros_per_hour: Ints, seconds: Floats) -> Ints:
    """:func:`cost_micros` of many."""
    millis: Ints = np.rint(seconds * 1000.0).astype(np.int64)
    if int(millis.max(initial=0)) * int(micros_per_hour.max(initial=0)) > _MOST:
        millis = millis.astype(object)
    return -(-micros_per_hour * millis // 3_600_000)


@hot_value(frozen=True, slots=True)
class CloudTime:
    """How long a job is on a cloud machine once it has booted: bringing data in, running with its
    interruptions, bringing results back. ``bare_s`` is the run without interruptions."""

    inbound_s: float
    run: Duration
    outbound_s: float
    bare_s: float

    @property
    def on_machine(self) -> Duration:
        """All three."""
        return Duration(self.inbound_s + self.run.mean_s + self.outbound_s, self.run.sd_s)


@hot_value(frozen=True, slots=True)
class Priced:
    """An option with its cost. ``start_in`` is from now to the first instruction; ``finish_in``
    to the last."""

    terms: tuple[CostTerm, ...]
    start_in: Duration
    finish_in: Duration

    @property
    def micros(self) -> int:
        """The sum of the terms."""
        return sum(term.micros for term in self.terms)


@dataclass(slots=True, eq=False)
class CloudOption:
    """One class of offers for one class of jobs, unless ``refused`` by a guard that holds whatever
    else is planned. ``time`` is known of those that no earlier guard than the deadline refuses."""

    offers: OfferClass
    refused: Reason | None
    cls: JobClass
    fit: Fit | None = None
    time: CloudTime | None = None
    _priced: Priced | None = None

    @property
    def priced(self) -> Priced | None:
        """What it costs, None where its time is not known. Hot: worked out when first asked for,
        since most options are neither chosen nor shown."""
        if self._priced is None and self.time is not None:
            offers = self.offers
            self._priced = machine_terms(
                self.cls, offers.offer, offers.pool, self.time, boot_s=offers.boot_s
            )
        return self._priced

    @property
    def micros(self) -> int:
        """The cost of a priced option."""
        assert self.priced is not None
        return self.priced.micros


def cloud_time(
    ws: Workspace,
    cls: JobClass,
    offer: Offer,
    pool: BurstPool,
    fit: Fit,
    *,
    rate_per_machine_hour: float,
    boot_s: float,
) -> CloudTime | Reason:
    """The job's time on machines of an offer, or that it would be interrupted too often."""
    job = cls.sample
    speed = cls.speed(fit.model, fit.link_gbps)
    bare = cls.run_time(fit.model, speed)
    inbound_s = transfer.inbound_s(job, pool)
    outbound_s = transfer.outbound_s(job, pool)
    if offer.market is not Market.SPOT or rate_per_machine_hour <= 0:
        return CloudTime(inbound_s, bare, outbound_s, bare.mean_s)
    per_s = rate_per_machine_hour * cls.nodes / 3600.0
    restart_s = measured_restart_s(
        job, ws.snapshot.learned, boot_s=boot_s, inbound_s=transfer.restore_s(job, pool)
    )
    if job.spec.checkpoint.enabled:
        overhead_s = checkpoint_time_s(ws, cls, pool)
        stretched = interruptions.with_checkpoints(
            bare.mean_s,
            rate_per_s=per_s,
            overhead_s=overhead_s,
            interval_s=interruptions.interval_s(
                job.spec.checkpoint, overhead_s=overhead_s, rate_per_s=per_s
            ),
            restart_s=restart_s,
        )
    else:
        stretched = interruptions.without_checkpoints(
            bare.mean_s, rate_per_s=per_s, restart_s=restart_s
        )
    if stretched is None:
        return InterruptedTooOften(rate_per_machine_hour * cls.nodes)
    ratio = stretched.mean_s / bare.mean_s if bare.mean_s else 1.0
    spread = (bare.sd_s * ratio) ** 2 + stretched.sd_s**2
    run = Duration(stretched.mean_s, spread**0.5)
    return CloudTime(inbound_s, run, outbound_s, bare.mean_s)


def checkpoint_time_s(ws: Workspace, cls: JobClass, pool: BurstPool) -> float:
    """How long the job takes to save its work from a machine of the pool."""
    return measured_checkpoint_s(cls.sample, ws.snapshot.learned, gib_per_s=pool.transfer_gib_per_s)


def local_terms(
    cls: JobClass, rate_micros_per_gpu_hour: int, wait: Duration, run: Duration, part: float
) -> Priced:
    """The cost of waiting for owned GPUs and running there, on a ``part`` of each."""
    energy = cost_micros(round(rate_micros_per_gpu_hour * cls.gpus_at(part)), run.mean_s)
    terms = (
        CostTerm(name=ENERGY, micros=energy),
        CostTerm(name=WAITING, micros=cost_micros(cls.value_micros_per_hour, wait.mean_s)),
        CostTerm(name=RUNNING, micros=cost_micros(cls.value_micros_per_hour, run.mean_s)),
    )
    return Priced(terms, wait, wait.then(run))


def machine_terms(
    cls: JobClass,
    offer: Offer,
    pool: BurstPool,
    time: CloudTime,
    *,
    boot_s: float,
    saved_s: float = 0.0,
    end_tail: bool = True,
    shortened_micros: int = 0,
) -> Priced:
    """The cost of running on machines of an offer.

    ``boot_s`` is until they are there: 0 for machines already held, of whose time ``saved_s`` is
    paid whether the job comes or not; their end is paid for in any case (``end_tail`` False).
    ``shortened_micros`` is what others gain.
    """
    on_machine = time.on_machine
    paid_s = boot_s + on_machine.mean_s
    value = cls.value_micros_per_hour
    price = offer.price_micros_per_hour * cls.nodes
    saved = cost_micros(price, min(saved_s, paid_s)) if saved_s > 0 else 0
    disks = cost_micros(disk_micros_per_hour(pool) * cls.nodes, paid_s)
    egress_gib = transfer.egress_gib(cls.sample)
    egress = egress_micros(egress_gib, pool.egress_usd_per_gib) if egress_gib else 0
    tail = cost_micros(price, pool.lease.end_tail) if end_tail else 0
    wait_s = boot_s + time.inbound_s
    amounts = (
        (MACHINES, cost_micros(price, paid_s)),
        (HELD, -saved),
        (DISKS, disks),
        (EGRESS, egress),
        (END_TAIL, tail),
        (WAITING, cost_micros(value, wait_s)),
        (RUNNING, cost_micros(value, time.run.mean_s + time.outbound_s)),
        (EXTERNALITY, -shortened_micros),
    )
    terms = tuple([CostTerm(name=name, micros=micros) for name, micros in amounts if micros])
    booting = Duration(wait_s, boot_s * BOOT_SPREAD)
    finish = booting.then(Duration(time.run.mean_s + time.outbound_s, time.run.sd_s))
    return Priced(terms, booting, finish)


def disk_micros_per_hour(pool: BurstPool) -> int:
    """What the disk of one machine costs an hour."""
    return round(pool.disk * float(pool.disk_usd_per_gib_hour) * 1e6)


BOOT_SPREAD = 0.3
"""Relative standard deviation of boot times."""


def held_option(ws: Workspace, cls: JobClass, type_: NodeType, fit: Fit) -> HeldOption | Reason:
    """What running on machines held already costs: no boot, and their end is paid for anyway."""
    claims = [ws.nodes[node].claim for node in ws.members[type_.index]]
    claim = claims[0] if claims else None
    pool = ws.burst_pool(type_.pool)
    if claim is None or pool is None:
        return SourceUnknown(f"pool:{type_.pool}", "removed")
    rate = max(interruptions_per_hour(each) for each in claims if each is not None)
    time = cloud_time(
        ws, cls, claim.offer, pool, fit, rate_per_machine_hour=rate, boot_s=pool.boot.expected
    )
    if isinstance(time, Reason):
        return time
    saved_s = idle_saving_s(ws, claim, pool)
    priced = machine_terms(
        cls, claim.offer, pool, time, boot_s=0.0, saved_s=saved_s, end_tail=False
    )
    return HeldOption(time, priced)


def idle_saving_s(ws: Workspace, claim: Claim, pool: BurstPool) -> float:
    """For how long an idle machine would be paid for anyway, until it is retired."""
    due_at = retire.due_at(claim, pool, ws.policy)
    return 0.0 if due_at is None else max(due_at - ws.now, 0.0)


@dataclass(frozen=True, slots=True)
class HeldOption:
    """A machine held already, for one class of jobs."""

    time: CloudTime
    priced: Priced
