"""Which of a provider's notices need be kept no longer: they are in the store, or are nobody's."""

from __future__ import annotations

from typing import Final

from hybrid.domain.claim import Claim
from hybrid.domain.ids import MachineId
from hybrid.ports.capacity import Notice, NoticeKind
from hybrid.ports.observation import Known, Observation
from hybrid.ports.store import World

KEPT_S: Final = 300.0
"""After its instant a notice is of no use to anybody."""


def recorded(world: World, observation: Observation) -> dict[str, tuple[Notice, ...]]:
    """By provider, the notices that the store (read after this observation was committed) holds, or
    that concern no machine of ours. What may concern a machine that no claim names yet, its launch
    being unanswered, is kept."""
    found = {}
    for provider, source in observation.machines.items():
        if not isinstance(source, Known) or not source.value.notices:
            continue
        ours = {machine.id for machine in source.value.machines}
        claims = [c for c in world.claims.values() if c.offer.provider == provider]
        by_machine = {c.machine_id: c for c in claims if c.machine_id is not None}
        nameless = any(c.machine_id is None for c in claims)
        found[provider] = tuple(
            notice
            for notice in source.value.notices
            if observation.at > notice.at + KEPT_S
            or _holds(by_machine.get(notice.machine_id), notice, ours, nameless=nameless)
        )
    return {provider: notices for provider, notices in found.items() if notices}


def _holds(claim: Claim | None, notice: Notice, ours: set[MachineId], *, nameless: bool) -> bool:
    if claim is None:
        return notice.machine_id not in ours and not nameless
    if notice.kind is NoticeKind.REBALANCE:
        return claim.rebalance_at is not None
    return claim.notice_at is not None
