"""What another policy would do with the jobs that are there now. Nothing is acted upon."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hybrid.domain.pool_spec import BurstPool
from hybrid.planning.difference import PlanDifference, difference
from hybrid.planning.planner import plan
from hybrid.services.access import Principal
from hybrid.services.policy import Check, Difference, Policies, parsed, settings_that_differ
from hybrid.services.sight import Sight
from policies.document import PolicyDocument
from policies.doubts import Surroundings

EVALUATIONS = 100_000
"""Of improving each of the two plans: about a second of one core at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A proposed policy against version ``version``: its settings that differ, and what they do.

    ``unknown`` names the sources that could not be read, each with the cause: what stands behind
    them is in neither plan.
    """

    version: int
    settings: tuple[Difference, ...]
    plans: PlanDifference
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PolicyTrials:
    """Plans the present twice, under the policy in force and under a proposed one."""

    policies: Policies
    sight: Sight

    def check(self, text: str) -> Check:
        """As :meth:`Policies.check`, knowing the pools, the offers and the GPUs of now."""
        seen = self.sight.snapshot(PolicyDocument())
        pools = [pool.spec for _, pool in sorted(seen.pools.items()) if not pool.removed]
        owned = [node for node in seen.nodes.values() if node.claim_id is None]
        there = Surroundings(
            burst_pools=tuple(spec for spec in pools if isinstance(spec, BurstPool)),
            offers=seen.offers,
            # before any node has joined nobody can say how many there will be
            local_gpus=sum(len(node.gpus) for node in owned) if owned else None,
        )
        return self.policies.check(text, there)

    def trial(self, asker: Principal, text: str) -> Trial:
        """What putting ``text`` in force would change for the jobs the asker may see; Refused when
        it is no policy."""
        stored, in_force = self.policies.current()
        proposed = parsed(text)
        seen = self.sight.snapshot(in_force, evaluations=EVALUATIONS)
        # what running jobs were told before says nothing of today's figures
        world = replace(seen, decisions={})
        # as the proposed policy's half-life and rules see the same moment
        seen_otherwise = self.sight.snapshot(proposed, at=world.now)
        other = replace(
            world,
            balances=self.policies.store.balances(now=world.now, under=proposed.budgets),
            usage_gpu_s=seen_otherwise.usage_gpu_s,
            held_back=seen_otherwise.held_back,
        )
        jobs = {id_: job for id_, job in world.jobs.items() if asker.sees(job.team)}
        return Trial(
            version=stored.version,
            settings=settings_that_differ(in_force, proposed),
            plans=difference(
                jobs,
                plan(world, in_force, stored.version),
                plan(other, proposed, stored.version + 1),
            ),
            unknown=tuple(f"{gap.source}: {gap.cause}" for gap in world.unknown),
        )
