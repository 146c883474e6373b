"""What engines say of nodes: joined, changed, silent, lost, heard again, left."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from hybrid.domain.breaker import boot_scopes
from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.node import Node, NodeState
from hybrid.domain.quantities import format_duration
from hybrid.domain.transitions import Step
from hybrid.ports.engine import NodeReport
from hybrid.ports.observation import Known, Observation
from hybrid.ports.store import Remove
from hybrid.reconcile import sightings
from hybrid.reconcile.drafts import Drafts
from hybrid.reconcile.learning import Lessons
from hybrid.reconcile.rules import SyncRules

SILENT = "silent"
"""The cordon cause of a node that has not been heard of; hearing of it lifts that cordon."""

CLOSING = "closing"
"""The cordon cause of a node whose agent is ending; it is lifted when the agent is back."""

OWN_CAUSES = frozenset({SILENT, CLOSING})
"""Cordons that follow from what the node does: nobody has to be told of them."""

_AWAITED = (ClaimState.REQUESTED, ClaimState.BOOTING)
_REPORTED = (
    "hostname",
    "address",
    "gpus",
    "links_gbps",
    "parted",
    "cpus",
    "memory_gib",
    "architecture",
    "container_runtimes",
    "block",
    "rack",
    "boot_id",
)


_told = attrgetter(*_REPORTED)
"""What a node's row and its report have in common; comparing is cheaper than writing anew."""


def sync_nodes(
    drafts: Drafts, observation: Observation, lessons: Lessons, rules: SyncRules
) -> None:
    """Bring nodes (and the claims whose machines they are) to what their engines say."""
    for engine, source in sorted(observation.engines.items()):
        if not isinstance(source, Known):
            continue
        for report in source.value.nodes:
            _sync_node(drafts, engine, report, observation, lessons, rules)


def _sync_node(
    drafts: Drafts,
    engine: str,
    report: NodeReport,
    observation: Observation,
    lessons: Lessons,
    rules: SyncRules,
) -> None:
    now = observation.at
    node = drafts.node(report.id)
    claim = drafts.claim(report.claim_id) if report.claim_id else None
    if node is None:
        if report.left or (report.claim_id and (claim is None or not _may_join(claim, report))):
            return  # it left before it was known, or its claim is over: nothing may start there
        node = _joined(engine, report, now)
        bundle = drafts.draft(_bundle_id(report))
        bundle.put(node)
        if claim is not None:
            _join(drafts, claim, report, now, lessons)
        return
    if node.state is NodeState.GONE:
        return
    changed = node
    if _told(node) != _told(report):
        changed = replace(node, **{name: getattr(report, name) for name in _REPORTED})
    changed = _state_after(changed, report, observation, rules)
    if claim is not None and claim.state in _AWAITED and claim.machine_id is not None:
        _join(drafts, claim, report, now, lessons)
    elif claim is not None:
        _hear_notice(drafts, claim, report, now)
    if changed != node:
        drafts.draft(_bundle_id(report)).put(changed)


def _bundle_id(report: NodeReport) -> str:
    # a machine's node and claim change together, whichever of the two is told of first
    return f"claim:{report.claim_id}" if report.claim_id else f"node:{report.id}"


def _may_join(claim: Claim, report: NodeReport) -> bool:
    """A claim is for one machine, which joins once: a copy of it is nobody's."""
    if claim.state not in _AWAITED:
        return False
    if claim.node_id not in (None, report.id):
        return False
    return claim.machine_id is None or report.machine_id in (None, claim.machine_id)


def _joined(engine: str, report: NodeReport, now: float) -> Node:
    facts = {name: getattr(report, name) for name in _REPORTED}
    return Node(
        id=report.id,
        pool=report.pool,
        engine=engine,
        state=NodeState.READY,
        joined_at=now,
        claim_id=report.claim_id,
        history=(Step(NodeState.READY, now, "joined"),),
        **facts,
    )


def _join(drafts: Drafts, claim: Claim, report: NodeReport, now: float, lessons: Lessons) -> None:
    joined = _claim_joined(claim, report, now, lessons)
    bundle = drafts.draft(_bundle_id(report))
    bundle.put(joined)
    if joined.state is ClaimState.READY:
        for scope in boot_scopes(claim.offer):
            if scope in drafts.world.breakers:
                bundle.add(Remove("breaker", scope))


def _claim_joined(claim: Claim, report: NodeReport, now: float, lessons: Lessons) -> Claim:
    if claim.state is ClaimState.REQUESTED:
        # the machine speaks before the answer to its launch has been recorded
        if report.machine_id is None:
            return replace(claim, node_id=report.id)
        claim = claim.to(
            ClaimState.BOOTING,
            at=now,
            cause="its machine reported in",
            machine_id=report.machine_id,
            launched_at=claim.requested_at,
        )
    lessons.booted(claim, now - claim.requested_at)
    return claim.to(
        ClaimState.READY, at=now, cause="joined", node_id=report.id, ready_at=now, idle_since=now
    )


def _hear_notice(drafts: Drafts, claim: Claim, report: NodeReport, now: float) -> None:
    heard = told(
        drafts, claim, notice_at=report.notice_at, rebalance_at=report.rebalance_at, now=now
    )
    if heard is not claim:
        drafts.draft(f"claim:{claim.id}").put(heard)


_SOONER_S = 1.0
"""Two sources tell one instant a little apart: only a sooner one is news."""


def told(
    drafts: Drafts,
    claim: Claim,
    *,
    notice_at: float | None,
    rebalance_at: float | None,
    now: float,
) -> Claim:
    """The claim after what its provider said of the machine, whoever brought the word: its
    listing, its queue, or the machine itself. The same claim where nothing of it is new."""
    if rebalance_at is not None and claim.rebalance_at is None:
        claim = replace(claim, rebalance_at=rebalance_at)
    if notice_at is None:
        return claim
    if claim.notice_at is None:
        sightings.saw(drafts, claim, now, up=False)
    elif notice_at >= claim.notice_at - _SOONER_S:
        return claim
    return _noticed(claim, notice_at, now)


def _noticed(claim: Claim, notice_at: float, now: float) -> Claim:
    """The claim after its provider's word that the machine will be taken at ``notice_at``."""
    claim = replace(claim, notice_at=notice_at)
    if claim.state is ClaimState.READY:
        wait = format_duration(max(0.0, round(notice_at - now, 1)))
        claim = claim.to(ClaimState.CORDONED, at=now, cause=f"will be taken in {wait}")
    return claim


def silence_s(report: NodeReport, observation: Observation) -> float:
    """For how long the node has not been heard of, as far as we could have heard it."""
    return observation.at - max(report.heard_at, observation.heard_since)


def lease_over(report: NodeReport, observation: Observation, rules: SyncRules) -> bool:
    """Whether the node has not been heard of for so long that it has surely ended its runs."""
    length_s = (report.run_lease_s + rules.kill_s) * (1 + rules.clock_drift)
    return silence_s(report, observation) > length_s


def _state_after(
    node: Node, report: NodeReport, observation: Observation, rules: SyncRules
) -> Node:
    now = observation.at
    if report.left:
        return node.to(NodeState.GONE, at=now, cause="left")
    silence = silence_s(report, observation)
    if lease_over(report, observation, rules):
        if node.state is NodeState.LOST:
            return node
        return node.to(
            NodeState.LOST, at=now, cause=f"not heard of for {format_duration(round(silence))}"
        )
    if silence > rules.silent_after_s:
        if node.state is NodeState.READY:
            return node.to(NodeState.CORDONED, at=now, cause=SILENT)
        return node
    if report.heard_at < observation.heard_since and node.state is NodeState.LOST:
        return node  # only a heartbeat brings a lost node back, not our own restart
    if report.closing:
        if node.state is NodeState.READY:
            return node.to(NodeState.CORDONED, at=now, cause=CLOSING)
        return node
    if node.state is NodeState.LOST and node.cordon_cause and node.cordon_cause not in OWN_CAUSES:
        # somebody wanted it to take no runs, and has not said otherwise
        return node.to(NodeState.CORDONED, at=now, cause=node.cordon_cause)
    if node.state is NodeState.LOST or node.cordon_cause in OWN_CAUSES:
        return node.to(NodeState.READY, at=now, cause="heard again")
    return node
