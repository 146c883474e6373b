"""How long silence, absence and unknown outcomes are borne before they mean something."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRules:
    """Durations in seconds.

    ``silent_after_s``: a node not heard of for so long gets no new runs. ``absent_grace_s``: two
    complete listings so far apart must both miss a machine before it is gone, and a machine so old
    with no live claim is ended. ``call_limit_s``: the longest a launch call may be under way.
    ``kill_s``: how long a guardian may take to kill what ignored its signal.
    ``problem_retries``: how often a run that could not even begin is tried elsewhere.
    ``usage_half_life_s``: past usage counts half after so long (the policy's fair share).
    """

    silent_after_s: float = 20.0
    absent_grace_s: float = 60.0
    call_limit_s: float = 120.0
    kill_s: float = 15.0
    clock_drift: float = 0.01
    problem_retries: int = 2
    usage_half_life_s: float = 7 * 86_400.0
