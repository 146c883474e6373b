"""A checkpoint is whole or not there; what has not changed is neither read nor sent again."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hybrid.agent.checkpoints import (
    CheckpointStore,
    CommitRequest,
    CorruptCheckpoint,
    ManifestRef,
    Objects,
    SnapshotChanged,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnsafeEntry,
)
from hybrid.agent.checkpoints.local import LocalObjects
from hybrid.agent.checkpoints.manifest import Manifest
from hybrid.agent.checkpoints.objects import open_objects

from .memory_objects import MemoryObjects, times

CHUNK = 256 << 10
BLOCK = 128 << 10


def request(**fields: Any) -> CommitRequest:
    return CommitRequest(**{"job_id": "j", "run_id": "j.1", "attempt": 1, "step": 5, **fields})


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def fill(root: Path, **files: bytes) -> Path:
    root.mkdir(exist_ok=True)
    for name, data in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def age(root: Path) -> None:
    """As if everything had been written a while ago."""
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (1_000, 1_000))


def content(root: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()
    }


@pytest.fixture
def memory() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def store(memory: MemoryObjects) -> CheckpointStore:
    return CheckpointStore(memory, chunk_bytes=CHUNK, clock=lambda: memory.now)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return fill(tmp_path / "work", big=noise(1_000_000), small=b"s", sub__deep=b"d", empty=b"")


KINDS: dict[str, Callable[[Path], Objects]] = {
    "memory": lambda _: MemoryObjects(),
    "local": lambda tmp_path: LocalObjects(tmp_path / "store"),
    "fsspec": lambda tmp_path: open_objects(f"memory://{tmp_path}"),
    "fsspec on files": lambda tmp_path: open_objects(f"local://{tmp_path}/remote"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_committed_is_restored(kind: str, tmp_path: Path, work: Path) -> None:
    (work / "latest").symlink_to("sub/deep")
    (work / "bare").mkdir()
    (work / "big").chmod(0o640)
    store = CheckpointStore(KINDS[kind](tmp_path), chunk_bytes=CHUNK)
    report = store.commit(request(gpu_model="h100"), work)
    assert (report.seq, report.step, report.published) == (100_001, 5, True)
    assert (report.files, report.size_bytes) == (4, 1_000_002)
    info = store.latest("j")
    assert info is not None
    assert (info.seq, info.step, info.gpu_model) == (100_001, 5, "h100")
    target = tmp_path / "out"
    restored = store.restore("j", target)
    assert restored is not None
    assert (restored.seq, restored.step, restored.size_bytes) == (100_001, 5, 1_000_002)
    assert content(target) == content(work)
    assert (target / "latest").readlink() == Path("sub/deep")
    assert (target / "bare").is_dir()
    assert (target / "big").stat().st_mode & 0o777 == 0o640
    assert (target / "big").stat().st_mtime_ns == (work / "big").stat().st_mtime_ns


@pytest.mark.parametrize("kind", KINDS)
def test_retention_and_collection_work_on_every_store(
    kind: str, tmp_path: Path, work: Path
) -> None:
    objects = KINDS[kind](tmp_path)
    now = time.time() + 10_000
    if isinstance(objects, MemoryObjects):
        objects.now = now - 10_000
    store = CheckpointStore(objects, chunk_bytes=CHUNK, clock=lambda: now)
    store.commit(request(), work)
    (work / "big").write_bytes(noise(1_000_000, 1))
    store.commit(request(step=6), work)
    assert store.gc().chunks_removed == 0
    assert store.expire("j", keep_last=1) == (ManifestRef("j", 100_001),)
    collected = store.gc()
    assert collected.chunks_removed > 0
    assert collected.bytes_removed > 700_000
    assert store.restore("j", tmp_path / "out") is not None
    assert content(tmp_path / "out") == content(work)
    assert store.gc().chunks_removed == 0
    assert store.forget("j") == 1
    assert store.latest("j") is None


def test_a_job_without_checkpoints_has_none(store: CheckpointStore, tmp_path: Path) -> None:
    assert store.latest("j") is None
    assert store.restore("j", tmp_path / "out") is None
    assert not (tmp_path / "out").exists()


def test_an_empty_directory_is_a_checkpoint_too(store: CheckpointStore, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    assert store.commit(request(), tmp_path / "w").files == 0
    assert store.restore("j", tmp_path / "out") is not None
    assert list((tmp_path / "out").iterdir()) == []


def test_a_changed_block_is_all_that_is_sent(
    store: CheckpointStore, memory: MemoryObjects, work: Path
) -> None:
    store.commit(request(), work)
    with (work / "big").open("r+b") as file:
        file.seek(3 * BLOCK + 7)
        file.write(b"changed")
    report = store.commit(request(), work)
    assert (report.sent_bytes, report.chunks_sent) == (BLOCK, 1)


def test_files_that_did_not_change_are_not_read_again(
    store: CheckpointStore, work: Path, tmp_path: Path
) -> None:
    age(work)
    stamps = tmp_path / "stamps"
    assert store.commit(request(), work, stamps).read_bytes == 1_000_002
    (work / "small").write_bytes(b"S")
    report = store.commit(request(), work, stamps)
    assert (report.read_bytes, report.sent_bytes, report.published) == (1, 1, True)


def test_a_file_written_a_moment_ago_is_read_again_although_its_times_agree(
    store: CheckpointStore, work: Path, tmp_path: Path
) -> None:
    stamps = tmp_path / "stamps"
    store.commit(request(), work, stamps)
    before = (work / "small").stat()
    with (work / "small").open("r+b") as file:
        file.write(b"X")
    os.utime(work / "small", ns=(before.st_mtime_ns, before.st_mtime_ns))
    assert store.commit(request(), work, stamps).published is True


@pytest.mark.parametrize("garbage", [b"", b"{}", b"[]", b'{"manifest": 1, "files": []}'])
def test_a_lost_or_broken_stamps_file_costs_reading_only(
    store: CheckpointStore, work: Path, tmp_path: Path, garbage: bytes
) -> None:
    age(work)
    store.commit(request(), work, tmp_path / "stamps")
    (tmp_path / "stamps").write_bytes(garbage)
    report = store.commit(request(), work, tmp_path / "stamps")
    assert (report.read_bytes, report.sent_bytes, report.published) == (1_000_002, 0, False)


def test_an_unchanged_directory_makes_no_new_checkpoint(
    store: CheckpointStore, memory: MemoryObjects, work: Path
) -> None:
    first = store.commit(request(), work)
    again = store.commit(request(step=6), work)
    assert (again.seq, again.step, again.published) == (first.seq, 5, False)
    assert len(memory.keys("manifests/")) == 1


@pytest.mark.parametrize("change", ["mode", "new file", "file gone", "new directory", "new link"])
def test_any_change_makes_a_new_checkpoint(
    store: CheckpointStore, work: Path, tmp_path: Path, change: str
) -> None:
    store.commit(request(), work)
    match change:
        case "mode":
            (work / "small").chmod(0o700)
        case "new file":
            (work / "new").write_bytes(b"")
        case "file gone":
            (work / "small").unlink()
        case "new directory":
            (work / "more").mkdir()
        case "new link":
            (work / "link").symlink_to("small")
    assert store.commit(request(), work).published is True
    store.restore("j", tmp_path / "out")
    assert content(tmp_path / "out") == content(work)


def test_a_restored_checkpoint_is_built_upon_without_reading_it(
    memory: MemoryObjects, work: Path, tmp_path: Path
) -> None:
    age(work)
    CheckpointStore(memory, chunk_bytes=CHUNK).commit(request(), work)
    elsewhere = CheckpointStore(memory, chunk_bytes=CHUNK)
    elsewhere.restore("j", tmp_path / "out", stamps_file=tmp_path / "stamps")
    (tmp_path / "out/new").write_bytes(b"n")
    report = elsewhere.commit(
        request(attempt=2, run_id="j.2"), tmp_path / "out", tmp_path / "stamps"
    )
    assert (report.seq, report.read_bytes, report.sent_bytes) == (200_001, 1, 1)


def test_thousands_of_small_files_need_few_requests(
    store: CheckpointStore, memory: MemoryObjects, tmp_path: Path
) -> None:
    work = tmp_path / "w"
    work.mkdir()
    for i in range(500):
        (work / f"f{i}").write_bytes(noise(1000, i))
    report = store.commit(request(), work)
    assert (report.files, report.chunks_sent) == (500, 2)
    store.restore("j", tmp_path / "out")
    assert content(tmp_path / "out") == content(work)


def test_equal_blocks_are_kept_once(store: CheckpointStore, tmp_path: Path) -> None:
    same = noise(BLOCK)
    work = fill(tmp_path / "w", a=same * 3, b=same, c=same + b"tail")
    assert store.commit(request(), work).sent_bytes == BLOCK + 4
    store.restore("j", tmp_path / "out")
    assert content(tmp_path / "out") == content(work)


def test_half_written_files_never_travel(store: CheckpointStore, tmp_path: Path) -> None:
    work = fill(tmp_path / "w", a=b"1", b__c=b"2")
    fill(work, **{"x.tmp": b"half", "b__y.tmp": b"half", "dir.tmp__z": b"half"})
    store.commit(request(), work)
    store.restore("j", tmp_path / "out")
    assert content(tmp_path / "out") == {"a": b"1", "b/c": b"2"}


@pytest.mark.parametrize("kind", ["pipe", "link out", "absolute link"])
def test_what_cannot_be_carried_is_refused_by_name(
    store: CheckpointStore, memory: MemoryObjects, work: Path, kind: str
) -> None:
    match kind:
        case "pipe":
            os.mkfifo(work / "odd")
        case "link out":
            (work / "odd").symlink_to("../elsewhere")
        case "absolute link":
            (work / "odd").symlink_to("/etc/passwd")
    with pytest.raises(UnsafeEntry) as refused:
        store.commit(request(), work)
    assert refused.value.path == "odd"
    assert memory.keys("manifests/") == []


# -- a job that writes meanwhile ---------------------------------------------------------------


def test_a_file_that_keeps_changing_is_never_published(
    store: CheckpointStore, memory: MemoryObjects, work: Path
) -> None:
    (work / "big").write_bytes(noise(20 * CHUNK))

    def scribble(operation: str, key: str) -> None:
        # Reading waits for sending now and then, so the file changes while it is being read.
        if operation == "put" and key.startswith("chunks/"):
            with (work / "big").open("r+b") as file:
                for start in range(0, 20 * CHUNK, BLOCK):
                    file.seek(start)
                    file.write(os.urandom(8))

    memory.fail = scribble
    with pytest.raises(SnapshotChanged) as refused:
        store.commit(request(), work)
    assert refused.value.path == "big"
    assert memory.keys("manifests/") == []
    assert memory.keys("pending/") == []


def test_a_job_that_wrote_a_moment_ago_may_be_in_the_middle_of_it(
    store: CheckpointStore, memory: MemoryObjects, tmp_path: Path
) -> None:
    work = fill(tmp_path / "w", first=b"1")
    second = threading.Timer(0.1, (work / "second").write_bytes, [b"2"])
    second.start()
    report = store.commit(request(), work, quiet_s=0.3)
    second.join()
    assert (report.files, report.snapshots_tried) == (2, 2)


def test_a_change_during_the_commit_makes_it_start_over(
    store: CheckpointStore, memory: MemoryObjects, work: Path, tmp_path: Path
) -> None:
    changed = threading.Event()

    def change_once(operation: str, key: str) -> None:
        if operation == "put" and key.startswith("chunks/") and not changed.is_set():
            changed.set()
            (work / "small").write_bytes(b"changed meanwhile")
            (work / "appeared").write_bytes(b"new")

    memory.fail = change_once
    report = store.commit(request(), work)
    assert report.snapshots_tried == 2
    assert report.read_bytes < 1_100_000  # what stayed was not read twice
    store.restore("j", tmp_path / "out")
    assert content(tmp_path / "out") == content(work)


# -- a store that misbehaves -------------------------------------------------------------------


def test_an_interrupted_commit_publishes_nothing_and_sends_the_rest_later(
    store: CheckpointStore, memory: MemoryObjects, work: Path
) -> None:
    sent = [0]

    def full_after_two(operation: str, key: str) -> Exception | None:
        if operation == "put" and key.startswith("chunks/"):
            sent[0] += 1
            if sent[0] > 2:
                return StoreFull("no room")
        return None

    memory.fail = full_after_two
    with pytest.raises(StoreFull):
        store.commit(request(), work)
    assert memory.keys("manifests/") == []
    assert store.latest("j") is None
    assert len(memory.keys("chunks/")) == 2
    memory.fail = lambda *_: None
    report = store.commit(request(), work)
    assert report.chunks_sent == len(memory.keys("chunks/")) - 2


def test_the_checkpoint_before_stands_when_the_store_turns_read_only(
    store: CheckpointStore, memory: MemoryObjects, work: Path
) -> None:
    store.commit(request(), work)
    memory.fail = lambda operation, _: StoreReadOnly("no") if operation == "put" else None
    (work / "big").write_bytes(noise(1_000_000, 1))
    with pytest.raises(StoreReadOnly):
        store.commit(request(step=6), work)
    info = store.latest("j")
    assert info is not None
    assert info.step == 5


@pytest.mark.parametrize("operation", ["put", "info", "list"])
def test_a_store_that_stumbles_is_asked_again(
    store: CheckpointStore, memory: MemoryObjects, work: Path, operation: str
) -> None:
    memory.fail = times(1, operation)
    assert store.commit(request(), work).published is True


def test_an_answer_that_is_lost_does_no_harm(
    store: CheckpointStore, memory: MemoryObjects, work: Path, tmp_path: Path
) -> None:
    memory.execute_then_fail = True
    memory.fail = times(1, "put", "manifests/")
    store.commit(request(), work)
    store.restore("j", tmp_path / "out")
    assert content(tmp_path / "out") == content(work)


def test_a_store_that_stays_away_is_said_to_be(
    store: CheckpointStore, memory: MemoryObjects, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    memory.fail = times(1000, "put", "chunks/")
    with pytest.raises(StoreUnavailable):
        store.commit(request(), work)
    assert memory.keys("manifests/") == []


def _spoil(memory: MemoryObjects, how: str, seq: int, chunk: str) -> None:
    manifest = ManifestRef("j", seq).key
    match how:
        case "manifest cut":
            memory.data[manifest] = (memory.data[manifest][0][:-40], memory.now)
        case "manifest altered":
            data = memory.data[manifest][0].replace(b'"step":6', b'"step":7')
            memory.data[manifest] = (data, memory.now)
        case "manifest of another":
            memory.data[manifest] = memory.data[ManifestRef("j", seq - 1).key]
        case "chunk gone":
            del memory.data[chunk]
        case "chunk cut":
            memory.data[chunk] = (memory.data[chunk][0][:-1], memory.now)
        case "chunk altered":
            data = bytearray(memory.data[chunk][0])
            data[0] ^= 1
            memory.data[chunk] = (bytes(data), memory.now)


@pytest.mark.parametrize(
    "how",
    [
        "manifest cut",
        "manifest altered",
        "manifest of another",
        "chunk gone",
        "chunk cut",
        "chunk altered",
    ],
)
def test_a_spoilt_checkpoint_is_passed_over_for_the_one_before(
    memory: MemoryObjects, tmp_path: Path, how: str
) -> None:
    store = CheckpointStore(memory, chunk_bytes=CHUNK)
    store.commit(request(), fill(tmp_path / "w", a=b"old"))
    old = set(memory.keys("chunks/"))
    store.commit(request(step=6), fill(tmp_path / "w", a=b"new"))
    (chunk,) = set(memory.keys("chunks/")) - old
    _spoil(memory, how, 100_002, chunk)
    reader = CheckpointStore(memory, chunk_bytes=CHUNK)
    info = reader.latest("j")
    assert info is not None
    # An altered chunk has its size: only reading it tells.
    assert info.step == (6 if how == "chunk altered" else 5)
    restored = reader.restore("j", tmp_path / "out")
    assert restored is not None
    assert restored.step == 5
    assert content(tmp_path / "out") == {"a": b"old"}
    with pytest.raises(CorruptCheckpoint):
        reader.restore("j", tmp_path / "out2", seq=100_002)
    assert not (tmp_path / "out2").exists()


def test_a_failed_restore_leaves_what_was_there(
    store: CheckpointStore, memory: MemoryObjects, work: Path, tmp_path: Path
) -> None:
    store.commit(request(), work)
    target = fill(tmp_path / "out", mine=b"m")
    memory.data.pop(memory.keys("chunks/")[0])
    assert store.restore("j", target) is None
    assert content(target) == {"mine": b"m"}
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_restore_replaces_the_whole_directory(
    store: CheckpointStore, work: Path, tmp_path: Path
) -> None:
    store.commit(request(), work)
    target = fill(tmp_path / "out", stale=b"x", small=b"other")
    store.restore("j", target)
    assert content(target) == content(work)


def test_a_commit_upon_a_spoilt_checkpoint_starts_afresh(
    memory: MemoryObjects, work: Path, tmp_path: Path
) -> None:
    CheckpointStore(memory, chunk_bytes=CHUNK).commit(request(), work)
    memory.data.pop(memory.keys("chunks/")[0])
    again = CheckpointStore(memory, chunk_bytes=CHUNK)
    report = again.commit(request(), work)
    assert (report.seq, report.published) == (100_002, True)
    again.restore("j", tmp_path / "out")
    assert content(tmp_path / "out") == content(work)


def test_a_manifest_from_a_hostile_store_writes_nothing_outside(
    memory: MemoryObjects, tmp_path: Path
) -> None:
    store = CheckpointStore(memory, chunk_bytes=CHUNK)
    store.commit(request(), fill(tmp_path / "w", a=b"x"))
    ref = ManifestRef("j", 100_001)
    good = Manifest.decode(ref, memory.data[ref.key][0])
    bad: list[dict[str, Any]] = [
        {"files": (replace(good.files[0], path="../evil"),)},
        {"files": (replace(good.files[0], path="/tmp/evil"),)},
        {"files": (replace(good.files[0], path="l/evil"),), "links": (("l", "."),)},
        {"links": (("l", "../.."),)},
        {"links": (("l", "/etc"),)},
        {"directories": (("../d", 0o755),)},
    ]
    for fields in bad:
        memory.data[ref.key] = (replace(good, **fields).encode(), memory.now)
        with pytest.raises(CorruptCheckpoint):
            store.restore("j", tmp_path / "place" / "out", seq=ref.seq)
    assert not (tmp_path / "evil").exists()
    assert [*tmp_path.glob("place/*")] == []


# -- attempts and gangs ------------------------------------------------------------------------


def test_a_late_commit_of_an_earlier_attempt_outranks_nothing(
    store: CheckpointStore, tmp_path: Path
) -> None:
    store.commit(request(attempt=2, run_id="j.2", step=50), fill(tmp_path / "w", a=b"second"))
    late = store.commit(request(attempt=1, step=90), fill(tmp_path / "v", a=b"late"))
    assert late.seq == 100_001
    info = store.latest("j")
    assert info is not None
    assert info.step == 50


def test_a_gangs_checkpoint_is_the_last_step_that_every_rank_has(
    store: CheckpointStore, tmp_path: Path
) -> None:
    def commit(rank: int, step: int | None) -> None:
        work = fill(tmp_path / f"r{rank}", state=f"{rank} at {step}".encode())
        store.commit(request(rank=rank, nodes=2, step=step), work)

    commit(0, 10)
    assert store.latest("j", nodes=2) is None
    commit(1, 10)
    commit(0, 20)
    commit(0, 30)
    commit(1, 30)
    commit(1, 40)
    info = store.latest("j", nodes=2)
    assert info is not None
    assert info.step == 30
    assert info.refs == (ManifestRef("j", 100_003, 0), ManifestRef("j", 100_002, 1))
    for rank in (0, 1):
        restored = store.restore("j", tmp_path / f"out{rank}", seq=info.seq, rank=rank, nodes=2)
        assert restored is not None
        assert content(tmp_path / f"out{rank}") == {"state": f"{rank} at 30".encode()}
    assert store.expire("j", keep_last=1, nodes=2) == (
        ManifestRef("j", 100_001, 0),
        ManifestRef("j", 100_001, 1),
        ManifestRef("j", 100_002, 0),
    )
    info = store.latest("j", nodes=2)
    assert info is not None
    assert info.step == 30


def test_a_gangs_old_checkpoints_go_by_age_but_never_the_last(tmp_path: Path) -> None:
    now = [1_000.0]
    store = CheckpointStore(open_objects(str(tmp_path / "s")), clock=lambda: now[0])
    for step in (10, 20):
        for rank in (0, 1):
            work = fill(tmp_path / f"r{rank}", state=f"{rank} at {step}".encode())
            store.commit(request(rank=rank, nodes=2, step=step), work)
        now[0] += 100
    assert store.expire("j", keep_last=5, max_age_s=1_000, nodes=2) == ()
    now[0] += 10_000
    gone = store.expire("j", keep_last=5, max_age_s=1_000, nodes=2)
    assert gone == (ManifestRef("j", 100_001, 0), ManifestRef("j", 100_001, 1))
    info = store.latest("j", nodes=2)
    assert info is not None
    assert info.step == 20


def test_parts_without_a_step_are_no_gang_checkpoint(
    store: CheckpointStore, tmp_path: Path
) -> None:
    for rank in (0, 1):
        store.commit(request(rank=rank, nodes=2, step=None), fill(tmp_path / f"r{rank}", a=b"x"))
    assert store.latest("j", nodes=2) is None
    assert store.expire("j", keep_last=1, nodes=2) == ()


@pytest.mark.parametrize("job_id", ["../j", "", "a/b", ".hidden"])
def test_a_job_id_that_is_a_path_is_refused(store: CheckpointStore, job_id: str) -> None:
    with pytest.raises(ValueError, match="not a job's id"):
        store.latest(job_id)
