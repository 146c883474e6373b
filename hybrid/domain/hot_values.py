"""Dataclasses that are frozen to type checkers, and nothing but fast at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["hot_value"]

if TYPE_CHECKING:
    from dataclasses import dataclass as hot_value
else:
    from dataclasses import dataclass

    def hot_value(*, frozen, eq=True, **options):
        """A frozen dataclass whose making checks nothing.

        A plan makes such values by the ten thousands. Python sets each field of a frozen one past
        its own guard, which takes several times as long as the rest of making it; the type checker
        refuses every change of one as it is. Equality and hash are those of a frozen dataclass.
        """
        assert frozen
        return dataclass(eq=eq, unsafe_hash=eq, **options)
