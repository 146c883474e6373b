"""The policy in force: read it, replace it, see what a replacement would change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hybrid.domain.event import Event, EventKind
from hybrid.ports.clock import Clock
from hybrid.ports.store import Bundle, Note, PolicyVersion, SetBudgets, SetPolicy, Store
from hybrid.services.errors import Fault, Refused, Stale
from policies.document import PolicyDocument
from policies.loading import PolicyError, parse_policy


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two policies differ; None where a document does not have the place."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Policies:
    """Reads and replaces the policy. ``poke`` wakes the loop."""

    store: Store
    clock: Clock
    poke: Callable[[], None]

    def current(self) -> tuple[PolicyVersion, PolicyDocument]:
        """The stored version, and what it says."""
        stored = self.store.policy()
        return stored, parse_policy(stored.document)

    def check(self, text: str) -> tuple[PolicyVersion, tuple[Difference, ...]]:
        """What putting ``text`` in force would change, and of which version; Refused, with the
        place of each fault, when it is no policy."""
        stored, now_in_force = self.current()
        proposed = parsed(text)
        return stored, tuple(
            _differences("", now_in_force.model_dump(mode="json"), proposed.model_dump(mode="json"))
        )

    def replace(self, text: str, *, over: int, by: str, why: str = "") -> PolicyVersion:
        """Put ``text`` in force in place of version ``over``, its budgets with it.

        Raises Stale when another version is in force; Refused when the text is no policy.
        """
        document = parsed(text)
        now = self.clock.now()
        event = Event(
            kind=EventKind.POLICY,
            subject=f"policy:{over + 1}",
            what="replaced",
            at=now,
            words=why,
            actor=by,
        )
        done = self.store.commit(
            [
                Bundle(
                    id=f"policy:{over + 1}",
                    changes=(
                        SetPolicy(document=text, version=over, actor=by, at=now, why=why),
                        SetBudgets(document.budgets),
                        Note(event),
                    ),
                )
            ],
            at=now,
        )
        if done.dropped:
            found = self.store.policy().version
            raise Stale(
                "policy_changed",
                f"version {found} is in force, not {over}: look at it and apply yours again",
            )
        self.poke()
        return self.store.policy()


def parsed(text: str) -> PolicyDocument:
    """The document; Refused with the place of each fault."""
    try:
        return parse_policy(text)
    except PolicyError as problem:
        faults = tuple(
            Fault(
                each.path,
                f"{each.message} (line {each.line}, column {each.column})",
                each.hint,
            )
            for each in problem.problems
        )
        said = str(problem.problems[0])
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise Refused("invalid_policy", said + more, errors=faults) from problem


def _differences(path: str, before: Any, after: Any) -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            inner = f"{path}.{key}" if path else str(key)
            yield from _differences(inner, before.get(key), after.get(key))
    elif before != after:
        yield Difference(path, before, after)
