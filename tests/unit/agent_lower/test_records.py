"""Orders are checked before anything runs, and two stops make the harder one."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from hybrid.agent.guardian import InvalidOrder, Outcome, RunOrder
from hybrid.agent.guardian.durable import (
    MAX_RECORD_BYTES,
    publish_reserved,
    read_record,
    reserve,
    write_record,
    write_record_once,
)
from hybrid.agent.guardian.processes import ProcessIdentity
from hybrid.agent.guardian.records import (
    HARDNESS,
    Ended,
    Started,
    Stopping,
    StopRequest,
    harder_cause,
)
from hybrid.domain.job import StopCause

GOOD: dict[str, Any] = {
    "run_id": "j.1",
    "job_id": "j",
    "attempt": 1,
    "argv": ("true",),
    "env": {"A": "b"},
    "cwd": "/",
}


def test_causes_are_those_of_the_domain_in_its_order() -> None:
    assert tuple(cause.value for cause in StopCause) == HARDNESS


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run_id", "../x"),
        ("run_id", ""),
        ("job_id", "a/b"),
        ("argv", ()),
        ("argv", ("",)),
        ("argv", ("a\0b",)),
        ("env", {"A": "\0"}),
        ("grace_s", -1),
        ("grace_s", float("nan")),
        ("grace_s", 1e9),
        ("walltime_s", 0),
        ("stop_signal", "SIGNONE"),
        ("output_limit_bytes", 10),
    ],
)
def test_a_bad_order_is_refused_by_field(field: str, value: object) -> None:
    with pytest.raises(InvalidOrder, match=field.split("_")[0]):
        RunOrder(**{**GOOD, field: value})


def test_an_order_reads_back_as_it_was_written() -> None:
    order = RunOrder(**GOOD, walltime_s=5.0, cleanup=(("a", "b"),), rank=3)
    assert RunOrder.from_record(json.loads(json.dumps(order.to_record()))) == order


@pytest.mark.parametrize("record", [{}, {**GOOD, "argv": None}, {**GOOD, "env": []}])
def test_a_record_that_is_no_order_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(InvalidOrder, match=r"spec\.json"):
        RunOrder.from_record(record)


@pytest.mark.parametrize(
    ("first", "second", "wins"),
    [
        ("return", "cancel", "cancel"),
        ("cancel", "return", "cancel"),
        ("lease", "lease", "lease"),
        ("preempt", "unheard-of", "preempt"),
        ("unheard-of", "return", "return"),
    ],
)
def test_the_harder_cause_wins(first: str, second: str, wins: str) -> None:
    assert harder_cause(first, second) == wins


def test_two_stops_take_the_harder_cause_and_the_earlier_deadline() -> None:
    one, other = StopRequest("cancel", 50.0), StopRequest("drain", 20.0)
    assert one.merged(other) == other.merged(one) == StopRequest("cancel", 20.0)


@pytest.mark.parametrize("record", [None, {}, {"cause": "x"}, {"deadline_boottime_s": []}])
def test_garbage_is_no_record(record: dict[str, Any] | None) -> None:
    assert StopRequest.from_record(record) is None
    assert Started.from_record(record) is None
    assert Stopping.from_record(record) is None
    assert Ended.from_record(record) is None


@pytest.mark.parametrize(
    ("code", "signal", "error", "outcome"),
    [
        (0, None, None, Outcome.DONE),
        (85, None, None, Outcome.CHECKPOINTED),
        (2, None, None, Outcome.FAILED),
        (None, "SIGKILL", None, Outcome.FAILED),
        (None, None, "cannot start", Outcome.FAILED),
        (None, None, None, Outcome.UNKNOWN),
    ],
)
def test_the_outcome_follows_from_the_exit(
    code: int | None, signal: str | None, error: str | None, outcome: Outcome
) -> None:
    ended = Ended("j.1", "j", 1, code, signal, None, 2.0, 1.0, error=error)
    assert ended.outcome is outcome
    assert Ended.from_record(json.loads(json.dumps(ended.to_record()))) == ended


def test_a_record_is_created_once(tmp_path: Path) -> None:
    path = tmp_path / "claimed"
    assert write_record_once(path, {"by": 1}) is True
    assert write_record_once(path, {"by": 2}) is False
    assert read_record(path) == {"by": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["claimed"]


def test_a_reserved_record_is_published_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    reserve(tmp_path / "reserve")
    assert (tmp_path / "reserve").stat().st_blocks > 0
    assert publish_reserved(tmp_path / "reserve", tmp_path / "ended", {"a": 1}) is True
    assert publish_reserved(tmp_path / "reserve", tmp_path / "ended", {"a": 2}) is False
    reserve(tmp_path / "reserve")
    assert publish_reserved(tmp_path / "reserve", tmp_path / "ended", {"a": 3}) is False
    assert read_record(tmp_path / "ended") == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["ended"]


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"[" * 100_000, b" " * (MAX_RECORD_BYTES + 1)],
    ids=["empty", "cut", "a list", "deep", "huge"],
)
def test_an_unreadable_record_is_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "r").write_bytes(data)
    assert read_record(tmp_path / "r") is None


def test_a_record_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    write_record(tmp_path / "r", {"a": 1})
    with pytest.raises(TypeError):
        write_record(tmp_path / "r", {"a": object()})
    assert read_record(tmp_path / "r") == {"a": 1}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_a_record_is_overwritten_where_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    write_record(tmp_path / "lease", {"until": 1, "long": "x" * 100})
    create = os.open

    def no_room(path: Any, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number))
        return create(path, flags, mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_room)
        write_record(tmp_path / "lease", {"until": 2})
        with pytest.raises(OSError, match=os.strerror(number)):
            write_record(tmp_path / "new", {"until": 2})
    assert read_record(tmp_path / "lease") == {"until": 2}


def test_another_process_with_the_same_pid_is_not_the_same_process() -> None:
    own = ProcessIdentity.of(os.getpid())
    assert own.is_alive()
    assert not ProcessIdentity(own.pid, own.boot_id, own.start_ticks + 1).is_alive()
    assert not ProcessIdentity(own.pid, "another boot", own.start_ticks).is_alive()
    assert ProcessIdentity(own.pid, "another boot", own.start_ticks).send(9) is False
