"""What a job would get if it were submitted now, without submitting it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hybrid.domain.job_spec import JobSpec
from hybrid.domain.plan import Decision
from hybrid.planning.quote import quote
from hybrid.services.access import Principal
from hybrid.services.submission import Submission


@dataclass(frozen=True, slots=True)
class Quoting:
    """Asks the planner. Nothing is written."""

    submission: Submission

    def quote(self, asker: Principal, spec: JobSpec) -> tuple[str, Decision]:
        """The team that would pay, and the planner's decision for the job; raises what
        submitting it would raise."""
        team = asker.paying_team(spec.team)
        job = self.submission.drafted(asker, spec, team)
        snapshot, policy, version = self.submission.refuse_impossible(job)
        with_it = replace(snapshot, jobs={**snapshot.jobs, job.id: job})
        return team, quote(self.submission.sight.judged(with_it, policy), policy, version, job)
