"""Job traces are read as published, and a bad one is refused with its place."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from hybrid.simulation.traces import (
    HOURS,
    MILLISECONDS,
    BadTrace,
    TraceJob,
    read_archive,
    read_table,
)


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def packed(folder: Path, **files: str) -> Path:
    path = folder / "traces.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "."))
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def test_hours_become_seconds_and_jobs_come_in_order_of_arrival(tmp_path: Path) -> None:
    path = written(tmp_path, "job_id,arrival_h,runtime_h,gpus\nb,2.0,0.5,8\na,1.0,0.25,1\n")
    assert read_table(path, HOURS) == (
        TraceJob("a", 3600.0, 900.0, 1),
        TraceJob("b", 7200.0, 1800.0, 8),
    )


def test_a_table_without_ids_numbers_its_jobs(tmp_path: Path) -> None:
    path = written(tmp_path, "num_gpu,submit_time,duration,other\n4,2000,3000,x\n")
    assert read_table(path, MILLISECONDS) == (TraceJob("0", 2.0, 3.0, 4),)


def test_an_archive_has_one_trace_per_table_and_skips_the_rest(tmp_path: Path) -> None:
    table = "job_id,submission_time,duration,num_gpu\nx,5,7,2\n"
    path = packed(tmp_path, cluster01__csv=table, LICENSE="MIT")
    assert read_archive(path) == {"cluster01": (TraceJob("x", 5.0, 7.0, 2),)}


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match=r"trace\.csv"):
        read_archive(written(tmp_path, "nothing of the kind"))


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="there is no column gpus"):
        read_table(written(tmp_path, "job_id,arrival_h,runtime_h\n"), HOURS)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        pytest.param("a,nan,1,1", "arrives at nan", id="no-number"),
        pytest.param("a,-1,1,1", "arrives at -1", id="before-the-beginning"),
        pytest.param("a,0,inf,1", "runs for inf", id="for-ever"),
        pytest.param("a,0,1,-1", "takes -1 GPUs", id="less-than-no-gpus"),
        pytest.param("a,0,1,1.5", "1.5 is no whole number", id="part-of-a-gpu"),
        pytest.param("a,0,1,nan", "line 2", id="gpus-no-number"),
        pytest.param("a,0,1", "line 2", id="short-row"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(tmp_path: Path, row: str, words: str) -> None:
    path = written(tmp_path, f"job_id,arrival_h,runtime_h,gpus\n{row}\n")
    with pytest.raises(BadTrace, match=words) as refused:
        read_table(path, HOURS)
    assert "line 2" in str(refused.value)


def test_what_spreadsheets_make_of_a_table_is_read_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xef\xbb\xbfarrival_h,runtime_h,gpus,note\r\n1.0,0.5,2.0,x\r\n\r\n")
    assert read_table(path, HOURS) == (TraceJob("0", 3600.0, 1800.0, 2),)


def test_jobs_without_a_gpu_are_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, "job_id,arrival_h,runtime_h,gpus\na,0,1,0\nb,1,1,1\n")
    assert [job.id for job in read_table(path, HOURS)] == ["b"]
