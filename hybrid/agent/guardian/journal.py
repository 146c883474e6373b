"""The run's own history: one JSON line per event, written by whoever made it happen.

``started`` (written before the first process exists) and ``ended`` or ``recovered`` (written after
the last is gone) frame the time in which the run could be live. Whoever reads the journals of all
runs of a job can check that no two frames overlap, without believing the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybrid.agent.guardian.durable import append_line
from hybrid.agent.guardian.processes import boot_id, boottime_s
from hybrid.agent.guardian.records import RunOrder

CLAIMED = "claimed"
STARTED = "started"
STOPPING = "stopping"
KILLING = "killing"
ENDED = "ended"
RECOVERED = "recovered"


@dataclass(frozen=True, slots=True)
class LiveSpan:
    """When processes of one run could exist on this node, by wall clock and by CLOCK_BOOTTIME.

    The end is None while the run is live, or when its end has not been recorded yet.
    """

    run_id: str
    job_id: str
    rank: int
    boot_id: str
    from_at: float
    from_boottime_s: float
    until_at: float | None
    until_boottime_s: float | None


class Journal:
    """Appends to one ``journal.jsonl``."""

    def __init__(self, path: Path, order: RunOrder) -> None:
        self._path = path
        self._fixed = {
            "run_id": order.run_id,
            "job_id": order.job_id,
            "rank": order.rank,
            "boot_id": boot_id(),
        }

    def note(self, event: str, **facts: Any) -> None:
        """Write one line. A full disk costs the line, not the run: ``ended.json`` has the facts."""
        line = {
            **self._fixed,
            "event": event,
            "at": time.time(),
            "boottime_s": boottime_s(),
            "by_pid": os.getpid(),
            **facts,
        }
        with contextlib.suppress(OSError):
            append_line(self._path, line)


def read_journal(run_dir: Path) -> list[dict[str, Any]]:
    """Every whole line of a run's journal, in order."""
    try:
        lines = (run_dir / "journal.jsonl").read_bytes().splitlines()
    except OSError:
        return []
    events = []
    for line in lines:
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict):
                events.append(event)
    return events


def live_span(run_dir: Path) -> LiveSpan | None:
    """The span in which this run had processes; None when it never started one."""
    events = read_journal(run_dir)
    started = next((e for e in events if e.get("event") == STARTED), None)
    if started is None:
        return None
    ended = next((e for e in events if e.get("event") in {ENDED, RECOVERED}), None)
    return LiveSpan(
        run_id=str(started["run_id"]),
        job_id=str(started["job_id"]),
        rank=int(started["rank"]),
        boot_id=str(started["boot_id"]),
        from_at=float(started["at"]),
        from_boottime_s=float(started["boottime_s"]),
        until_at=None if ended is None else float(ended["at"]),
        until_boottime_s=None if ended is None else float(ended["boottime_s"]),
    )
