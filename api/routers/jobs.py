"""Jobs: submit, list, show, cancel, timeline, explain."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Header, Query, Request, Response, status
from fastapi.openapi.models import Example

from api.deps import IdPath, Product, Submitter, Viewer
from api.problems import documented
from api.schemas.jobs import Explanation, JobLine, JobPage, ShownEvent, ShownJob, Timeline
from hybrid.domain.ids import JobId
from hybrid.domain.job import JobState
from hybrid.domain.job_spec import JobSpec
from hybrid.ports.store import JobFilter
from hybrid.services.jobs import MAX_PAGE

router = APIRouter(tags=["jobs"])

SPEC_EXAMPLES: dict[str, Example] = {
    "one GPU": {
        "summary": "A training job on any one GPU with 40 GiB",
        "value": {
            "name": "train",
            "command": ["python", "train.py", "--epochs", "3"],
            "resources": {"gpus": 1, "gpu": {"memory": "40GiB"}, "memory": "32GiB"},
            "expected_runtime": "2h",
            "checkpoint": {"enabled": True, "interval": "10m", "size": "2GiB"},
        },
    },
    "gang": {
        "summary": "Two machines with eight linked GPUs each, by a deadline, on spot if need be",
        "value": {
            "name": "pretrain",
            "priority": "high",
            "command": ["torchrun", "--nproc-per-node=8", "pretrain.py"],
            "image": "registry.example/pretrain:1.4",
            "resources": {"nodes": 2, "gpus": 8, "gpu": {"models": ["h100"], "link": "nvlink"}},
            "expected_runtime": "9h",
            "walltime": "20h",
            "deadline": "2031-05-02T08:00:00Z",
            "max_cost": "900",
            "checkpoint": {"enabled": True, "interval": "15m", "size": "80GiB"},
        },
    },
}
Spec = Annotated[JobSpec, Body(openapi_examples=SPEC_EXAMPLES)]

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,255}$",
        description="Of your choice. For 24 hours the same key of the same team stands for the"
        " job it first submitted, however often it is sent.",
    ),
]
Words = Annotated[str | None, Query(max_length=255, pattern=r"^[^\x00-\x1f]+$")]


@router.post(
    "/jobs",
    status_code=status.HTTP_201_CREATED,
    responses={
        201: {
            "headers": {
                "Location": {"description": "Where the job is", "schema": {"type": "string"}},
                "Idempotency-Replayed": {
                    "description": "true when the key stood for the job already",
                    "schema": {"type": "string"},
                },
            }
        },
        **documented(409, 413, 415, 503),
    },
)
def submit_job(
    spec: Spec,
    request: Request,
    response: Response,
    app: Product,
    who: Submitter,
    key: Key = None,
) -> ShownJob:
    """Submit a job. One that can never run is refused at once, with the reason as `code`:
    `unknown_gpu`, `too_many_gpus_per_node`, `deadline_in_the_past` and so on."""
    taken = app.submission.submit(who, spec, key=key)
    response.headers["Location"] = str(request.url_for("get_job", job_id=taken.job.id).path)
    if taken.replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return ShownJob.told(app.jobs.story(who, taken.job.id), {})


@router.get("/jobs")
def list_jobs(
    app: Product,
    who: Viewer,
    state: Annotated[list[JobState] | None, Query(description="Any of these")] = None,
    team: Words = None,
    user: Words = None,
    priority: Words = None,
    name: Words = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    cursor: Annotated[str | None, Query(max_length=255)] = None,
) -> JobPage:
    """Jobs, newest first, those of your teams."""
    which = JobFilter(states=tuple(state or ()), team=team, user=user, priority=priority, name=name)
    page = app.jobs.list(who, which, limit=limit, cursor=cursor)
    world = app.live.world()
    running = {run.job_id: run for run in world.runs.values()}
    return JobPage(
        jobs=tuple(
            JobLine.of(job, running.get(job.id), world.decisions.get(job.id)) for job in page.jobs
        ),
        next_cursor=page.next_cursor,
    )


@router.get("/jobs/{job_id}", responses=documented(404))
def get_job(job_id: IdPath, app: Product, who: Viewer) -> ShownJob:
    """A job with its runs and its last decision."""
    return ShownJob.told(app.jobs.story(who, JobId(job_id)), app.progress())


@router.post("/jobs/{job_id}:cancel", responses=documented(404, 409, 503))
def cancel_job(job_id: IdPath, app: Product, who: Submitter) -> ShownJob:
    """Cancel a job. One that runs is stopped first: it is `cancel_requested` until then.
    Cancelling again changes nothing; a job that ended otherwise is `already_ended`."""
    app.jobs.cancel(who, JobId(job_id))
    return ShownJob.told(app.jobs.story(who, JobId(job_id)), app.progress())


@router.get("/jobs/{job_id}/timeline", responses=documented(404))
def get_timeline(
    job_id: IdPath,
    app: Product,
    who: Viewer,
    after: Annotated[int, Query(ge=0, le=2**62)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> Timeline:
    """What happened to a job, in order."""
    found = app.jobs.timeline(who, JobId(job_id), after=after, limit=limit)
    return Timeline(
        job_id=job_id,
        events=tuple(ShownEvent.of(seq, event) for seq, event in found),
        next_after=found[-1][0] if len(found) == limit else None,
    )


@router.get("/jobs/{job_id}/explain", responses=documented(404, 409))
def explain_job(
    job_id: IdPath,
    app: Product,
    who: Viewer,
    where: Annotated[
        str | None,
        Query(
            max_length=255,
            pattern=r"^[^\x00-\x1f]+$",
            description="A pool, a machine type or an offer: why the job is not there.",
        ),
    ] = None,
) -> Explanation:
    """Why a job is where it is: every option with its cost, term by term, or the first guard that
    refused it. What is said of a job that waits is of now, unless a plan of now would decide
    otherwise. With `where`, why it is not in that place: planned anew, from what is known now."""
    if where is not None:
        return Explanation.of(app.explaining.where(who, JobId(job_id), where))
    return Explanation.of(app.explaining.why(who, JobId(job_id)))
