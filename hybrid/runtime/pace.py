"""How often the loop does what, and how long it waits."""

from __future__ import annotations

from dataclasses import dataclass, field

from hybrid.reconcile.rules import SyncRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """All in seconds.

    ``tick_s`` between ticks without a poke; ``replan_s`` between plans while nothing changes (time
    alone can make a wait too long or a lease too short); ``planning_s`` is what improving a plan
    may take, turned into evaluations by the measured rate.
    """

    tick_s: float = 2.0
    replan_s: float = 5.0
    source_deadline_s: float = 20.0
    call_deadline_s: float = 60.0
    list_every_s: float = 5.0
    list_idle_every_s: float = 60.0
    offers_every_s: float = 60.0
    sweep_every_s: float = 60.0
    loop_lease_s: float = 15.0
    planning_s: float = 1.0
    rules: SyncRules = field(default_factory=SyncRules)
