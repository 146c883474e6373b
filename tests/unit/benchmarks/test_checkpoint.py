"""The checkpoint benchmark's own arithmetic, and one small round against a real server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import checkpoint
from benchmarks.checkpoint import Shape, Times
from benchmarks.object_server import object_server

pytestmark = pytest.mark.filterwarnings("ignore:Your installed version of s3fs")

LARGE = Shape("large", 3, 400_000, few_files=False)
SMALL = Shape("small", 40, 1000, few_files=True)


def test_the_worse_shape_counts_and_of_rounds_the_middle_one() -> None:
    fast = Times(put=10, first=5, delta=1, get=4, restore=2)
    slow = Times(put=9, first=10, delta=3, get=2, restore=4)
    middling = Times(put=8, first=8, delta=2, get=3, restore=3)
    line = checkpoint.figures({LARGE: [fast, slow, middling], SMALL: [fast]})
    assert line["first_ratio"] == 1.0
    assert line["delta_ratio"] == 4.0
    assert line["restore_ratio"] == 1.0
    assert line["shapes"]["small"]["delta_ratio"] == 10.0
    assert line["shapes"]["large"]["put_s"] == 9
    assert [row.reached for row in checkpoint.compare(line)[-3:]] == [True, False, None]


@pytest.mark.parametrize(("shape", "expected"), [(LARGE, 3 * 20_000), (SMALL, 2 * 1000)])
def test_five_per_cent_change_in_place(tmp_path: Path, shape: Shape, expected: int) -> None:
    rng = np.random.default_rng(1)
    checkpoint.write_files(tmp_path / "work", shape, rng)
    before = {path.name: path.read_bytes() for path in (tmp_path / "work").iterdir()}
    assert checkpoint.change_in_place(tmp_path / "work", shape, rng) == expected
    after = {path.name: path.read_bytes() for path in (tmp_path / "work").iterdir()}
    assert {name: len(data) for name, data in after.items()} == dict.fromkeys(
        after, shape.file_bytes
    )
    differ = sum(a != b for name in before for a, b in zip(before[name], after[name], strict=True))
    assert 0.98 * expected < differ <= expected  # one byte in 256 is overwritten by its like


def test_a_round_brings_everything_back(tmp_path: Path) -> None:
    with object_server() as server:
        times = checkpoint.measure_round(tmp_path / "round", LARGE, server.url, 0)
        assert min(times.put, times.first, times.delta, times.get, times.restore) > 0
        spans = server.spans()
    assert spans == sorted(spans)
    assert len(spans) > 10
    assert not (tmp_path / "round").exists()


def test_a_difference_is_seen(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"12345678")
    assert checkpoint.same_files(tmp_path / "one", tmp_path / "other")
    (tmp_path / "other" / "file").write_bytes(b"12345679")
    assert not checkpoint.same_files(tmp_path / "one", tmp_path / "other")
    (tmp_path / "one" / "more").touch()
    assert not checkpoint.same_files(tmp_path / "one", tmp_path / "other")
