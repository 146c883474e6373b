"""When a job in a cloud may come home."""

from __future__ import annotations

from hybrid.domain.money import to_micros
from hybrid.domain.reasons import AlreadyStopping, NotWorthIt, Reason, SwitchedOff, TooYoung
from hybrid.domain.run import Run, RunState
from policies.document import PolicyDocument


def margin_micros(policy: PolicyDocument) -> int:
    """The saving that a move must exceed. Bursting again must gain its own margin too: between
    the two lies a band in which a job stays where it is."""
    return to_micros(policy.return_home.margin_usd)


def refusal(run: Run, saving_micros: int, policy: PolicyDocument, now: float) -> Reason | None:
    """Why the run stays in its cloud, or None. ``saving_micros`` is cost(stay) − cost(home), with
    checkpoint, restart and the waits caused to others."""
    if not policy.return_home.enabled:
        return SwitchedOff("return_home")
    if run.state in (RunState.STOPPING, RunState.ENDED):
        return AlreadyStopping(run.id)
    age_s = run.age_s(now)
    if age_s < policy.return_home.min_stay:
        return TooYoung(max(0.0, age_s), policy.return_home.min_stay)
    if saving_micros <= margin_micros(policy):
        return NotWorthIt(-saving_micros, "staying")
    return None
