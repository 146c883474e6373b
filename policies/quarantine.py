"""Whether a node is taken out of use until a person has looked at it."""

from __future__ import annotations

from hybrid.domain.node import Node, NodeState
from hybrid.domain.reasons import FailsJobs, GpusUnhealthy, Reason
from policies.document import PolicyDocument

BY_A_PERSON = "uncordoned by "
"""How the history of a node tells that a person has let it take runs again."""


def reason(node: Node, failing_jobs: int, policy: PolicyDocument) -> Reason | None:
    """Why a node that takes runs is to take no new ones, or None.

    ``failing_jobs`` counts the live jobs that have failed on it and go elsewhere since. A person's
    word stands: a node that was uncordoned by one is left alone until it has left and come back.
    """
    rules = policy.quarantine
    if not rules.enabled or node.state is not NodeState.READY or _let_in_by_a_person(node):
        return None
    broken = [gpu for gpu in node.gpus if not gpu.healthy]
    if broken and len(broken) >= rules.unhealthy_gpus * len(node.gpus):
        return GpusUnhealthy(len(broken), len(node.gpus), broken[0].health_reason)
    if failing_jobs >= rules.failing_jobs:
        return FailsJobs(failing_jobs)
    return None


def _let_in_by_a_person(node: Node) -> bool:
    return bool(node.history) and node.history[-1].cause.startswith(BY_A_PERSON)
