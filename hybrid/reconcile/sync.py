"""Stored and observed facts → state transitions."""

from __future__ import annotations

from dataclasses import replace

from hybrid.domain.claim import ClaimState
from hybrid.ports.observation import Observation
from hybrid.ports.store import Bundle, Learn, World
from hybrid.reconcile.drafts import Drafts
from hybrid.reconcile.learning import Lessons
from hybrid.reconcile.machines import sync_machines
from hybrid.reconcile.nodes import sync_nodes
from hybrid.reconcile.rules import SyncRules
from hybrid.reconcile.runs import sync_runs

_WITH_NODE = (ClaimState.READY, ClaimState.CORDONED, ClaimState.DRAINING)


def sync(world: World, observation: Observation, rules: SyncRules) -> tuple[Bundle, ...]:
    """The transitions that the facts ask for, in bundles that need each other.

    The clouds were listed before ``world`` was read, so that a claim committed meanwhile does not
    make its machine look like an orphan.
    """
    drafts = Drafts(world)
    lessons = Lessons(world.learned)
    # machines first: a machine that ended takes its node along, and the node its runs
    sync_machines(drafts, observation, lessons, rules)
    sync_nodes(drafts, observation, lessons, rules)
    sync_runs(drafts, observation, lessons, rules)
    _mark_idle(drafts, observation.at)
    if lessons.changed:
        drafts.draft("learned").add(Learn(lessons.learned))
    return drafts.bundles()


def _mark_idle(drafts: Drafts, now: float) -> None:
    with_nodes = [claim for claim in drafts.claims() if claim.state in _WITH_NODE]
    if not with_nodes:
        return
    busy = {claim_id for run in drafts.runs() if run.live for claim_id in run.claim_ids}
    for claim in with_nodes:
        if claim.id in busy:
            if claim.idle_since is not None:
                drafts.draft(f"claim:{claim.id}").put(replace(claim, idle_since=None))
        elif claim.idle_since is None:
            drafts.draft(f"claim:{claim.id}").put(replace(claim, idle_since=now))
