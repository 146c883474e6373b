"""Logs stay within their bound and keep their offsets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hybrid.agent.guardian import log_size, read_log
from hybrid.agent.guardian.output import BoundedLog, LineMerger


def write_all(directory: Path, data: bytes, limit_bytes: int, piece: int = 7) -> BoundedLog:
    log = BoundedLog(directory / "output.log", limit_bytes)
    for start in range(0, len(data), piece):
        log.write(data[start : start + piece])
    log.close()
    return log


def read_all(directory: Path, offset: int = 0, step: int = 11) -> tuple[int, bytes]:
    first = read_log(directory, offset, step)
    data = first.data
    chunk = first
    while chunk.data:
        chunk = read_log(directory, chunk.next_offset, step)
        data += chunk.data
    return first.offset, data


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 399, 400, 401, 1000, 12345])
def test_what_is_kept_is_the_end_and_bytes_keep_their_offset(tmp_path: Path, size: int) -> None:
    data = bytes(i * 7 % 251 for i in range(size))
    write_all(tmp_path, data, 400)
    start, kept = read_all(tmp_path)
    assert kept == data[start:]
    assert len(kept) >= min(size, 300)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 400
    assert log_size(tmp_path) == size


def test_reading_at_the_end_gives_nothing_at_the_same_offset(tmp_path: Path) -> None:
    write_all(tmp_path, b"x" * 50, 400)
    chunk = read_log(tmp_path, 50, 100)
    assert (chunk.offset, chunk.data, chunk.next_offset) == (50, b"", 50)


def test_a_log_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    assert read_log(tmp_path, 0, 100).data == b""
    assert log_size(tmp_path) == 0


def test_a_full_disk_loses_output_and_counts_it(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "output.log", 400)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, log._fd)
    os.close(full)
    log.write(b"x" * 30)
    assert log.lost_bytes == 30
    log.close()


def test_a_log_that_cannot_be_rotated_loses_output_and_goes_on(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "output.log", 400)
    log.write(b"a" * 100)
    (tmp_path / ".output.log.next").mkdir()
    log.write(b"b" * 10)
    assert log.lost_bytes == 10
    (tmp_path / ".output.log.next").rmdir()
    log.write(b"c" * 10)
    log.close()
    assert read_all(tmp_path) == (0, b"a" * 100 + b"c" * 10)


def test_lines_of_two_streams_are_not_mixed(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "output.log", 4000)
    merger = LineMerger(log)
    merger.feed("stdout", b"one ")
    merger.feed("stderr", b"error\n")
    merger.feed("stdout", b"two\nthree")
    merger.flush()
    log.close()
    assert read_all(tmp_path)[1] == b"error\none two\nthree"


def test_a_line_without_an_end_is_not_held_for_ever(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "output.log", 1 << 20)
    LineMerger(log).feed("stdout", b"x" * 20_000)
    log.close()
    assert log_size(tmp_path) == 20_000
