"""How answers write instants, money and reasons.

Instants are RFC 3339 strings in UTC; durations are seconds in fields named ``…_s``; money is a
decimal string of US dollars with six places, exact, in fields named ``…_usd``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from hybrid.domain.money import to_usd
from hybrid.domain.reasons import Reason, Said
from hybrid.domain.transitions import Step


class Shown(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(frozen=True)


Usd = Annotated[str, Field(pattern=r"^-?\d+\.\d{6}$", examples=["1.250000"])]
"""US dollars, exact to the micro-dollar."""


def usd(micros: int) -> str:
    """Micro-dollars as a string of dollars."""
    return f"{to_usd(micros):.6f}"


def instant(at: float) -> datetime:
    """Seconds since the epoch as a time, to the millisecond."""
    return datetime.fromtimestamp(round(at, 3), UTC)


def instant_or_none(at: float | None) -> datetime | None:
    """The same where there may be none."""
    return None if at is None else instant(at)


class ShownReason(Shown):
    """Why not: a stable code, and the sentence."""

    code: str
    text: str

    @classmethod
    def of(cls, reason: Reason) -> ShownReason:
        """From a reason, just made or read back."""
        code = reason.said_code if isinstance(reason, Said) else reason.code
        return cls(code=code, text=str(reason))

    @classmethod
    def maybe(cls, reason: Reason | None) -> ShownReason | None:
        """The same where there may be none."""
        return None if reason is None else cls.of(reason)


class ShownStep(Shown):
    """One state that was entered, when and why."""

    state: str
    at: datetime
    cause: str = ""

    @classmethod
    def all_of(cls, history: tuple[Step, ...]) -> tuple[ShownStep, ...]:
        """A whole history, oldest first."""
        return tuple(
            cls(state=step.state, at=instant(step.at), cause=step.cause) for step in history
        )
