"""The picture of the demo is drawn from a run's JSON, and only from one that went well."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

SCRIPT = Path(__file__).parents[3] / "docs" / "images" / "make_demo_svg.py"

RUN = {
    "jobs": [
        {
            "name": "speech",
            "placements": [{"pool": "steady"}, {"pool": "local"}],
            "decision": "bursts",
            "wait_s": 1.25,
            "run_s": 30.0,
            "cost_usd": 0.5,
        },
        {
            "name": "waits",
            "placements": [],
            "decision": "waits",
            "wait_s": None,
            "run_s": 0.0,
            "cost_usd": 0.0,
        },
    ],
    "refused": [{"name": "impossible", "reason": "nobody has it"}],
    "totals": {
        "this": {"cost_usd": 0.5, "mean_wait_s": 1.2, "makespan_s": 60.0},
        "all_local": {
            "cost_usd": 0.1,
            "mean_wait_s": 9.0,
            "makespan_s": 200.0,
            "jobs_that_cannot_run": 1,
        },
    },
    "checks": [{"name": "the cap holds", "ok": True, "detail": ""}],
}


@pytest.fixture
def script(tmp_path: Path) -> ModuleType:
    """The script, as if it lay in a folder of the test's own."""
    copy = tmp_path / SCRIPT.name
    copy.write_text(SCRIPT.read_text())
    spec = importlib.util.spec_from_file_location("make_demo_svg", copy)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _words(svg: str) -> str:
    texts = ("".join(each.itertext()) for each in ElementTree.fromstring(svg).iter())
    return " ".join(texts).replace("\u00a0", " ")


def test_the_picture_says_what_the_run_said(script):
    words = _words(script.svg_of(RUN))
    for part in ("steady → local", "1.2", "nobody has it", "all local", "the cap holds"):
        assert part in words


def test_the_same_run_is_the_same_picture(script):
    assert script.svg_of(RUN) == script.svg_of(RUN)


def test_it_is_written_beside_the_script(script, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    assert script.main([str(tmp_path / "run.json")]) == 0
    assert "speech" in _words((tmp_path / "demo.svg").read_text())


def test_a_run_that_did_not_go_well_is_not_drawn(script, tmp_path, capsys):
    failed = {**RUN, "checks": [{"name": "the cap holds", "ok": False, "detail": ""}]}
    (tmp_path / "run.json").write_text(json.dumps(failed))
    assert script.main([str(tmp_path / "run.json")]) == 1
    assert "the cap holds" in capsys.readouterr().err
    assert not (tmp_path / "demo.svg").exists()


def test_the_picture_in_the_readme_is_one():
    words = _words((SCRIPT.parent / "demo.svg").read_text())
    assert "Beside two other ways" in words
    assert "✗" not in words
