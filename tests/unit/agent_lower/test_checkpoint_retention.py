"""Old checkpoints go; nothing that a live manifest or a running commit needs goes with them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hybrid.agent.checkpoints import CheckpointStore, CommitRequest, ManifestRef, StoreUnavailable
from hybrid.agent.checkpoints.retention import expired

from .memory_objects import MemoryObjects

CHUNK = 256 << 10
HOUR = 3600.0


def refs(*seqs: int, rank: int = 0) -> list[tuple[ManifestRef, float | None]]:
    return [(ManifestRef("j", seq, rank), float(seq)) for seq in seqs]


@pytest.mark.parametrize(
    ("keep_last", "max_age_s", "gone"),
    [
        (1, None, [1, 2, 3]),
        (3, None, [1]),
        (9, None, []),
        (9, 7.0, [1, 2]),
        (9, 0.0, [1, 2, 3]),
        (2, 6.5, [1, 2, 3]),
        (2, 7.5, [1, 2]),
    ],
)
def test_old_manifests_go_by_count_and_by_age(
    keep_last: int, max_age_s: float | None, gone: list[int]
) -> None:
    found = expired(refs(1, 2, 3, 4), keep_last=keep_last, max_age_s=max_age_s, now=10.0)
    assert [ref.seq for ref in found] == gone


def test_the_last_one_of_every_rank_stays_however_old() -> None:
    both = [*refs(1, 2), *refs(1, rank=1)]
    found = expired(both, keep_last=1, max_age_s=0.0, now=1e9)
    assert found == (ManifestRef("j", 1, 0),)


def test_an_age_that_the_store_does_not_tell_removes_nothing() -> None:
    unknown = [(ref, None) for ref, _ in refs(1, 2)]
    assert expired(unknown, keep_last=5, max_age_s=0.0, now=1e9) == ()


def test_keeping_none_is_refused() -> None:
    with pytest.raises(ValueError, match="keep_last"):
        expired([], keep_last=0, max_age_s=None, now=0.0)


class World:
    def __init__(self, tmp_path: Path) -> None:
        self.memory = MemoryObjects()
        self.store = CheckpointStore(self.memory, chunk_bytes=CHUNK, clock=lambda: self.memory.now)
        self.work = tmp_path / "work"
        self.work.mkdir()

    def commit(self, seed: int, job_id: str = "j", size: int = CHUNK) -> None:
        (self.work / "state").write_bytes(random.Random(seed).randbytes(size))
        self.store.commit(CommitRequest(job_id=job_id, run_id="r", attempt=1, step=seed), self.work)

    def chunks(self) -> set[str]:
        return set(self.memory.keys("chunks/"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_chunks_that_nobody_names_go_after_the_grace(world: World) -> None:
    world.commit(1)
    first = world.chunks()
    world.commit(2)
    world.store.expire("j", keep_last=1)
    world.memory.now += HOUR / 2
    assert world.store.gc().chunks_removed == 0
    world.memory.now += HOUR
    report = world.store.gc()
    assert (report.chunks_removed, report.bytes_removed) == (1, CHUNK)
    assert world.chunks().isdisjoint(first)


def test_a_chunk_that_another_job_names_stays(world: World) -> None:
    world.commit(1, "j")
    world.commit(1, "other")
    world.store.forget("j")
    world.memory.now += 9 * HOUR
    assert world.store.gc().chunks_removed == 0
    assert world.store.latest("other") is not None


def test_what_a_running_commit_has_sent_is_not_collected(world: World) -> None:
    seen: list[int] = []

    def collect_during_the_commit(operation: str, key: str) -> None:
        if operation == "put" and key.startswith("manifests/"):
            # The commit has been under way for hours: its chunks are old and nobody names them.
            world.memory.now += 5 * HOUR
            world.memory.fail = lambda *_: None
            seen.append(world.store.gc().chunks_removed)

    world.memory.fail = collect_during_the_commit
    world.commit(1)
    assert seen == [0]
    world.memory.now += 9 * HOUR
    assert world.store.gc().chunks_removed == 0
    assert world.store.latest("j") is not None


def test_a_commit_that_was_abandoned_protects_its_chunks_for_a_day(world: World) -> None:
    def die(operation: str, key: str) -> Exception | None:
        gone = operation == "delete" or (key.startswith("manifests/") and operation == "put")
        return ValueError("killed") if gone else None

    world.memory.fail = die
    with pytest.raises(ValueError, match="killed"):
        world.commit(1)
    world.memory.fail = lambda *_: None
    assert len(world.memory.keys("pending/")) == 1
    world.memory.now += 20 * HOUR
    assert world.store.gc().chunks_removed == 0
    world.memory.now += 5 * HOUR
    assert world.store.gc().chunks_removed == 1
    assert world.memory.keys("pending/") == []


def test_an_old_chunk_that_is_found_by_chance_is_sent_again(world: World) -> None:
    world.commit(1)
    world.store.forget("j")
    world.memory.now += HOUR
    sent = world.memory.count("put", "chunks/")
    world.commit(1)
    assert world.memory.count("put", "chunks/") == sent + 1
    world.memory.now += HOUR / 4
    assert world.store.gc().chunks_removed == 0


def test_a_manifest_that_cannot_be_read_stops_the_collection(world: World) -> None:
    world.commit(1)
    world.commit(2)
    key = ManifestRef("j", 100_001).key
    world.memory.data[key] = (b"garbage", world.memory.now)
    world.memory.now += 9 * HOUR
    report = world.store.gc()
    assert (report.chunks_removed, report.unreadable) == (0, (key,))


def test_a_store_that_tells_no_ages_keeps_everything(world: World) -> None:
    world.commit(1)
    world.store.forget("j")
    world.memory.tells_age = False
    world.memory.now += 99 * HOUR
    assert world.store.gc().chunks_removed == 0


def test_a_listing_that_fails_removes_nothing(world: World) -> None:
    world.commit(1)
    world.store.forget("j")
    world.memory.now += 9 * HOUR
    world.memory.fail = lambda op, key: (
        StoreUnavailable("no") if op == "list" and key == "manifests" else None
    )
    with pytest.raises(StoreUnavailable):
        world.store.gc()
    assert len(world.chunks()) == 1


def test_small_changes_do_not_pile_up_what_is_kept(world: World) -> None:
    """A long run that changes a little each time: the store stays within a few times its size."""
    size = 4 * CHUNK
    rng = random.Random(0)
    state = bytearray(rng.randbytes(size))
    path = world.work / "state"
    for step in range(60):
        start = rng.randrange(0, size - 1000)
        state[start : start + 1000] = rng.randbytes(1000)
        path.write_bytes(state)
        world.store.commit(CommitRequest(job_id="j", run_id="r", attempt=1, step=step), world.work)
        world.store.expire("j", keep_last=1)
        world.memory.now += 2 * HOUR
        world.store.gc()
    kept = sum(len(world.memory.data[key][0]) for key in world.chunks())
    assert kept <= 4 * size
    assert len(world.chunks()) <= 24
    world.store.restore("j", world.work.parent / "out")
    assert (world.work.parent / "out/state").read_bytes() == bytes(state)
