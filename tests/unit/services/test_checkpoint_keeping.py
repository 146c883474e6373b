"""What ended jobs have left in the checkpoint store goes, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybrid.agent.checkpoints import CheckpointStore, CommitRequest, StoreUnavailable
from hybrid.agent.checkpoints.objects import open_objects
from hybrid.domain.job import JobState
from hybrid.services.checkpoint_keeping import CheckpointKeeping
from tests.doubles.build import NOW, a_job
from tests.unit.services.conftest import HandClock, Place

DAY_S = 86_400.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def opened(folder: Path, clock: HandClock) -> CheckpointStore:
    return CheckpointStore(open_objects(str(folder)), chunk_bytes=4096, clock=clock.now)


def keeping(place: Place, folder: Path) -> CheckpointKeeping:
    return CheckpointKeeping(
        place.store, place.clock, lambda: opened(folder, place.clock), 7 * DAY_S, lambda: True
    )


def commit(folder: Path, clock: HandClock, job_id: str, work: Path, step: int = 1) -> None:
    work.mkdir(exist_ok=True)
    (work / "state").write_bytes(f"{job_id} at {step}".encode() * 500)
    request = CommitRequest(job_id=job_id, run_id=f"{job_id}.1", attempt=1, step=step)
    opened(folder, clock).commit(request, work)


def test_checkpoints_go_when_their_job_has_ended_for_long_enough(
    place: Place, folder: Path, tmp_path: Path
) -> None:
    ended = {"state": JobState.SUCCEEDED, "ended_at": NOW}
    place.put(a_job("old", **ended), a_job("goes-on"))
    for job_id in ("old", "goes-on", "a-strangers"):
        commit(folder, place.clock, job_id, tmp_path / job_id)
    place.clock.at = NOW + 6 * DAY_S
    assert keeping(place, folder).sweep().forgotten == ()
    place.clock.at = NOW + 8 * DAY_S
    done = keeping(place, folder).sweep()
    assert done.forgotten == ("old",)
    left = opened(folder, place.clock)
    assert left.job_ids() == ("a-strangers", "goes-on")
    for job_id in left.job_ids():
        assert left.restore(job_id, tmp_path / f"{job_id}-back") is not None
        back = (tmp_path / f"{job_id}-back" / "state").read_bytes()
        assert back == (tmp_path / job_id / "state").read_bytes()


def test_a_store_that_cannot_be_used_from_here_is_no_fault_of_the_server(place: Place) -> None:
    def away() -> CheckpointStore:
        raise StoreUnavailable("s3://bucket: no route")

    sweeper = CheckpointKeeping(place.store, place.clock, away, DAY_S, lambda: True)
    assert sweeper.try_to_sweep() is None
    sweeper.start()
    sweeper.stop()
