"""Rules of others: typed, found by entry point, asked about jobs that want to start.

A distribution names a rule under the entry-point group ``hybrid.rules``; the section ``rules`` of
a policy says which are asked, in which order, with which settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from hybrid.domain.job import Job
from hybrid.domain.snapshot import Snapshot
from policies.sections import Setting


class Rule(Protocol):
    """A pure function: the same job in the same world gets the same answer. It reads no clock (the
    snapshot has the time), does no I/O, and answers within milliseconds."""

    def __call__(
        self, job: Job, snapshot: Snapshot, settings: Mapping[str, Setting], /
    ) -> str | None:
        """Why the pending ``job`` is not to start anywhere now, as its user will read it; None for
        no objection."""
        ...
