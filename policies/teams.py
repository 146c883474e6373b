"""Who may submit for a team."""

from __future__ import annotations

from hybrid.domain.reasons import NotAMember
from policies.document import PolicyDocument


def refusal(user: str, team: str, policy: PolicyDocument) -> NotAMember | None:
    """Why ``user`` may not submit for ``team``, or None. A team that lists nobody is open to
    everyone whose token is good for it."""
    members = policy.team(team).members
    return NotAMember(user, team) if members and user not in members else None
