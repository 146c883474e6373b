"""The world as a planner would see it now, for questions asked between two plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hybrid.domain.snapshot import Snapshot
from hybrid.ports.clock import Clock
from hybrid.ports.observation import Observation, Unknown
from hybrid.reconcile.views import snapshot_of
from hybrid.runtime.rule_judge import RuleJudge
from hybrid.services.live import Live
from policies.document import PolicyDocument

QUOTE_EVALUATIONS = 20_000


@dataclass(frozen=True, slots=True)
class Sight:
    """Makes snapshots from the rows of now and what the loop last saw outside.

    ``observation`` is None where the loop has seen nothing: before its first tick, and in a
    process that stands by. Then every engine and provider is unknown.
    """

    live: Live
    clock: Clock
    observation: Callable[[], Observation | None]
    engines: tuple[str, ...]
    providers: tuple[str, ...]
    rules: RuleJudge | None = None

    def snapshot(
        self,
        policy: PolicyDocument,
        *,
        at: float | None = None,
        evaluations: int = QUOTE_EVALUATIONS,
    ) -> Snapshot:
        """The frozen world of this moment, or of another one (``at``) by the same rows."""
        now = self.clock.now() if at is None else at
        seen = self.observation()
        snapshot = snapshot_of(
            self.live.world(),
            self._blind(now) if seen is None else seen,
            now=now,
            epoch=0,
            evaluation_budget=evaluations,
            usage_half_life_s=policy.fair_share.half_life,
        )
        return self.judged(snapshot, policy)

    def judged(self, snapshot: Snapshot, policy: PolicyDocument) -> Snapshot:
        """The same world, with the pending jobs that the policy's rules of others hold back."""
        if self.rules is None or not policy.rules:
            return snapshot
        return replace(snapshot, held_back=self.rules.judged(snapshot, policy))

    def _blind(self, now: float) -> Observation:
        nothing = Unknown("this server has not looked yet", now)
        return Observation(
            at=now,
            heard_since=now,
            engines=dict.fromkeys(self.engines, nothing),
            machines=dict.fromkeys(self.providers, nothing),
            offers=dict.fromkeys(self.providers, nothing),
        )
