"""Why a job is where it is, and why it is not in some place that its user has in mind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches

from hybrid.domain.ids import JobId
from hybrid.domain.job import JobState
from hybrid.planning.why_not import places, why_not
from hybrid.services.access import Principal
from hybrid.services.errors import Conflict, NotFound
from hybrid.services.foresight import Foresight
from hybrid.services.jobs import Jobs, JobStory
from hybrid.services.policy import Policies
from hybrid.services.sight import Sight

_NEAREST = 5


@dataclass(frozen=True, slots=True)
class Explaining:
    """Tells what was decided, and asks the planner what it would say now. Nothing is written."""

    jobs: Jobs
    policies: Policies
    sight: Sight
    foresight: Foresight

    def why(self, asker: Principal, job_id: JobId) -> JobStory:
        """The job's story; what is said of one that waits is of now. Raises NotFound."""
        story = self.jobs.story(asker, job_id)
        if story.decision is None or story.job.state is not JobState.PENDING:
            return story
        return replace(story, decision=self.foresight.of_now(story.decision))

    def where(self, asker: Principal, job_id: JobId, name: str) -> JobStory:
        """The job's story, its decision narrowed to the pool, machine type or offer of that name.

        Raises NotFound for a job or a place that there is not, Conflict for a job that has ended.
        """
        story = self.jobs.story(asker, job_id)
        if story.job.state.ended:
            said = f"job {job_id} has {story.job.state} already: it goes nowhere any more"
            raise Conflict("already_ended", said)
        version, policy = self.policies.current()
        snapshot = self.sight.snapshot(policy)
        known = places(snapshot)
        if name not in known:
            near = get_close_matches(name, known, _NEAREST) or known[:_NEAREST]
            hint = f"; there are: {', '.join(near)}" if near else ""
            raise NotFound("no_such_place", f"no pool, machine type or offer is {name!r}{hint}")
        decision = why_not(snapshot, policy, version.version, story.job, name)
        return replace(story, decision=decision)
