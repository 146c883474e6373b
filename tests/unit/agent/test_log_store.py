"""The server's copy of what runs print."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hybrid.agent.log_store import BadName, LogStore
from hybrid.domain.ids import JobId, RunId

JOB, RUN = JobId("j1"), RunId("j1.1")


def text_of(store: LogStore, offset: int = 0) -> bytes:
    return b"".join(piece.data for piece in store.pieces(JOB, RUN, 0, offset))


def append(store: LogStore, offset: int, data: bytes, *, gap: bool = False) -> int:
    return store.append(JOB, RUN, 0, offset, data, gap=gap)


def test_appending_answers_where_the_log_ends(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    assert append(store, 0, b"hello ") == 6
    assert append(store, 6, b"world") == 11
    assert text_of(store) == b"hello world"
    assert text_of(store, 6) == b"world"
    assert store.end(JOB, RUN, 0) == 11


def test_repeating_a_piece_changes_nothing(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    append(store, 0, b"hello ")
    assert append(store, 0, b"hello ") == 6
    assert append(store, 0, b"hello world") == 11
    assert text_of(store) == b"hello world"


def test_asking_with_nothing_tells_the_end(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    assert append(store, 0, b"") == 0
    append(store, 0, b"abc")
    assert append(store, 0, b"") == 3


def test_a_piece_beyond_the_end_is_not_taken_unless_what_is_missing_is_gone(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    append(store, 0, b"abc")
    assert append(store, 10, b"xyz") == 3
    assert append(store, 10, b"xyz", gap=True) == 13
    assert append(store, 13, b"!") == 14
    assert [(p.offset, p.data) for p in store.pieces(JOB, RUN, 0)] == [(0, b"abc"), (10, b"xyz!")]
    assert store.read(JOB, RUN, 0, 5).offset == 10


def test_a_log_is_bounded_and_keeps_its_newest_bytes_at_their_offsets(tmp_path: Path) -> None:
    store = LogStore(tmp_path, limit_bytes=8_000)
    printed = bytes(i % 251 for i in range(50_000))
    for start in range(0, len(printed), 700):
        append(store, start, printed[start : start + 700])
    assert store.end(JOB, RUN, 0) == 50_000
    assert sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file()) <= 8_000
    first = store.read(JOB, RUN, 0, 0)
    assert 42_000 <= first.offset <= 43_500
    assert text_of(store) == printed[first.offset :]


def test_a_store_opened_anew_goes_on_where_the_old_one_ended(tmp_path: Path) -> None:
    append(LogStore(tmp_path), 0, b"abc")
    assert append(LogStore(tmp_path), 3, b"def") == 6
    assert text_of(LogStore(tmp_path)) == b"abcdef"


def test_ranks_are_those_that_have_printed(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    assert store.ranks(JOB, RUN) == ()
    for rank in (11, 2):
        store.append(JOB, RUN, rank, 0, b"x", gap=False)
    assert store.ranks(JOB, RUN) == (2, 11)


@pytest.mark.parametrize("name", ["..", "a/b", "", ".hidden", "x" * 129, "a\0b"])
def test_names_that_are_no_ids_never_become_paths(tmp_path: Path, name: str) -> None:
    store = LogStore(tmp_path)
    with pytest.raises(BadName):
        store.append(JobId(name), RUN, 0, 0, b"x", gap=False)
    with pytest.raises(BadName):
        store.read(JOB, RunId(name), 0, 0)


def test_dropping_a_job_removes_its_logs_and_no_others(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    append(store, 0, b"abc")
    store.append(JobId("j2"), RunId("j2.1"), 0, 0, b"stays", gap=False)
    store.drop(JOB)
    assert text_of(store) == b""
    assert store.end(JobId("j2"), RunId("j2.1"), 0) == 5


def test_following_yields_what_comes_until_it_is_over(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    append(store, 0, b"one ")
    over = threading.Event()
    following = store.follow(JOB, RUN, 0, over=over.is_set, poll_s=0.05)
    assert next(following).data == b"one "

    def print_more() -> None:
        append(store, 4, b"two")
        over.set()

    thread = threading.Thread(target=print_more)
    thread.start()
    assert b"".join(piece.data for piece in following) == b"two"
    thread.join()


def test_following_gives_up_after_a_long_silence(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    append(store, 0, b"one")
    pieces = store.follow(JOB, RUN, 0, over=lambda: False, poll_s=0.01, idle_s=0.05)
    assert [piece.data for piece in pieces] == [b"one"]
