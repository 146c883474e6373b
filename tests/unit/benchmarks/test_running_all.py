"""Running every benchmark and writing the results file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import Outcome, last_line, main, report, run, section

LINE = {
    "benchmark": "placement",
    "python": "3.11.7",
    "cpu": "a processor",
    "seconds_total": 12.5,
    "allocated": {"openb_pod_list_mine": {"at_100": 96.0, "at_130": 96.5}},
    "published": {"openb_pod_list_mine": {"at_100": 95.0, "at_130": 95.5}},
    "worst_margin": -1.0,
}


def test_the_published_figure_stands_beside_ours() -> None:
    text = report([Outcome("placement", LINE)], quick=False)
    assert "| mine, 100 % of demand | 95.00 % | 96.00 % |  |  |" in text
    assert "| worst margin | 0 | -1.00 points | ≥ -0.1 points | **no** |" in text
    assert "12.5 s, Python 3.11.7, a processor" in text


def test_a_quick_run_says_that_it_is_one() -> None:
    assert "--quick" in report([], quick=True)
    assert "--quick" not in report([], quick=False)


def test_a_benchmark_without_a_comparison_shows_its_figures() -> None:
    # comparison is a module of the package that compares nothing itself
    assert "| seconds |  | 1.5 |  |  |" in section("comparison", {"python": "3", "seconds": 1.5})


def test_a_benchmark_without_data_is_skipped_with_a_reason(tmp_path: Path) -> None:
    outcome = run("placement", tmp_path, quick=True)
    assert outcome.without == f"skipped: no data at {tmp_path / 'placement'}"
    assert not outcome.failed


def test_a_benchmark_that_does_not_exist_is_skipped_with_a_reason(tmp_path: Path) -> None:
    assert "no such benchmark" in run("nonsense", tmp_path, quick=True).without


def test_a_benchmark_that_cannot_read_its_data_fails(tmp_path: Path) -> None:
    (tmp_path / "placement").mkdir()
    outcome = run("placement", tmp_path, quick=True)
    assert outcome.failed
    assert outcome.without == "failed: exit status 1"


@pytest.mark.parametrize("output", ["", "text\n", "{}\ntext\n", "[1]\n"])
def test_output_that_ends_without_an_object_is_no_line(output: str) -> None:
    assert last_line(output) is None


def test_the_last_line_is_the_one_that_counts() -> None:
    assert last_line('{"a": 1}\nwords\n{"b": 2}\n') == {"b": 2}


def test_all_benchmarks_are_run_and_the_file_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # those that make their own input would take minutes here
    monkeypatch.setattr("benchmarks.__main__.WITHOUT_DATA", ())
    data = tmp_path / "data" / "placement"
    data.mkdir(parents=True)
    (data / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\na,32000,131072,2,T4\n"
    )
    (data / "openb_pod_list_mine.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,1024,1,1000\n"
    )
    published = {"openb_pod_list_mine": {"FGD": {"at_100": 90.0, "at_130": 90.0}}}
    (data / "published.json").write_text(json.dumps(published))
    results = tmp_path / "results.md"
    status = main(["--quick", "--data", str(tmp_path / "data"), "--results", str(results)])
    assert status == 0
    text = results.read_text(encoding="utf-8")
    assert "| worst margin | 0 | +10.00 points | ≥ -0.1 points | yes |" in text
    assert "skipped: no data at" in text
