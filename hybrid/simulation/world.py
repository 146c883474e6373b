"""Clouds and nodes joined: machines boot into nodes, nodes end with their machines."""

from __future__ import annotations

from dataclasses import dataclass, field

from hybrid.domain.ids import ClaimId, GpuId, MachineId, NodeId, PoolName
from hybrid.domain.node import Gpu
from hybrid.hardware.catalogue import gpu_model
from hybrid.hardware.machine_types import machine_type
from hybrid.ports.capacity import Machine, MachineState
from hybrid.ports.engine import NodeReport
from hybrid.simulation.clock import SimClock
from hybrid.simulation.cloud import SimCloud
from hybrid.simulation.engine import SimEngine
from hybrid.topology.presets import preset

LAUNCH_TO_START_S = 5.0
"""Between the launch call and the machine's own first second, from which its lease counts."""


@dataclass(slots=True)
class SimWorld:
    """Everything outside the control plane."""

    clock: SimClock
    clouds: dict[str, SimCloud]
    engine: SimEngine
    run_lease_s: float = 600.0
    step_s: float = 1.0
    broken_boots: set[str] = field(default_factory=set)
    """Machine types whose machines never join."""

    def advance(self, seconds: float) -> None:
        """Let time pass in steps, each as fine as ``step_s``."""
        left = seconds
        while left > 0:
            step = min(left, self.step_s)
            self.clock.advance(step)
            left -= step
            self.settle()

    def settle(self) -> None:
        """Bring the world to the clock: boots, work, notices, leases."""
        now = self.clock.now()
        for cloud in self.clouds.values():
            cloud.take_what_is_due()
            for machine in list(cloud.running):
                self._boot(cloud, machine, now)
                self._end_of_lease(cloud, machine, now)
        self.engine.work(now)
        self._lose_ended()

    def add_node(
        self, pool: str, node: str, model: str, gpus: int, *, links: str = "nvswitch"
    ) -> None:
        """An owned node joins."""
        self.engine.join(
            node_report(
                NodeId(node), PoolName(pool), model, gpus, links, run_lease_s=self.run_lease_s
            )
        )

    def node_of(self, machine_id: MachineId) -> NodeId:
        """What a machine is called once it has joined."""
        return NodeId(f"n-{machine_id}")

    def _boot(self, cloud: SimCloud, machine: Machine, now: float) -> None:
        request = cloud.requests[machine.id]
        node_id = self.node_of(machine.id)
        if node_id in self.engine.nodes or machine.machine_type in self.broken_boots:
            return
        if now < machine.launched_at + float(request["boot_s"]):
            return
        facts = machine_type(machine.machine_type)
        self.engine.join(
            node_report(
                node_id,
                PoolName(request["pool"]),
                facts.gpu,
                facts.gpus,
                facts.links,
                cpus=facts.vcpus,
                memory_gib=facts.memory_gib,
                claim_id=ClaimId(request["claim"]),
                machine_id=machine.id,
                run_lease_s=self.run_lease_s,
            )
        )

    def _end_of_lease(self, cloud: SimCloud, machine: Machine, now: float) -> None:
        """Every machine ends itself: no control plane is needed for that."""
        request = cloud.requests[machine.id]
        until = machine.launched_at + LAUNCH_TO_START_S + float(request["lease_s"])
        node = self.engine.nodes.get(self.node_of(machine.id))
        if node is not None and node.lease_until is not None:
            until = max(until, node.lease_until)
        if now >= until:
            cloud.end(machine.id, "its lease was over")

    def _lose_ended(self) -> None:
        for cloud in self.clouds.values():
            for machine in cloud.machines.values():
                if machine.state is MachineState.ENDED:
                    self.engine.lose(self.node_of(machine.id))


def node_report(
    node_id: NodeId,
    pool: PoolName,
    model: str,
    gpus: int,
    links: str,
    *,
    run_lease_s: float,
    cpus: float = 128,
    memory_gib: float = 1024,
    claim_id: ClaimId | None = None,
    machine_id: MachineId | None = None,
) -> NodeReport:
    """What a node of so many equal GPUs reports."""
    facts = gpu_model(model)
    graph = preset(links, model, gpus)
    return NodeReport(
        id=node_id,
        pool=pool,
        hostname=str(node_id),
        heard_at=0.0,
        run_lease_s=run_lease_s,
        address=str(node_id),
        claim_id=claim_id,
        machine_id=machine_id,
        gpus=tuple(
            Gpu(
                id=GpuId(f"{node_id}-gpu{index}"),
                index=index,
                model=model,
                memory_gib=facts.usable_memory_gib,
                numa=graph.numa[index],
            )
            for index in range(gpus)
        ),
        links_gbps=graph.gbps,
        cpus=cpus,
        memory_gib=memory_gib,
    )
