"""What a plan of now would say of the jobs that wait.

A decision's row is written when the decision changes, and its times and costs are those of then.
Who asks why a job waits wants to know of now; one plan answers all who ask within a few seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from hybrid.domain.ids import JobId
from hybrid.domain.plan import Decision, Verdict
from hybrid.planning.planner import plan
from hybrid.services.policy import Policies
from hybrid.services.sight import Sight

FRESH_S = 15.0
"""So long what was said holds: plans for those who ask take a small part of one core at most."""


class Foresight:
    """Plans as the loop would, and writes nothing."""

    def __init__(self, policies: Policies, sight: Sight) -> None:
        self._policies, self._sight = policies, sight
        self._lock = threading.Lock()
        self._said_at = 0.0
        self._said: Mapping[JobId, Decision] = {}

    def of_now(self, told: Decision) -> Decision:
        """The decision with the times and costs of now. As it was told where it is fresh, where
        the job does not wait, where this server has not looked at the world yet, and where a plan
        of now would decide otherwise: that is the loop's to do."""
        now = self._sight.clock.now()
        if told.verdict is not Verdict.WAIT or now - told.at < FRESH_S:
            return told
        if self._sight.observation() is None:
            return told
        said = self._decisions(now).get(told.job_id)
        return said if said is not None and said.same_as(told) else told

    def _decisions(self, now: float) -> Mapping[JobId, Decision]:
        with self._lock:  # those who come meanwhile get what is being made
            if now - self._said_at >= FRESH_S:
                version, policy = self._policies.current()
                made = plan(self._sight.snapshot(policy), policy, version.version)
                self._said = {decision.job_id: decision for decision in made.decisions}
                self._said_at = now
            return self._said
