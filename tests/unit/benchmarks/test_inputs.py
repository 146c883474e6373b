"""A folder that a benchmark cannot use: one line that says which file and why, no traceback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import backfill, bursting, placement, spot
from benchmarks.inputs import InputError, read_json, reading

ROOT = Path(__file__).parents[3]
MAINS = {
    "backfill": backfill.main,
    "bursting": bursting.main,
    "placement": placement.main,
    "spot": spot.main,
}


@pytest.mark.parametrize("name", MAINS)
def test_an_empty_folder_ends_a_benchmark_with_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        MAINS[name](["--data", str(tmp_path), "--quick"])
    said = str(ended.value)
    assert said.startswith(f"benchmarks.{name}: {tmp_path}")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("published", "words"),
    [
        ("{", "published.json: Expecting property name"),
        ("7", "published.json: 'int' object is not iterable"),
        ('[{"load": 1.0}]', "published.json: 'seed' is missing"),
        ("[]", "published.json names no workload"),
        (
            '[{"load": 1.0, "seed": 3, "compute_wait": {"cloud_gpu_hours": 1, "mean_wait_h": 1}}]',
            "load1.0_seed3.csv: No such file or directory",
        ),
    ],
)
def test_what_is_wrong_with_published_figures_is_named(
    tmp_path: Path, published: str, words: str
) -> None:
    (tmp_path / "published.json").write_text(published)
    with pytest.raises(InputError) as refused:
        bursting.read_workloads(tmp_path) or bursting.measure(tmp_path)
    assert words in str(refused.value)


def test_the_command_prints_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.spot", "--data", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"benchmarks.spot: {tmp_path / 'windows.jsonl'}: No such file or directory\n"
    )


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (lambda path: {}["jobs"], "'jobs' is missing"),
        (lambda path: float("soon"), "could not convert string to float: 'soon'"),
    ],
)
def test_the_file_is_named_once(
    tmp_path: Path, fails: Callable[[Path], object], words: str
) -> None:
    path = tmp_path / "table.csv"
    with pytest.raises(InputError) as refused, reading(tmp_path), reading(path):
        fails(path)
    assert str(refused.value) == f"{path}: {words}"


def test_a_document_with_a_mark_at_its_beginning_is_read(tmp_path: Path) -> None:
    path = tmp_path / "published.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(path) == {"a": 1}
