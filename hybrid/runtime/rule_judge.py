"""Asks the rules of others about pending jobs, each rule in a thread of its own and for a time.

A rule that cannot be had, raises, answers something else than text or nothing, or takes too long
lets nothing start that it should have been asked about: every job concerned waits, and says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from hybrid.domain.ids import JobId
from hybrid.domain.job import Job, JobState
from hybrid.domain.reasons import Reason, RuleFailed, RuleObjects
from hybrid.domain.snapshot import Snapshot
from policies.document import PolicyDocument
from policies.rules import Rule
from policies.sections import RuleUse

log = structlog.get_logger(__name__)

LIMIT_S = 1.0
"""What one rule may take for all jobs of one plan."""

MOST_LETTERS = 500
"""Of what a rule says."""


@dataclass(slots=True)
class _Asked:
    """What a rule has answered so far; written by its thread, read when the time is over."""

    answers: dict[JobId, Reason | None] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class RuleJudge:
    """``load`` finds a rule by its name and may raise whatever it likes."""

    load: Callable[[str], Rule]
    limit_s: float = LIMIT_S
    _stuck: dict[RuleUse, str] = field(default_factory=dict)

    def judged(self, snapshot: Snapshot, policy: PolicyDocument) -> Mapping[JobId, Reason]:
        """The first objection to each pending job that there is one to."""
        if not policy.rules:
            return {}
        pending = [job for _, job in sorted(snapshot.jobs.items()) if job.state is JobState.PENDING]
        found: dict[JobId, Reason] = {}
        for use in policy.rules:
            left = [job for job in pending if job.id not in found]
            found.update(self.ask(use, left, snapshot))
        return found

    def ask(self, use: RuleUse, jobs: Sequence[Job], snapshot: Snapshot) -> dict[JobId, Reason]:
        """One rule's objections."""
        if not jobs:
            return {}
        if use in self._stuck:
            # its thread may still be at it: it is not asked again under the same terms
            return self._all_wait(use, jobs, self._stuck[use])
        try:
            rule = self.load(use.name)
        except Exception as problem:  # noqa: BLE001  what is asked here is anybody's
            return self._all_wait(use, jobs, f"it cannot be had: {problem}")
        asked = _Asked()
        thread = threading.Thread(
            target=_work,
            args=(asked, rule, use, jobs, snapshot),
            name=f"rule-{use.name}",
            daemon=True,
        )
        thread.start()
        if not asked.over.wait(self.limit_s):
            self._stuck[use] = f"it took longer than {self.limit_s:g} s"
            log.error("rule took too long", rule=use.name, limit_s=self.limit_s)
        answers = dict(asked.answers)
        late = RuleFailed(use.name, self._stuck.get(use, ""))
        judged = {job.id: answers.get(job.id, late) for job in jobs}
        return {job_id: reason for job_id, reason in judged.items() if reason is not None}

    def _all_wait(self, use: RuleUse, jobs: Sequence[Job], words: str) -> dict[JobId, Reason]:
        reason = RuleFailed(use.name, words[:MOST_LETTERS])
        return {job.id: reason for job in jobs}


def _work(asked: _Asked, rule: Rule, use: RuleUse, jobs: Sequence[Job], snapshot: Snapshot) -> None:
    for job in jobs:
        asked.answers[job.id] = _answer(rule, use, job, snapshot)
    asked.over.set()


def _answer(rule: Rule, use: RuleUse, job: Job, snapshot: Snapshot) -> Reason | None:
    try:
        said: object = rule(job, snapshot, use.settings)
    except Exception as problem:  # noqa: BLE001  what is asked here is anybody's
        words = f"it raised {type(problem).__name__}: {problem}"
        return RuleFailed(use.name, words[:MOST_LETTERS])
    if said is None:
        return None
    if not isinstance(said, str) or not said.strip():
        kind = "nothing to read" if isinstance(said, str) else type(said).__name__
        return RuleFailed(use.name, f"it answered {kind} where text or None is wanted")
    return RuleObjects(use.name, said[:MOST_LETTERS])
