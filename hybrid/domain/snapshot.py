"""The frozen world the planner sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hybrid.domain.breaker import Breaker
from hybrid.domain.budget import Balance
from hybrid.domain.claim import Claim
from hybrid.domain.ids import ClaimId, JobId, NodeId, OfferId, PoolName, RunId
from hybrid.domain.job import Job, Progress
from hybrid.domain.learned import Learned
from hybrid.domain.node import Node
from hybrid.domain.offer import Offer
from hybrid.domain.plan import Decision
from hybrid.domain.pool_spec import BurstPool, LocalPool
from hybrid.domain.reasons import Reason
from hybrid.domain.run import Run
from hybrid.domain.sightings import Sightings


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool document and its row."""

    spec: LocalPool | BurstPool
    version: int = 0
    removed: bool = False

    @property
    def name(self) -> PoolName:
        """The pool's name."""
        return PoolName(self.spec.name)


@dataclass(frozen=True, slots=True)
class UnknownSource:
    """A source that could not be read this tick: ``engine:agent``, ``provider:aws``."""

    source: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a plan rests on. Mappings are keyed by id and never changed.

    ``jobs`` holds those not ended, ``runs`` the live ones, ``claims`` those not over, ``nodes``
    those not gone. ``usage_gpu_s`` is each team's decayed GPU-seconds for fair share.
    ``evaluation_budget`` stands in for time: improving the plan stops after so many evaluations.
    """

    now: float
    revision: int
    installation: str
    epoch: int = 0
    jobs: Mapping[JobId, Job] = field(default_factory=dict)
    runs: Mapping[RunId, Run] = field(default_factory=dict)
    nodes: Mapping[NodeId, Node] = field(default_factory=dict)
    pools: Mapping[PoolName, Pool] = field(default_factory=dict)
    claims: Mapping[ClaimId, Claim] = field(default_factory=dict)
    offers: tuple[Offer, ...] = ()
    balances: tuple[Balance, ...] = ()
    breakers: Mapping[str, Breaker] = field(default_factory=dict)
    learned: Learned = field(default_factory=Learned)
    sightings: Mapping[OfferId, Sightings] = field(default_factory=dict)
    progress: Mapping[RunId, Progress] = field(default_factory=dict)
    decisions: Mapping[JobId, Decision] = field(default_factory=dict)
    usage_gpu_s: Mapping[str, float] = field(default_factory=dict)
    held_back: Mapping[JobId, Reason] = field(default_factory=dict)
    """Pending jobs that a rule of others does not let start now, whatever else there is."""
    unknown: tuple[UnknownSource, ...] = ()
    evaluation_budget: int = 200_000

    def knows(self, source: str) -> bool:
        """Whether the source was read this tick."""
        return all(gap.source != source for gap in self.unknown)
