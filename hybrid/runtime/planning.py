"""Plans within the time the pace grants, turned into evaluations by the rate that is measured."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hybrid.domain.plan import Plan
from hybrid.domain.snapshot import Snapshot
from hybrid.planning.planner import plan
from policies.document import PolicyDocument

_FIRST_RATE = 20_000.0
"""Evaluations per second taken for granted before any is measured."""

_LEAST_BUDGET = 1_000
_LEAST_MEASURED = 1_000
"""Plans of fewer evaluations say nothing about the rate: they are all preparation."""

_PART_SPENT = 0.8
"""Of the seconds granted. A search ends only where a look at the whole queue does, and a plan of
fewer evaluations takes longer for each: reading the world and telling every job why take the same.
"""

_WEIGHT = 0.5
"""Of the newest measurement; the first stands alone."""


class Planning:
    """Makes plans, and keeps how many evaluations go into a second of them.

    The rate is that of whole plans in processor time, so a plan that uses up its budget takes no
    more than the seconds granted, whatever else runs on the machine.
    """

    def __init__(self) -> None:
        self._per_s = _FIRST_RATE
        self._measured = False

    def budget(self, seconds: float) -> int:
        """The evaluations for which so many seconds are enough."""
        return max(_LEAST_BUDGET, int(self._per_s * seconds * _PART_SPENT))

    def plan(self, snapshot: Snapshot, policy: PolicyDocument, policy_version: int) -> Plan:
        """The plan of a snapshot, whose evaluation budget stands in it."""
        begun = time.thread_time()
        with _collector_paused():
            made = plan(snapshot, policy, policy_version)
        self.measured(made.evaluations, time.thread_time() - begun)
        return made

    def measured(self, evaluations: int, seconds: float) -> None:
        """Learn from a plan that took so long."""
        if evaluations < _LEAST_MEASURED or seconds <= 0:
            return
        rate = evaluations / seconds
        self._per_s += (_WEIGHT if self._measured else 1.0) * (rate - self._per_s)
        self._measured = True


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No search for garbage in cycles: a plan makes none, and looking through all it makes, and
    through the world it is made from, takes a third of its time. What it made counts as old when
    the collector goes on: it is kept until the next plan, and would be looked through at once."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_freeze_count() == 0:
                gc.freeze()
                gc.unfreeze()
            gc.enable()
