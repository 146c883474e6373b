"""What must agree between the sections of a document, each conflict with its place and a hint."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zoneinfo import available_timezones

from hybrid.domain.budget import Budget, Scope
from hybrid.hardware import UnknownGpuModel, resolve
from hybrid.ledger.periods import zone

if TYPE_CHECKING:
    from policies.document import PolicyDocument

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Something in the document that contradicts something else. ``path`` leads to it."""

    path: Path
    message: str
    hint: str = ""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint towards the known name most like ``name``, or all of them when none is like it."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(names)}" if names else ""


def conflicts(policy: PolicyDocument) -> Iterator[Conflict]:
    """Every conflict, in the order of the sections."""
    yield from _classes(policy)
    yield from _budgets(policy.budgets)
    yield from _models(policy)
    yield from _webhooks(policy)


def _classes(policy: PolicyDocument) -> Iterator[Conflict]:
    lists: list[tuple[Path, tuple[str, ...]]] = [
        (("teams", name, "classes"), team.classes) for name, team in policy.teams.items()
    ]
    lists += [
        (("placement", "reserved", i, "classes"), kept.classes)
        for i, kept in enumerate(policy.placement.reserved)
    ]
    for path, classes in lists:
        for i, name in enumerate(classes):
            if name not in policy.priority_classes:
                yield Conflict(
                    (*path, i),
                    f"there is no priority class {name!r}",
                    nearest(name, policy.priority_classes),
                )


def _budgets(budgets: tuple[Budget, ...]) -> Iterator[Conflict]:
    seen: set[str] = set()
    for i, budget in enumerate(budgets):
        if budget.name in seen:
            yield Conflict(
                ("budgets", i, "name"),
                f"there are two budgets called {budget.name!r}",
                "give each a name of its own",
            )
        seen.add(budget.name)
        if budget.scope is not Scope.ORG and not budget.subject:
            yield Conflict(
                ("budgets", i),
                f"a budget of scope {budget.scope} names its subject",
                f"add subject: the {budget.scope} it limits",
            )
        if budget.scope is Scope.ORG and budget.subject is not None:
            yield Conflict(
                ("budgets", i, "subject"),
                "a budget of scope org covers everyone and has no subject",
                "set scope to team, user or job, or leave subject out",
            )
        try:
            zone(budget.timezone)
        except ValueError as error:
            yield Conflict(
                ("budgets", i, "timezone"),
                str(error),
                nearest(budget.timezone, available_timezones()).partition("known:")[0],
            )


def _models(policy: PolicyDocument) -> Iterator[Conflict]:
    for i, kept in enumerate(policy.placement.reserved):
        for j, name in enumerate(kept.models):
            try:
                resolve(name)
            except UnknownGpuModel as error:
                near = f"did you mean {error.nearest[0]}?" if error.nearest else ""
                yield Conflict(
                    ("placement", "reserved", i, "models", j), f"no GPU is called {name!r}", near
                )


def _webhooks(policy: PolicyDocument) -> Iterator[Conflict]:
    seen: set[str] = set()
    for i, webhook in enumerate(policy.notifications.webhooks):
        if webhook.name in seen:
            yield Conflict(
                ("notifications", "webhooks", i, "name"),
                f"there are two webhooks called {webhook.name!r}",
                "give each a name of its own",
            )
        seen.add(webhook.name)
