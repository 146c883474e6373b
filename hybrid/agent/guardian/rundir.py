"""The files of one run, by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunDir:
    """A run's directory on its node: owned by the agent, written by agent and guardian.

    The agent writes ``spec.json``, ``lease.json`` and ``stop.json``; the guardian writes the rest.
    """

    path: Path

    @property
    def spec(self) -> Path:
        """What to run."""
        return self.path / "spec.json"

    @property
    def claimed(self) -> Path:
        """The one guardian that ever had this run."""
        return self.path / "claimed"

    @property
    def started(self) -> Path:
        """The first process and when it started."""
        return self.path / "started.json"

    @property
    def lease(self) -> Path:
        """Until when the node may go on without hearing from the server."""
        return self.path / "lease.json"

    @property
    def stop(self) -> Path:
        """The agent's wish to stop."""
        return self.path / "stop.json"

    @property
    def stop_lock(self) -> Path:
        """Held while ``stop.json`` or ``lease.json`` is read, merged and written."""
        return self.path / ".stop.lock"

    @property
    def stopping(self) -> Path:
        """The stop in progress, as the guardian sees it."""
        return self.path / "stopping.json"

    @property
    def ended(self) -> Path:
        """How it ended; written once."""
        return self.path / "ended.json"

    @property
    def ended_reserve(self) -> Path:
        """Disk blocks set aside for ``ended.json``."""
        return self.path / ".ended.reserve"

    @property
    def journal(self) -> Path:
        """One line per event, for whoever wants to check who was alive when."""
        return self.path / "journal.jsonl"

    @property
    def guardian_log(self) -> Path:
        """What the guardian itself had to say; empty when all is well."""
        return self.path / "guardian.log"
