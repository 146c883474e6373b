"""Which runs a node has had, for good: one that is remembered is never started again."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from pathlib import Path

from pydantic import ValidationError

from hybrid.agent.guardian.durable import append_line
from hybrid.agent.protocol import WireRank

KEPT = 2000


class Remembered:
    """The last reports of runs whose directories are gone, in ``remembered.jsonl``.

    The newest :data:`KEPT` stay: a server that has lost track of a run asks for it soon or never.
    """

    def __init__(self, path: Path, *, kept: int = KEPT) -> None:
        self._path = path
        self._kept = kept
        self._lock = threading.Lock()
        self._reports: OrderedDict[tuple[str, int], WireRank] = OrderedDict()
        self._lines = 0
        self._load()

    def _load(self) -> None:
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                report = WireRank.model_validate_json(line)
            except ValidationError:
                continue  # the last line of a crash in the middle of writing
            self._reports[report.run_id, report.rank] = report
        self._lines = len(lines)
        self._trim()
        if self._lines > 2 * self._kept:
            self._rewrite()

    def add(self, report: WireRank) -> None:
        """Remember how a run ended, durably; raises OSError."""
        with self._lock:
            if (report.run_id, report.rank) in self._reports:
                return
            append_line(self._path, json.loads(report.model_dump_json()))
            self._lines += 1
            self._reports[report.run_id, report.rank] = report
            self._trim()
            if self._lines > 2 * self._kept:
                self._rewrite()

    def report_of(self, run_id: str, rank: int) -> WireRank | None:
        """How a run ended; None for one that is not remembered."""
        with self._lock:
            return self._reports.get((run_id, rank))

    def _trim(self) -> None:
        while len(self._reports) > self._kept:
            self._reports.popitem(last=False)

    def _rewrite(self) -> None:
        draft = self._path.with_name(f".{self._path.name}.new")
        draft.write_bytes(
            b"".join(report.model_dump_json().encode() + b"\n" for report in self._reports.values())
        )
        draft.replace(self._path)
        self._lines = len(self._reports)
