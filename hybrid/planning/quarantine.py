"""Nodes that are taken out of use: their devices fail, or jobs fail on them one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from hybrid.domain.ids import NodeId
from hybrid.domain.node import NodeState
from hybrid.domain.plan import ActionBundle, CordonNode, RowRef
from hybrid.domain.snapshot import Snapshot
from policies import quarantine as rules
from policies.document import PolicyDocument


def quarantined(snapshot: Snapshot, policy: PolicyDocument) -> Mapping[NodeId, str]:
    """Nodes that are to take no new runs from now on, each with the reason in words."""
    failing = Counter(node for job in snapshot.jobs.values() for node in job.avoid_nodes)
    found = {}
    for node_id, node in sorted(snapshot.nodes.items()):
        reason = rules.reason(node, failing[node_id], policy)
        if reason is not None:
            found[node_id] = f"quarantined: {reason}"
    return found


def without(snapshot: Snapshot, taken: Mapping[NodeId, str]) -> Snapshot:
    """The world as the rest of the plan sees it: those nodes finish what they have."""
    if not taken:
        return snapshot
    nodes = {
        node_id: replace(node, state=NodeState.CORDONED) if node_id in taken else node
        for node_id, node in snapshot.nodes.items()
    }
    return replace(snapshot, nodes=nodes)


def bundles(snapshot: Snapshot, taken: Mapping[NodeId, str]) -> Iterator[ActionBundle]:
    """One for each node. A cloud machine among them is retired once it is idle."""
    for node_id, words in taken.items():
        yield ActionBundle(
            id=f"quarantine:{node_id}",
            actions=(CordonNode(node_id=node_id, words=words),),
            rests_on=(RowRef(kind="node", id=node_id, version=snapshot.nodes[node_id].version),),
        )
