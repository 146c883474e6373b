"""The spot benchmark's accounting, on windows written out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import spot
from benchmarks.uniform_progress import uniform_progress
from hybrid.estimation.availability import NO_COUNTS, count, learn, memoryless
from hybrid.estimation.spot_value import SpotTerms

TICK_S = 600.0
SHORT = SpotTerms(
    work_s=6 * TICK_S,
    horizon_s=10 * TICK_S,
    tick_s=TICK_S,
    restart_s=180.0,
    spot_micros_per_hour=600_000,
    on_demand_micros_per_hour=3_000_000,
)
SPOT_TICK_USD, ON_DEMAND_TICK_USD = 0.1, 0.5
CHAIN = memoryless(losses_per_hour=0.5, returns_per_hour=0.5, tick_s=TICK_S)


def window(text: str) -> np.ndarray:
    return np.array([[c == "1" for c in text]])


def test_spot_that_stays_is_paid_for_the_work_and_the_start() -> None:
    dollars, met = spot.run(window("1111111111"), SHORT, (CHAIN,))
    # six ticks of work and three minutes to start: seven ticks, the last one in part
    assert dollars.tolist() == pytest.approx([7 * SPOT_TICK_USD])
    assert met.tolist() == [True]


def test_without_spot_the_job_still_ends_in_time() -> None:
    dollars, met = spot.run(window("0000000000"), SHORT, (CHAIN,))
    assert dollars.tolist() == pytest.approx([7 * ON_DEMAND_TICK_USD])
    assert met.tolist() == [True]


def test_a_start_longer_than_a_tick_takes_its_rest_of_the_next() -> None:
    terms = replace(SHORT, restart_s=720.0)
    dollars, met = spot.run(window("1111111111"), terms, (CHAIN,))
    assert dollars.tolist() == pytest.approx([8 * SPOT_TICK_USD])
    assert met.tolist() == [True]


def test_uniform_progress_pays_by_the_same_rules() -> None:
    assert uniform_progress([True] * 10, SHORT) == pytest.approx(7 * SPOT_TICK_USD * 1e6)
    # idle for the first tick, then behind the even line; on-demand is kept
    assert uniform_progress([False] * 10, SHORT) == pytest.approx(7 * ON_DEMAND_TICK_USD * 1e6)


def test_uniform_progress_keeps_on_demand_until_it_is_two_restarts_ahead() -> None:
    # behind at the second tick; on-demand from there works 420 s, then 600 s a tick; spot is back
    # at once, but two restarts ahead of the line it is only after four ticks of on-demand
    paid = uniform_progress([False, False] + [True] * 8, SHORT)
    assert paid == pytest.approx((4 * ON_DEMAND_TICK_USD + 3 * SPOT_TICK_USD) * 1e6)


def pool(seed: int, part: float, windows: int = 3) -> list[str]:
    rng = np.random.default_rng(seed)
    return ["".join("01"[int(u < part)] for u in rng.random(420)) for _ in range(windows)]


def folder(tmp_path: Path) -> Path:
    pools = {"calm": pool(0, 0.97), "better": pool(1, 0.9), "rare": pool(2, 0.2)}
    lines = [
        json.dumps({"region": name, "window": str(i), "gap_seconds": 600, "available": text})
        for name, texts in pools.items()
        for i, text in enumerate(texts)
    ]
    (tmp_path / "windows.jsonl").write_text("\n".join(lines) + "\n")
    figures = {"uniform_progress_usd": 100.0, "omniscient_usd": 50.0}
    cells = {
        "high_availability/deadline_70h/restart_3min": {"windows": 6, **figures},
        "low_availability/deadline_52h/restart_12min": {"windows": 3, **figures},
    }
    (tmp_path / "published.json").write_text(json.dumps(cells))
    return tmp_path


def test_the_most_available_pools_are_the_high_ones(tmp_path: Path) -> None:
    data = folder(tmp_path)
    pools, cells = spot.read_pools(data / "windows.jsonl"), spot.read_cells(data / "published.json")
    assert spot.high_pools(pools, cells) == {"calm", "better"}
    assert spot.high_pools(pools, cells[1:]) == frozenset()


def test_what_is_known_beforehand_comes_from_other_pools_only(tmp_path: Path) -> None:
    pools = spot.read_pools(folder(tmp_path) / "windows.jsonl")
    own = learn(count(pools.windows["rare"]), TICK_S)
    assert len(pools.chains_for("rare")) == 2
    assert own not in pools.chains_for("rare")
    assert own in pools.chains_for("calm")


def test_a_single_pool_is_run_without_any_experience(tmp_path: Path) -> None:
    pools = spot.read_pools(folder(tmp_path) / "windows.jsonl")
    alone = spot.Pools({"calm": pools.windows["calm"]}, TICK_S)
    assert alone.chains_for("calm") == (learn(NO_COUNTS, TICK_S),)


def test_the_future_of_a_window_changes_nothing_before_it() -> None:
    # the same until tick 5: the same is paid until then, whatever comes later
    one, other = window("1011100000"), window("1011111111")
    until = replace(SHORT, horizon_s=10 * TICK_S)
    paid = [spot.run(w, until, (CHAIN,))[0][0] for w in (one, other)]
    both = spot.run(np.vstack([one, other]), until, (CHAIN,))[0]
    assert both.tolist() == paid


def test_every_cell_is_measured_and_the_line_can_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spot.main(["--data", str(folder(tmp_path)), "--quick"])
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"benchmark", "python", "cpu", "seconds_total", "gap_closed", "missed"} <= set(line)
    assert line["missed"] == 0
    for cell, closed in line["gap_closed"].items():
        assert closed == pytest.approx((100.0 - line["ours_usd"][cell]) / 50.0, abs=1e-3)
    rows = spot.compare(line)
    assert [row.wanted for row in rows] == ["≥ 70%", "≥ 15%", "0"]
    assert rows[-1].reached is True


def test_windows_of_different_ticks_and_unknown_cells_are_refused(tmp_path: Path) -> None:
    data = folder(tmp_path)
    text = (data / "windows.jsonl").read_text()
    (data / "windows.jsonl").write_text(text.replace("600", "60", 1))
    with pytest.raises(ValueError, match="one length"):
        spot.read_pools(data / "windows.jsonl")
    (data / "published.json").write_text('{"middle/deadline_52h/restart_3min": {}}')
    with pytest.raises(ValueError, match="middle"):
        spot.read_cells(data / "published.json")


def test_windows_of_a_pool_are_cut_to_the_shortest_of_them(tmp_path: Path) -> None:
    path = tmp_path / "windows.jsonl"
    lines = [
        {"region": "a", "gap_seconds": 600, "available": "110", "more": 1},
        {"region": "a", "gap_seconds": 600, "available": "01"},
    ]
    path.write_text("\r\n".join(map(json.dumps, lines)) + "\r\n\r\n")
    assert spot.read_pools(path).windows["a"].tolist() == [[True, True], [False, True]]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"region": "a", "gap_seconds": 600}', "line 1 is no window: KeyError"),
        ("1, 2", "line 1 is no window"),
        ('{"region": "a", "gap_seconds": 600, "available": "1x"}', "digit 0 or 1"),
        ("", "has no windows"),
    ],
)
def test_a_line_that_is_no_window_is_named(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "windows.jsonl").write_text(line)
    with pytest.raises(ValueError, match=words):
        spot.read_pools(tmp_path / "windows.jsonl")


def test_a_window_that_ends_before_a_deadline_is_refused(tmp_path: Path) -> None:
    data = folder(tmp_path)
    text = (data / "windows.jsonl").read_text()
    first, rest = text.split("\n", 1)
    short = json.loads(first)
    short["available"] = short["available"][:400]
    (data / "windows.jsonl").write_text(json.dumps(short) + "\n" + rest)
    with pytest.raises(ValueError, match=r"calm ends after 66\.66.* needs 70 h"):
        spot.measure(data, quick=True)
