"""Listing, showing and cancelling jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hybrid.domain.ids import JobId
from hybrid.domain.job import Job, JobState
from hybrid.ports.access import Role
from hybrid.ports.store import Bundle, JobFilter, Put
from hybrid.services.access import Principal
from hybrid.services.errors import Conflict, NotFound, Refused
from hybrid.services.jobs import Jobs
from tests.doubles.build import NOW, a_job, a_local_pool, a_node, a_run
from tests.unit.services.conftest import Place


@pytest.fixture
def jobs(place: Place) -> Jobs:
    return Jobs(place.store, place.clock, place.poke)


def test_a_job_that_runs_nowhere_is_cancelled_here_and_now(
    jobs: Jobs, place: Place, ann: Principal
) -> None:
    place.put(a_job("j1"))
    job = jobs.cancel(ann, JobId("j1"))
    assert (job.state, job.cancel_requested, job.ended_at) == (JobState.CANCELLED, True, NOW)
    assert [(e.what, e.actor) for _, e in place.store.events(job_id=JobId("j1"))] == [
        ("cancelled", "ann")
    ]
    assert place.poke.count == 1


def test_cancelling_twice_is_as_cancelling_once(jobs: Jobs, place: Place, ann: Principal) -> None:
    place.put(a_job("j1"))
    first = jobs.cancel(ann, JobId("j1"))
    assert jobs.cancel(ann, JobId("j1")) == first
    assert place.poke.count == 1


def test_a_running_job_is_asked_to_stop_and_the_loop_is_woken(
    jobs: Jobs, place: Place, ann: Principal
) -> None:
    place.put(a_local_pool(), a_node(), a_job("j1", JobState.RUNNING, attempts=1), a_run("j1"))
    job = jobs.cancel(ann, JobId("j1"))
    assert (job.state, job.cancel_requested) == (JobState.RUNNING, True)
    assert place.poke.count == 1
    assert jobs.cancel(ann, JobId("j1")) == job
    assert [e.what for _, e in place.store.events(job_id=JobId("j1"))] == ["cancel_requested"]


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED])
def test_a_job_that_has_ended_cannot_be_cancelled(
    jobs: Jobs, place: Place, ann: Principal, state: JobState
) -> None:
    place.put(a_job("j1", state, ended_at=NOW))
    with pytest.raises(Conflict) as caught:
        jobs.cancel(ann, JobId("j1"))
    assert (caught.value.code, caught.value.detail) == (
        "already_ended",
        f"job j1 has {state} already",
    )


def test_a_job_that_moves_meanwhile_is_cancelled_as_it_is_then(
    jobs: Jobs, place: Place, ann: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.put(a_local_pool(), a_node(), a_job("j1"))
    real = place.store.runs_of
    moved = False

    def runs_of(job_id: JobId) -> object:
        nonlocal moved
        found = real(job_id)
        if not moved:
            moved = True
            job = place.store.job(job_id)
            assert job is not None
            placed = replace(job.to(JobState.PLACED, at=NOW), attempts=1)
            run = replace(a_run("j1"), version=0)
            place.store.commit([Bundle(id="place", changes=(Put(placed), Put(run)))], at=NOW)
        return found

    monkeypatch.setattr(place.store, "runs_of", runs_of)
    job = jobs.cancel(ann, JobId("j1"))
    assert (job.state, job.cancel_requested) == (JobState.PLACED, True)


def test_jobs_of_other_teams_do_not_exist(jobs: Jobs, place: Place, bob: Principal) -> None:
    place.put(a_job("j1"))
    for ask in (jobs.get, jobs.story, jobs.timeline, jobs.cancel):
        with pytest.raises(NotFound) as caught:
            ask(bob, JobId("j1"))
        assert caught.value.code == "no_such_job"
    unchanged = place.store.job(JobId("j1"))
    assert unchanged is not None
    assert not unchanged.cancel_requested


def test_a_listing_holds_the_askers_teams_only(
    jobs: Jobs, place: Place, ann: Principal, bob: Principal, admin: Principal
) -> None:
    place.put(a_job("j1"), a_job("j2", team="blue"), a_job("j3", submitted_at=NOW + 1))

    def seen(asker: Principal, **which: object) -> list[str]:
        page = jobs.list(asker, JobFilter(**which), limit=10)  # type: ignore[arg-type]
        return [job.id for job in page.jobs]

    assert seen(ann) == ["j3", "j1"]
    assert seen(bob) == ["j2"]
    assert seen(bob, team="red") == []
    assert seen(admin) == ["j3", "j2", "j1"]
    assert seen(Principal(name="nobody", role=Role.VIEWER, teams=())) == []


def test_pages_follow_each_other_without_gap_or_repetition(
    jobs: Jobs, place: Place, admin: Principal
) -> None:
    place.put(*(a_job(f"j{i}", submitted_at=NOW + i // 2) for i in range(7)))
    seen: list[Job] = []
    cursor: str | None = None
    for _ in range(4):
        page = jobs.list(admin, JobFilter(), limit=2, cursor=cursor)
        seen += page.jobs
        cursor = page.next_cursor
        if cursor is None:
            break
    assert [job.id for job in seen] == ["j6", "j5", "j4", "j3", "j2", "j1", "j0"]
    assert cursor is None


def test_a_cursor_of_ones_own_making_is_refused(jobs: Jobs, admin: Principal) -> None:
    with pytest.raises(Refused) as caught:
        jobs.list(admin, JobFilter(), limit=2, cursor="tomorrow")
    assert (caught.value.code, caught.value.errors[0].path) == ("bad_cursor", "query.cursor")


def test_a_story_has_all_runs_and_a_timeline_its_events(
    jobs: Jobs, place: Place, ann: Principal
) -> None:
    place.put(a_local_pool(), a_node(), a_job("j1", JobState.RUNNING, attempts=1), a_run("j1"))
    story = jobs.story(ann, JobId("j1"))
    assert (story.job.id, [run.id for run in story.runs], story.decision) == (
        "j1",
        ["j1.1"],
        None,
    )
    jobs.cancel(ann, JobId("j1"))
    ((seq, event),) = jobs.timeline(ann, JobId("j1"))
    assert event.words == "ann asked to cancel it"
    assert jobs.timeline(ann, JobId("j1"), after=seq) == ()
