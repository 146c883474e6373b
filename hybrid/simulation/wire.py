"""A world whose clouds are real providers over the wire, and whose nodes are simulated.

Past a few machines a process for each is more than a test machine has. Here every machine that a
cloud shows as running becomes a simulated node of this process once it has booted, and ends itself
when its lease is over; launching, listing and ending go through the provider to a sandbox cloud.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hybrid.domain.ids import ClaimId, MachineId, NodeId, PoolName
from hybrid.domain.pool_spec import BurstPool
from hybrid.hardware.machine_types import machine_type
from hybrid.ports.capacity import CapacityProvider
from hybrid.ports.clock import Clock
from hybrid.simulation.engine import SimEngine
from hybrid.simulation.world import LAUNCH_TO_START_S, node_report


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A machine that runs, as its cloud knows it."""

    id: MachineId
    claim_id: ClaimId
    machine_type: str
    launched_at: float


@dataclass(frozen=True, slots=True)
class Ground:
    """One cloud from below: which machines run, how one switches itself off, and its own clock."""

    pool: BurstPool
    running: Callable[[], Iterable[Standing]]
    power_off: Callable[[MachineId], None]
    now: Callable[[], float]


@dataclass(slots=True)
class WireWorld:
    """Everything outside the control plane. ``pass_time`` moves the clock that all of it reads."""

    clock: Clock
    clouds: Mapping[str, CapacityProvider]
    engine: SimEngine
    grounds: tuple[Ground, ...]
    pass_time: Callable[[float], None]
    run_lease_s: float = 600.0
    step_s: float = 5.0
    broken_boots: set[str] = field(default_factory=set)
    """Machine types whose machines never join."""
    _joined: set[MachineId] = field(default_factory=set)

    def advance(self, seconds: float) -> None:
        """Let time pass in steps, each as fine as ``step_s``."""
        left = seconds
        while left > 0:
            step = min(left, self.step_s)
            self.pass_time(step)
            left -= step
            self.settle()

    def settle(self) -> None:
        """Bring the nodes to what their clouds show: boots, leases, ends, work."""
        there: set[MachineId] = set()
        for ground in self.grounds:
            for machine in ground.running():
                there.add(machine.id)
                self._join(ground, machine)
                if self._lease_is_over(ground, machine):
                    ground.power_off(machine.id)
                    there.discard(machine.id)
        for id_ in self._joined - there:
            self.engine.lose(_node(id_))
        self._joined &= there
        self.engine.work(self.clock.now())

    def _join(self, ground: Ground, machine: Standing) -> None:
        pool = ground.pool
        if machine.id in self._joined or machine.machine_type in self.broken_boots:
            return
        if ground.now() < machine.launched_at + pool.boot.expected:
            return
        facts = machine_type(machine.machine_type)
        self._joined.add(machine.id)
        self.engine.join(
            node_report(
                _node(machine.id),
                PoolName(pool.name),
                facts.gpu,
                facts.gpus,
                facts.links,
                cpus=facts.vcpus,
                memory_gib=facts.memory_gib,
                claim_id=machine.claim_id,
                machine_id=machine.id,
                run_lease_s=self.run_lease_s,
            )
        )

    def _lease_is_over(self, ground: Ground, machine: Standing) -> bool:
        """Every machine ends itself: no control plane is needed for that."""
        age_s = ground.now() - machine.launched_at
        if age_s < LAUNCH_TO_START_S + ground.pool.lease.duration:
            return False
        node = self.engine.nodes.get(_node(machine.id))
        # a renewed lease is told by our clock, whatever the cloud's says
        until = None if node is None else node.lease_until
        return until is None or self.clock.now() >= until


def _node(machine_id: MachineId) -> NodeId:
    return NodeId(f"n-{machine_id}")
