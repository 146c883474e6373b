"""From a start to a run: named devices in link order, ranks in network order."""

from __future__ import annotations

from hybrid.domain.claim import Claim
from hybrid.domain.ids import ClaimId, run_id
from hybrid.domain.job import Job
from hybrid.domain.job_spec import GpuRequest, LinkClass, Market
from hybrid.domain.node import Slot
from hybrid.domain.plan import Place, RowRef
from hybrid.domain.run import Run, RunState
from hybrid.estimation import interruptions
from hybrid.estimation.runtime import checkpoint_s
from hybrid.planning.choices import Start
from hybrid.planning.claims import interruptions_per_hour
from hybrid.planning.nodes import NodeView
from hybrid.planning.row_refs import claim_ref, job_ref, node_ref
from hybrid.planning.workspace import Workspace
from hybrid.topology import MINIMUM_GBPS


def place(ws: Workspace, job: Job, start: Start) -> Run:
    """Plan the run of a job that starts now."""
    views = [ws.nodes[node] for node in start.nodes]
    claims = tuple(view.claim for view in views if view.claim is not None)
    price = sum(claim.offer.price_micros_per_hour for claim in claims)
    resumed = job.resumes_on(start.model)
    run = Run(
        id=run_id(job.id, job.attempts + 1),
        job_id=job.id,
        attempt=job.attempts + 1,
        state=RunState.ASSIGNED,
        pool=start.type.pool,
        engine=start.type.engine,
        slots=tuple(_slot(ws, job, start, rank) for rank in range(len(start.nodes))),
        assigned_at=ws.now,
        epoch=ws.snapshot.epoch,
        claim_ids=tuple(ClaimId(claim.id) for claim in claims),
        market=claims[0].offer.market if claims else None,
        gpu_model=start.model,
        speed=start.speed,
        price_micros_per_hour=price,
        expected_end_at=start.at + start.run.mean_s,
        resume_seq=None if resumed is None else resumed.seq,
        checkpoint_interval_s=_interval_s(ws, job, start, claims),
    )
    rests_on: list[RowRef] = [job_ref(job)]
    rests_on += [node_ref(view.node) for view in views]
    rests_on += [claim_ref(claim) for claim in claims]
    ws.add(f"place:{job.id}", (Place(run=run),), rests_on)
    return run


def _interval_s(ws: Workspace, job: Job, start: Start, claims: tuple[Claim, ...]) -> float:
    """How often the run saves where it goes."""
    if not job.spec.checkpoint.enabled:
        return 0.0
    spot = [c for c in claims if c.offer.market is Market.SPOT]
    pool = ws.burst_pool(start.type.pool)
    return interruptions.interval_s(
        job.spec.checkpoint,
        overhead_s=checkpoint_s(
            job,
            ws.snapshot.learned,
            gib_per_s=1.0 if pool is None else pool.transfer_gib_per_s,
        ),
        rate_per_s=sum(interruptions_per_hour(claim) for claim in spot) / 3600.0,
    )


def _slot(ws: Workspace, job: Job, start: Start, rank: int) -> Slot:
    view = ws.nodes[start.nodes[rank]]
    resources = job.spec.resources
    mask = start.masks[rank]
    order = view.type.shape.table.ring_order(mask) if mask else ()
    link = resources.gpu.link
    return Slot(
        node_id=view.id,
        gpu_ids=tuple(view.node.gpus[device].id for device in order),
        share=start.share,
        cpus=resources.cpus,
        memory_gib=resources.memory,
        min_link_gbps=None if link is LinkClass.ANY else MINIMUM_GBPS[link],
        mig_profile=resources.gpu.mig_profile,
        gpu_memory_gib=_gpu_memory_gib(resources.gpu, view, start.share, mask),
        replicas=1 if view.type.shape.mig & mask or not mask else view.type.shape.replicas,
    )


def _gpu_memory_gib(asked: GpuRequest, view: NodeView, share: float, mask: int) -> float | None:
    """What goes with a share of a device: what was asked for, else the same part of its memory."""
    if not mask or (share >= 1 and asked.slice_memory is None):
        return None
    has_gib = view.node.gpus[mask.bit_length() - 1].memory_gib
    if asked.slice_memory is not None:
        return min(asked.slice_memory, has_gib)
    return has_gib * share
