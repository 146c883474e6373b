"""Taking a job in: whose it is, whether it can ever run, once per idempotency key."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import JobId
from hybrid.domain.job import Job, JobState
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.reasons import Contradiction, Reason
from hybrid.domain.snapshot import Snapshot
from hybrid.domain.transitions import Step
from hybrid.planning.admit import admission
from hybrid.ports.access import ArtifactIndex
from hybrid.ports.clock import Clock
from hybrid.ports.store import Bundle, DropCause, Note, Put, Remember, Store
from hybrid.services.access import Principal
from hybrid.services.errors import Conflict, Fault, NotNow, Refused
from hybrid.services.policy import Policies
from hybrid.services.sight import Sight
from policies.document import PolicyDocument
from policies.teams import refusal as team_refusal

KEPT_S = 86_400.0
"""How long an idempotency key stands for its job."""
TRIES = 4
_ALPHABET = "abcdefghjkmnpqrstvwxyz23456789"
"""Without letters that are taken for each other."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job, and whether it had been submitted under the same key before."""

    job: Job
    replayed: bool


@dataclass(frozen=True, slots=True)
class Submission:
    """Takes jobs in. ``poke`` wakes the loop."""

    store: Store
    artifacts: ArtifactIndex
    policies: Policies
    sight: Sight
    clock: Clock
    poke: Callable[[], None]

    def submit(self, asker: Principal, spec: JobSpec, *, key: str | None = None) -> Submitted:
        """Take a job in, or say why not.

        Raises NotAllowed for a team that is not the asker's, Refused with the planner's typed
        reason for what can never run, Conflict when the key stands for another body.
        """
        team = asker.paying_team(spec.team)
        body = digest(spec)
        if key is not None and (before := self._before(team, key, body)) is not None:
            return Submitted(before, replayed=True)
        job = self.drafted(asker, spec, team)
        self.refuse_impossible(job)
        for _ in range(TRIES):
            job = replace(job, id=_fresh_id())
            done = self.store.commit([self._bundle(job, key, body)], at=job.submitted_at)
            if not done.dropped:
                self.poke()
                kept = self.store.job(job.id)
                return Submitted(job if kept is None else kept, replayed=False)
            if key is not None and (before := self._before(team, key, body)) is not None:
                return Submitted(before, replayed=True)
            if done.dropped[0].cause is DropCause.LINT:
                break
        raise NotNow("not_taken", "the job could not be written down; submit it again")

    def drafted(self, asker: Principal, spec: JobSpec, team: str) -> Job:
        """The job that the spec would become, written nowhere."""
        now = self.clock.now()
        return Job(
            id=JobId("draft"),
            spec=spec.model_copy(update={"team": team}),
            team=team,
            user=asker.name,
            state=JobState.PENDING,
            submitted_at=now,
            queued_at=now,
            history=(Step(JobState.PENDING, now, "submitted"),),
        )

    def refuse_impossible(self, job: Job) -> tuple[Snapshot, PolicyDocument, int]:
        """Raise Refused if the job can never run; else the world and policy it was judged by."""
        _refuse_unprintable(job.spec)
        workdir = job.spec.workdir
        if workdir is not None and self.artifacts.artifact(workdir, job.team) is None:
            said = f"team {job.team} has uploaded nothing with this digest"
            hint = f"PUT the archive to /v1/artifacts/{workdir} first"
            raise Refused("no_such_workdir", said, errors=[Fault("workdir", said, hint)])
        version, policy = self.policies.current()
        reason: Reason | None = team_refusal(job.user, job.team, policy)
        snapshot = self.sight.snapshot(policy)
        if reason is None:
            reason = admission(
                job.spec,
                job.team,
                snapshot.nodes.values(),
                snapshot.pools.values(),
                snapshot.offers,
                policy,
                snapshot.now,
                user=job.user,
                unknown=[gap.source for gap in snapshot.unknown],
            )
        if reason is not None:
            raise refused(reason)
        return snapshot, policy, version.version

    def _before(self, team: str, key: str, body: str) -> Job | None:
        found = self.store.remembered(team, key, now=self.clock.now())
        if found is None:
            return None
        if found.body_sha256 != body:
            raise Conflict(
                "idempotency_key_reused",
                f"this Idempotency-Key stands for job {found.job_id}, which was asked for"
                " differently: use another key",
            )
        return self.store.job(found.job_id)

    def _bundle(self, job: Job, key: str | None, body: str) -> Bundle:
        at = job.submitted_at
        event = Event(
            kind=EventKind.JOB,
            subject=job.id,
            what="submitted",
            at=at,
            words=f"{job.spec.name}, submitted by {job.user} for team {job.team}",
            job_id=job.id,
            actor=job.user,
        )
        remember = (
            ()
            if key is None
            else (
                Remember(
                    team=job.team,
                    key=key,
                    body_sha256=body,
                    job_id=job.id,
                    at=at,
                    expires_at=at + KEPT_S,
                ),
            )
        )
        return Bundle(id=f"submit:{job.id}", changes=(Put(job), Note(event), *remember))


def refused(reason: Reason) -> Refused:
    """A planner's reason as an error, at the place of the spec that it is about."""
    if isinstance(reason, Contradiction):
        parts = zip(reason.paths, reason.constraints, strict=True)
        faults = [Fault(path, words) for path, words in parts]
        return Refused(reason.code, str(reason), errors=faults)
    path = _PLACES.get(reason.code, "")
    return Refused(reason.code, str(reason), errors=[Fault(path, str(reason))] if path else ())


_PLACES = {
    "unknown_gpu": "resources.gpu.models",
    "no_such_hardware": "resources",
    "too_many_gpus_per_node": "resources.gpus",
    "gpu_memory_too_small": "resources.gpu.memory",
    "class_not_allowed": "priority",
    "deadline_in_the_past": "deadline",
    "not_a_member": "team",
    "misses_deadline": "deadline",
    "walltime_too_short": "walltime",
    "no_container_runtime": "image",
}


def digest(spec: JobSpec) -> str:
    """What tells two specs apart, however they were written."""
    canonical = json.dumps(spec.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _fresh_id() -> JobId:
    return JobId("j" + "".join(secrets.choice(_ALPHABET) for _ in range(10)))


def _refuse_unprintable(spec: JobSpec) -> None:
    """No program, variable or path holds a NUL: it would end there for the operating system."""
    places = [(f"command.{i}", part) for i, part in enumerate(spec.command)]
    places += [(f"env.{name}", value) for name, value in spec.env.items()]
    places += [(f"outputs.{i}", path) for i, path in enumerate(spec.outputs)]
    for path, text in places:
        if "\0" in text:
            said = "holds a NUL character"
            raise Refused("invalid_request", f"{path}: {said}", errors=[Fault(path, said)])
