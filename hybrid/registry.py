"""Providers, engines and rules by name, from the entry points of what is installed.

Nothing is imported before it is asked for: a server without a cloud never loads a cloud's library.
"""

from __future__ import annotations

from enum import StrEnum
from importlib import metadata
from typing import Any

from hybrid.services.errors import StartupError


class Group(StrEnum):
    """Which entry points."""

    PROVIDERS = "hybrid.providers"
    ENGINES = "hybrid.engines"
    RULES = "hybrid.rules"

    @property
    def word(self) -> str:
        """What one of them is called."""
        words = {Group.PROVIDERS: "provider", Group.ENGINES: "engine", Group.RULES: "rule"}
        return words[self]


def names(group: Group) -> tuple[str, ...]:
    """What is installed, sorted."""
    return tuple(sorted({point.name for point in metadata.entry_points(group=group)}))


def load(group: Group, name: str) -> Any:
    """What an entry point names.

    Raises StartupError when there is none of that name (it lists those there are), and when a
    library that it needs is missing (it names the extra that brings it).
    """
    points = metadata.entry_points(group=group, name=name)
    if not points:
        there = ", ".join(names(group)) or "none"
        raise StartupError(f"there is no {group.word} of kind {name!r}; installed: {there}")
    point = min(points, key=lambda each: each.value)
    try:
        return point.load()
    except ModuleNotFoundError as problem:
        raise StartupError(_missing(group, point, problem)) from problem


def _missing(group: Group, point: metadata.EntryPoint, problem: ModuleNotFoundError) -> str:
    owner = point.dist
    said = f"{group.word} {point.name!r} needs the module {problem.name}, which is not installed"
    extras = () if owner is None else owner.metadata.get_all("Provides-Extra") or ()
    if owner is not None and point.name in extras:
        said += f": pip install '{owner.name}[{point.name}]'"
    return said
