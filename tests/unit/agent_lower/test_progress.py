"""What a job says of itself is read as what it is: something a job wrote."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from api.schemas.jobs import ShownProgress
from hybrid.agent.launch import read_progress
from hybrid.agent.protocol import WireProgress
from hybrid.domain.job import Progress


def test_a_report_is_read(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text('{"step": 3, "total": 10, "at": 1.5, "more": "x"}')
    assert read_progress(path) == Progress(step=3, total=10, at=1.5)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"nonsense",
        b"\xff\xfe",
        b"[" * 4000,
        b'{"step": 1, "at": 1}' + b" " * 5000,
        b'{"step": -1, "total": 2, "at": 1}',
        b'{"step": true, "total": 2, "at": 1}',
        b'{"step": 1.5, "total": 2, "at": 1}',
        b'{"step": "1", "total": 2, "at": 1}',
        b'{"step": 1, "total": 2}',
        b'{"step": 1, "total": 2, "at": NaN}',
        b'{"step": 1, "total": 2, "at": Infinity}',
        b'{"step": 1, "total": 2, "at": true}',
        b'{"step": 1, "total": 2, "at": -1}',
        b'{"step": 1, "total": 2, "at": 1772452800000}',  # milliseconds
        b'{"step": 99999999999999999999, "total": 2, "at": 1}',
        b'{"step": 1, "total": 2, "at": ' + b"9" * 3000 + b"}",
    ],
)
def test_garbage_is_no_progress(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "p"
    path.write_bytes(data)
    assert read_progress(path) is None


@pytest.mark.parametrize("number", [0, 1, 1 << 53, 10**11, 10**11 - 0.5])
def test_whatever_is_read_can_be_sent_to_the_server_and_shown(
    tmp_path: Path, number: float
) -> None:
    path = tmp_path / "p"
    for step, at in ((int(number), 1), (1, number)):
        path.write_text(json.dumps({"step": step, "total": step, "at": at}))
        progress = read_progress(path)
        if progress is not None:
            assert WireProgress.of(progress).to_domain() == progress
            assert ShownProgress.maybe(progress) is not None


@pytest.mark.parametrize("kind", ["missing", "directory", "pipe", "link", "huge"])
def test_what_is_no_small_file_is_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "p"
    match kind:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to("/proc/self/environ")
        case "huge":
            with path.open("wb") as file:
                file.truncate(1 << 40)
    assert read_progress(path) is None
