"""States change only through a table; whatever is not in it raises :class:`InvalidTransition`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

S = TypeVar("S", bound=StrEnum)

HISTORY_KEPT = 64
"""Steps an entity carries with it; older ones live in the event log."""


@dataclass(frozen=True, slots=True)
class Step:
    """One state an entity entered: which, when, and why in words (empty when obvious)."""

    state: str
    at: float
    cause: str = ""


class InvalidTransition(Exception):
    """A state change that the table does not allow; a bug or a fact seen twice, never ignored."""

    def __init__(self, kind: str, id_: str, start: str, finish: str, history: tuple[Step, ...]):
        self.kind, self.id, self.start, self.finish, self.history = (
            kind,
            id_,
            start,
            finish,
            history,
        )
        steps = " → ".join(f"{s.state}@{s.at:.3f}" for s in history) or "nothing"
        super().__init__(f"{kind} {id_} cannot go from {start} to {finish}; it went: {steps}")


@dataclass(frozen=True, slots=True)
class TransitionTable(Generic[S]):
    """Which states follow which, for one kind of entity."""

    kind: str
    allowed: Mapping[S, frozenset[S]]

    def step(
        self, id_: str, start: S, finish: S, *, at: float, cause: str, history: tuple[Step, ...]
    ) -> tuple[Step, ...]:
        """The history after going from ``start`` to ``finish``; raises InvalidTransition."""
        if finish not in self.allowed[start]:
            raise InvalidTransition(self.kind, id_, start, finish, history)
        return (*history, Step(finish, at, cause))[-HISTORY_KEPT:]
