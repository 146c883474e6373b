"""The policy document: one YAML file in which a platform team says how to decide.

An empty document is valid and safe: jobs go by class, age and fair share, and nothing is spent
before a budget says how much.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from hybrid.domain.budget import Budget
from hybrid.domain.job_spec import Name, Written
from policies.consistency import conflicts
from policies.presets import CLASSES, PRESETS, merged
from policies.sections import (
    Aging,
    Burst,
    FairShare,
    Notifications,
    Placement,
    Preemption,
    PriorityClass,
    Quarantine,
    Retire,
    ReturnHome,
    RuleUse,
    Scheduling,
    Spot,
    Strategy,
    Team,
)

DEFAULT_TEAM = "default"
"""The entry of ``teams`` that stands for every team that is not named."""

_PLAIN_TEAM = Team()

CONFLICT = "policy_conflict"
"""The type of the validation error whose context holds the document's ``conflicts``."""


class PolicyDocument(Written):
    """Everything a platform team can set. What is not written comes from the preset that
    ``scheduling`` names, and from the four built-in priority classes."""

    scheduling: Scheduling = Scheduling()
    priority_classes: dict[Name, PriorityClass] = Field(
        default_factory=dict,
        max_length=64,
        description="By name; low, normal, high and urgent exist already and can be refined.",
    )
    aging: Aging = Aging()
    fair_share: FairShare = FairShare()
    teams: dict[Name, Team] = Field(
        default_factory=dict,
        max_length=1024,
        description="By name; the entry default stands for all others.",
    )
    budgets: tuple[Budget, ...] = Field(
        default=(), max_length=1024, description="All that cover a job apply together."
    )
    burst: Burst = Burst()
    spot: Spot = Spot()
    placement: Placement = Placement()
    preemption: Preemption = Preemption()
    return_home: ReturnHome = ReturnHome()
    retire: Retire = Retire()
    quarantine: Quarantine = Quarantine()
    rules: tuple[RuleUse, ...] = Field(
        default=(),
        max_length=32,
        description="Rules of others, asked in this order about every job that wants to start.",
    )
    notifications: Notifications = Notifications()

    @model_validator(mode="before")
    @classmethod
    def _refine_the_preset(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        # a section with nothing under it is None in YAML: it says nothing
        written = {key: value for key, value in data.items() if value is not None}
        scheduling = written.get("scheduling", {})
        if isinstance(scheduling, str):
            written["scheduling"] = scheduling = {"strategy": scheduling}
        named = (
            scheduling.get("strategy", Strategy.BREAK_EVEN)
            if isinstance(scheduling, Mapping)
            else getattr(scheduling, "strategy", None)
        )
        preset = PRESETS.get(named, {}) if isinstance(named, str) else {}
        return merged({"priority_classes": CLASSES, **preset}, written)

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        found = tuple(conflicts(self))
        if found:
            raise PydanticCustomError(
                CONFLICT, "{text}", {"text": found[0].message, "conflicts": found}
            )
        return self

    def team(self, name: str) -> Team:
        """The rules of a team; of ``default`` where it is not named, or the plain defaults."""
        return self.teams.get(name) or self.teams.get(DEFAULT_TEAM) or _PLAIN_TEAM

    @cached_property
    def top_rank(self) -> float:
        """More than any job can reach by class and age alone."""
        return max(c.rank for c in self.priority_classes.values()) + self.aging.max + 1.0

    @cached_property
    def classes_by_rank(self) -> Mapping[str, PriorityClass]:
        """All classes, lowest first."""
        ordered = sorted(self.priority_classes.items(), key=lambda item: (item[1].rank, item[0]))
        return MappingProxyType(dict(ordered))
