"""The backfill benchmark on clusters small enough to follow by hand."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import backfill
from benchmarks.easy_backfill import Parts, Request, easy_starts
from hybrid.domain.job_spec import Resources
from hybrid.simulation.replay import Fate, Told


def request(at: float, gpus: int, runtime_s: float, walltime_s: float | None = None) -> Request:
    return Request(at, gpus, runtime_s, walltime_s or runtime_s)


def folder(tmp_path: Path, jobs: list[tuple[float, float, int]]) -> Path:
    """A folder with one archive that holds one cluster."""
    rows = ["job_id,submission_time,duration,num_gpu"]
    rows += [f"{i},{at},{run},{gpus}" for i, (at, run, gpus) in enumerate(jobs)]
    content = "\n".join(rows).encode()
    with tarfile.open(tmp_path / "some.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("traces/mine.csv")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return tmp_path


def counted(jobs: Sequence[Request]) -> list[float]:
    """EASY on eight GPUs that are only counted."""
    return easy_starts(jobs, [Parts(1, job.gpus) for job in jobs], [8])


# --- EASY ---------------------------------------------------------------------------------------


def test_a_narrow_job_overtakes_when_it_ends_before_the_head_can_start() -> None:
    jobs = [request(0, 6, 100), request(1, 8, 50), request(2, 2, 90), request(3, 2, 97)]
    # the third ends at 92, before the head's turn at 100; the fourth finds nothing free until then
    assert counted(jobs) == [0, 100, 2, 150]


def test_a_job_that_would_delay_the_head_stays_behind_it() -> None:
    jobs = [request(0, 6, 100), request(1, 8, 50), request(2, 2, 99)]
    assert counted(jobs) == [0, 100, 150]


def test_a_long_job_overtakes_on_gpus_that_the_head_does_not_need() -> None:
    jobs = [request(0, 6, 100), request(1, 6, 50), request(2, 2, 500), request(3, 1, 500)]
    # two of eight GPUs are free beside the head: the third takes both, for the fourth none is left
    assert counted(jobs) == [0, 100, 2, 150]


def test_reservations_are_made_by_walltimes_and_starts_follow_true_ends() -> None:
    jobs = [request(0, 8, 100, 300), request(1, 8, 50), request(2, 8, 10)]
    assert counted(jobs) == [0, 100, 150]


def test_a_job_wider_than_the_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match="1 × 16 GPUs do not fit on 1 machines"):
        counted([request(0, 16, 1)])


def test_where_jobs_are_placed_free_gpus_on_two_machines_are_not_those_of_one() -> None:
    jobs = [request(0, 6, 100), request(1, 6, 100), request(2, 4, 10), request(3, 2, 10)]
    parts = [Parts(1, job.gpus) for job in jobs]
    assert easy_starts(jobs, parts, [8, 8]) == [0, 1, 100, 3]
    assert easy_starts(jobs, parts, [16]) == [0, 1, 2, 12]


def test_a_long_job_overtakes_on_the_machine_that_the_head_does_not_need() -> None:
    jobs = [request(0, 8, 100), request(1, 4, 300), request(2, 8, 50), request(3, 4, 500)]
    # the third waits for the first machine: the fourth may fill the second for as long as it likes
    assert easy_starts(jobs, [Parts(1, job.gpus) for job in jobs], [8, 8]) == [0, 1, 100, 3]


def test_a_job_of_several_parts_waits_until_all_of_them_fit() -> None:
    jobs = [request(0, 8, 100), request(1, 16, 10), request(2, 8, 99), request(3, 8, 97)]
    parts = [Parts(1, 8), Parts(2, 8), Parts(1, 8), Parts(1, 8)]
    assert easy_starts(jobs, parts, [8, 8]) == [0, 100, 110, 3]


# --- the clusters -------------------------------------------------------------------------------


def test_a_cluster_has_the_gpus_of_its_widest_job_or_of_its_load() -> None:
    assert backfill.cluster_gpus([request(0, 9, 1), request(1000, 1, 1)]) == 16
    # 10 GPUs are busy in the mean; a tenth more, in machines of 8
    assert backfill.cluster_gpus([request(0, 5, 1000), request(1000, 5, 1000)]) == 16


def test_walltimes_are_one_to_three_times_the_run_time_and_the_same_each_time(
    tmp_path: Path,
) -> None:
    data = folder(tmp_path, [(float(i), 100.0, 1) for i in range(50)])
    (cluster,) = backfill.read_clusters(data, 0)
    stated = [job.walltime_s / job.runtime_s for job in cluster.requests]
    assert 1.0 <= min(stated) < 1.3
    assert 2.7 < max(stated) <= 3.0
    assert backfill.read_clusters(data, 0) == (cluster,)


def test_a_window_is_taken_from_the_middle_and_keeps_the_gpus_of_the_whole(tmp_path: Path) -> None:
    data = folder(tmp_path, [(float(i), 600.0, 16 if i == 0 else 1) for i in range(11)])
    (cluster,) = backfill.read_clusters(data, 3)
    assert [job.arrives_s for job in cluster.requests] == [4.0, 5.0, 6.0]
    assert (cluster.whole, cluster.gpus) == (11, backfill.read_clusters(data, 0)[0].gpus)


@pytest.mark.parametrize(
    ("gpus", "nodes", "expected"),
    [
        (3, 2, Resources(gpus=3)),
        (64, 8, Resources(nodes=8, gpus=8)),
        (12, 2, Resources(nodes=2, gpus=6)),
        (11, 2, Resources(nodes=2, gpus=8)),
    ],
)
def test_a_wide_job_is_a_gang_of_equal_parts(gpus: int, nodes: int, expected: Resources) -> None:
    assert backfill.shape(gpus, nodes) == expected


def test_a_folder_without_a_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no trace"):
        backfill.read_clusters(tmp_path, 0)


def test_two_archives_with_a_table_of_one_name_are_refused(tmp_path: Path) -> None:
    data = folder(tmp_path, [(0.0, 100.0, 1)])
    shutil.copy(data / "some.tar.gz", data / "other.tar.gz")
    with pytest.raises(ValueError, match=r"some\.tar\.gz: another archive has a table mine too"):
        backfill.read_clusters(data, 0)


# --- the figures --------------------------------------------------------------------------------


def fate(started_at: float, p90_at: float | None) -> Fate:
    told = None if p90_at is None else Told(p50_at=0.0, p90_at=p90_at)
    return Fate(job_id="j", submitted_at=0.0, started_at=started_at, told=told)


def test_a_start_is_covered_when_it_comes_by_the_p90_told_at_submission() -> None:
    fates = [fate(0, 0), fate(10, 10), fate(11, 10), fate(5, None)]
    assert backfill.calibration(fates) == backfill.Told(4, 2, 3, 1)


def test_short_jobs_first_wait_less_than_under_easy(tmp_path: Path) -> None:
    # one job holds all GPUs; behind it a long one came before two short ones; a last one much later
    jobs = [(0.0, 4000.0, 8), (1.0, 9000.0, 8), (2.0, 900.0, 8), (3.0, 900.0, 8), (1e5, 60.0, 1)]
    figures = backfill.measure(folder(tmp_path, jobs), window=0)
    cluster = figures["clusters"]["mine"]
    assert cluster["gpus"] == 8
    # starts at 0, 4000, 13000, 13900 under EASY; at 0, 5800, 4000, 4900 here
    easy_h, ours_h = (3999 + 12998 + 13897) / 5 / 3600, (5799 + 3998 + 4897) / 5 / 3600
    assert cluster["easy_mean_wait_h"] == pytest.approx(easy_h, abs=1e-3)
    assert cluster["mean_wait_h"] == pytest.approx(ours_h, abs=1e-3)
    assert figures["mean_wait_ratio"] == pytest.approx(ours_h / easy_h, abs=1e-3)
    assert figures["utilisation_delta"] == 0.0
    assert (figures["jobs"], figures["jobs_in_traces"], figures["sampled"]) == (5, 5, "all jobs")


def test_the_line_carries_the_keys_and_can_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder(tmp_path, [(float(600 * i), 900.0, 8) for i in range(6)])
    backfill.main(["--data", str(data), "--quick"])
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"benchmark", "mean_wait_ratio", "utilisation_delta", "p90_coverage"} <= set(line)
    known = {"mean_wait_ratio": 0.8, "utilisation_delta": 0.001, "p90_coverage": 0.9}
    assert [row.reached for row in backfill.compare({**line, **known})[:3]] == [True, True, True]
    worse = {"mean_wait_ratio": 1.0, "utilisation_delta": -0.001, "p90_coverage": 0.95}
    assert [row.reached for row in backfill.compare({**line, **worse})[:3]] == [False] * 3
