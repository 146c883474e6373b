"""How a guardian's word for an end reads in the domain's words."""

from __future__ import annotations

import signal

from hybrid.agent.guardian import Ended
from hybrid.domain.job import StopCause


def cause_of(text: str | None) -> StopCause | None:
    """The stop cause; None for none, or for a word of another version."""
    try:
        return None if text is None else StopCause(text)
    except ValueError:
        return None


def exit_code_of(ended: Ended) -> int | None:
    """The exit code, negative for a signal; None when nobody saw it."""
    if ended.exit_signal is None:
        return ended.exit_code
    number = signal.Signals.__members__.get(ended.exit_signal)
    if number is not None:
        return -number.value
    digits = ended.exit_signal.removeprefix("SIG")
    return -int(digits) if digits.isdigit() else None
