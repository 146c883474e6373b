"""The placement benchmark on a cluster small enough to follow by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import placement

NODES = """sn,cpu_milli,memory_mib,gpu,model
a,32000,131072,2,T4
b,32000,131072,1,P100
"""
TASKS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
p0,1000,1024,1,1000,
p1,1000,1024,1,1000,
"""


def folder(tmp_path: Path, tasks: str = TASKS) -> Path:
    (tmp_path / placement.NODES).write_text(NODES)
    (tmp_path / "openb_pod_list_mine.csv").write_text(tasks)
    figures = {"FGD": {"at_100": 90.0, "at_130": 95.0}, "BestFit": {"at_100": 92.0, "at_130": 93.0}}
    (tmp_path / "published.json").write_text(json.dumps({"openb_pod_list_mine": figures}))
    return tmp_path


def test_whole_gpus_fill_the_cluster_when_demand_reaches_it(tmp_path: Path) -> None:
    figures = placement.measure(folder(tmp_path), seeds=2)
    assert figures["allocated"] == {"openb_pod_list_mine": {"at_100": 100.0, "at_130": 100.0}}


def test_the_margin_is_taken_from_the_best_published_policy_at_each_point(tmp_path: Path) -> None:
    figures = placement.measure(folder(tmp_path), seeds=1)
    assert figures["published"] == {"openb_pod_list_mine": {"at_100": 92.0, "at_130": 95.0}}
    assert figures["worst_margin"] == 5.0


def test_a_task_that_fits_nowhere_is_skipped(tmp_path: Path) -> None:
    # no node has a V100, so nothing is ever placed
    tasks = TASKS.replace("1000,\n", "1000,V100M16|V100M32\n")
    figures = placement.measure(folder(tmp_path, tasks), seeds=1)
    assert figures["allocated"] == {"openb_pod_list_mine": {"at_100": 0.0, "at_130": 0.0}}


def test_allowed_models_and_shares_are_read_as_the_trace_means_them(tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv"
    path.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
        "a,4500,2048,1,460,T4|A10\nb,4500,2048,1,460,T4|A10\nc,8000,1024,8,1000,\nd,1000,512,0,0,\n"
    )
    classes, tasks = placement.read_tasks(path, ("P100", "T4"))
    assert tasks == [0, 0, 1, 2]
    assert [(c.gpus, c.share_milli, c.cpus, c.memory_gib, c.weight) for c in classes] == [
        (1, 460, 4.5, 2.0, 2.0),
        (8, 1000, 8.0, 1.0, 1.0),
        (0, 1000, 1.0, 0.5, 1.0),
    ]
    assert [c.models for c in classes] == [frozenset({1}), None, None]


def test_a_list_that_never_asks_for_a_gpu_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv"
    path.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\nd,1000,512,0,0\n")
    with pytest.raises(ValueError, match="no task with a GPU"):
        placement.read_tasks(path, ("T4",))


def test_a_folder_without_any_published_list_is_refused(tmp_path: Path) -> None:
    data = folder(tmp_path)
    (data / "published.json").write_text("{}")
    with pytest.raises(ValueError, match="published"):
        placement.measure(data, seeds=1)


def test_the_same_seed_gives_the_same_figure(tmp_path: Path) -> None:
    tasks = TASKS + "p2,1000,1024,1,700,\np3,1000,1024,2,1000,\np4,9000,1024,1,300,\n"
    data = folder(tmp_path, tasks)
    assert placement.measure(data, seeds=3) == placement.measure(data, seeds=3)


def test_the_line_carries_the_keys_and_can_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placement.main(["--data", str(folder(tmp_path)), "--quick"])
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"benchmark", "python", "cpu", "seconds_total", "allocated"} <= set(line)
    assert line["seeds"] == 1
    rows = placement.compare(line)
    assert [(row.what, row.published, row.ours) for row in rows[:2]] == [
        ("mine, 100 % of demand", "92.00 %", "100.00 %"),
        ("mine, 130 % of demand", "95.00 %", "100.00 %"),
    ]
    assert rows[-1].reached is True
    assert placement.compare({**line, "worst_margin": -0.2})[-1].reached is False


def test_a_table_without_a_column_says_which(tmp_path: Path) -> None:
    path = tmp_path / "openb_pod_list_mine.csv"
    path.write_text("name,cpu_milli,memory_mib,num_gpu\na,1,1,1\n")
    with pytest.raises(ValueError, match="there is no column gpu_milli"):
        placement.read_tasks(path, ())
