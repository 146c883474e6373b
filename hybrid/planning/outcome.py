"""What the steps of one planning have come to."""

from __future__ import annotations

from dataclasses import dataclass, field

from hybrid.domain.ids import ClaimId, JobId, RunId
from hybrid.domain.run import Run
from hybrid.planning.adopt import Adoption
from hybrid.planning.burst import Burst
from hybrid.planning.choices import Start, Waiting
from hybrid.planning.consolidate import Consolidation
from hybrid.planning.preempt import Preempting, Preemption, Spared
from hybrid.planning.return_home import Homecoming
from hybrid.planning.schedule import Schedule


@dataclass(slots=True)
class Outcome:
    """What the steps have come to, for the report."""

    schedule: Schedule
    waiting: list[Waiting]
    bursts: dict[JobId, Burst] = field(default_factory=dict)
    adoptions: dict[JobId, Adoption] = field(default_factory=dict)
    placed: dict[JobId, tuple[Start, Run]] = field(default_factory=dict)
    preemptions: dict[JobId, Preemption] = field(default_factory=dict)
    spared: dict[JobId, Spared] = field(default_factory=dict)
    """Why jobs that may preempt do not, as last weighed."""
    homecomings: dict[RunId, Homecoming] = field(default_factory=dict)
    """What coming home was weighed at, for those that come and those that do not."""
    consolidations: dict[ClaimId, Consolidation] = field(default_factory=dict)
    """What giving up a machine for others was weighed at, whether or not that is done."""
    complete: bool = True

    def preempted(self, found: Preempting) -> bool:
        """Note what was decided for jobs that may preempt; whether any run stops for one."""
        self.preemptions.update(found.chosen)
        self.spared.update(found.spared)
        return bool(found.chosen)

    def consolidation_of(self, run: Run) -> Consolidation | None:
        """What was weighed for the machine of a run."""
        found = (self.consolidations.get(claim_id) for claim_id in run.claim_ids)
        return next((one for one in found if one is not None), None)
