"""Claims and what must be held for them before a machine is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from hybrid.domain.claim import Bargain, Claim, ClaimState
from hybrid.domain.ids import ClaimId, JobId, claim_id
from hybrid.domain.job import Job
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.domain.offer import Offer
from hybrid.domain.plan import OpenClaim
from hybrid.domain.pool_spec import BurstPool
from hybrid.estimation.interruptions import hinted_rate
from hybrid.estimation.transfer import egress_bound_gib
from hybrid.ledger.charges import LAUNCH_SLACK_S, hold_micros


def interruptions_per_hour(claim: Claim) -> float:
    """Of the machine of a claim: more than its offer's where its provider recommends to leave."""
    rate = claim.offer.interruptions_per_hour * claim.offer.price_pressure
    return rate if claim.rebalance_at is None else hinted_rate(rate)


def machine_hold_micros(job: Job, offer: Offer, pool: BurstPool) -> int:
    """The worst case of one machine of an offer for the job's first lease."""
    return hold_micros(
        offer.price_ceiling_micros_per_hour,
        lease_s=pool.lease.duration,
        end_tail_s=pool.lease.end_tail,
        disk_gib=pool.disk,
        disk_usd_per_gib_hour=pool.disk_usd_per_gib_hour,
        egress_gib=egress_bound_gib(job) / job.spec.resources.nodes,
        egress_usd_per_gib=pool.egress_usd_per_gib,
    )


def open_claims(
    job: Job,
    offer: Offer,
    pool: BurstPool,
    *,
    now: float,
    installation: str,
    bargain: Bargain | None = None,
) -> tuple[OpenClaim, ...]:
    """Claims for all machines of the job, each with its hold and its part of the ``bargain``."""
    attempt = job.attempts + 1
    nodes = job.spec.resources.nodes
    micros = machine_hold_micros(job, offer, pool)
    gang = f"g-{job.id}-{attempt}-{job.claims_opened}" if nodes > 1 else ""
    opened = []
    for rank in range(nodes):
        id_ = claim_id(job.id, attempt, rank, job.claims_opened)
        claim = Claim(
            id=id_,
            pool=offer.pool,
            offer=offer,
            state=ClaimState.REQUESTED,
            token=_token(installation, id_),
            request="",
            requested_at=now,
            team=job.team,
            user=job.user,
            job_id=job.id,
            gang=gang,
            lease_until=now + LAUNCH_SLACK_S + pool.lease.duration,
            bargain=None if bargain is None else _part(bargain, rank, nodes),
        )
        hold = LedgerEntry(
            id=f"hold:{id_}:0",
            kind=EntryKind.HOLD,
            claim_id=id_,
            amount_micros=micros,
            at=now,
            team=job.team,
            user=job.user,
            job_id=job.id,
            memo=f"first lease of {offer.id}",
        )
        opened.append(OpenClaim(claim=claim, hold=hold))
    return tuple(opened)


def _part(bargain: Bargain, rank: int, nodes: int) -> Bargain:
    """One machine's part; all parts add up."""

    def part(micros: int) -> int:
        return micros * (rank + 1) // nodes - micros * rank // nodes

    return Bargain(
        waiting_micros=part(bargain.waiting_micros),
        cloud_micros=part(bargain.cloud_micros),
        paid_micros=part(bargain.paid_micros),
    )


def _token(installation: str, id_: ClaimId) -> str:
    """64 hex digits, the same for the same claim of the same installation: a request that is
    repeated after a crash carries the token it had before."""
    return hashlib.sha256(f"{installation}/{id_}".encode()).hexdigest()


def match_claims(
    claims_of: Mapping[JobId, Sequence[Claim]], waits_for: Callable[[JobId], int]
) -> tuple[dict[JobId, tuple[Claim, ...]], tuple[Claim, ...]]:
    """Which jobs have all the machines they wait for held or on their way; and the machines on
    their way that are there for nobody: their job was cancelled, runs elsewhere, or lost a part of
    its gang. ``waits_for`` tells how many machines a job waits for."""
    covering: dict[JobId, tuple[Claim, ...]] = {}
    orphans: list[Claim] = []
    for job_id, claims in claims_of.items():
        wanted = waits_for(job_id)
        gangs: dict[str, list[Claim]] = {}
        for claim in claims:
            gangs.setdefault(claim.gang or str(claim.id), []).append(claim)
        for _, gang in sorted(gangs.items()):
            if len(gang) == wanted and job_id not in covering:
                covering[job_id] = tuple(gang)
            else:
                orphans += [claim for claim in gang if claim.state is not ClaimState.READY]
    return covering, tuple(sorted(orphans, key=lambda claim: claim.id))
