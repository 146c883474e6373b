"""The policy in force: read it, replace it, see what a replacement would change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import JobId
from hybrid.domain.job import Job, JobState
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.reasons import RuleFailed
from hybrid.domain.snapshot import Snapshot
from hybrid.ports.clock import Clock
from hybrid.ports.store import Bundle, Note, PolicyVersion, SetBudgets, SetPolicy, Store
from hybrid.runtime.rule_judge import RuleJudge
from hybrid.services.errors import Fault, NotFound, Refused, Stale
from policies.document import PolicyDocument
from policies.doubts import Surroundings, doubts
from policies.loading import PolicyError, ReadPolicy, dotted, parse_policy, read_policy

HISTORY_PAGE = 200
"""Versions that are told at once."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two policies differ; None where a document does not have the place."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class PlacedDoubt:
    """What in a document can hardly be meant, with its place (counted from 1)."""

    line: int
    column: int
    path: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Check:
    """What a text would change, against which version, and what is doubtful in it."""

    version: PolicyVersion
    changes: tuple[Difference, ...]
    doubts: tuple[PlacedDoubt, ...]


NOT_KNOWN = Surroundings()
"""Nothing is known of the place: the document is looked at alone."""


@dataclass(frozen=True, slots=True)
class Policies:
    """Reads and replaces the policy. ``poke`` wakes the loop."""

    store: Store
    clock: Clock
    poke: Callable[[], None]
    rules: RuleJudge | None = None

    def current(self) -> tuple[PolicyVersion, PolicyDocument]:
        """The stored version, and what it says."""
        stored = self.store.policy()
        return stored, parse_policy(stored.document)

    def check(self, text: str, there: Surroundings = NOT_KNOWN) -> Check:
        """What putting ``text`` in force would change, of which version, and what in it can hardly
        be meant; Refused, with the place of each fault, when it is no policy."""
        stored, now_in_force = self.current()
        proposed = read(text)
        self._refuse_broken_rules(proposed.document, self.clock.now())
        return Check(
            stored,
            settings_that_differ(now_in_force, proposed.document),
            placed_doubts(proposed, there),
        )

    def _refuse_broken_rules(self, document: PolicyDocument, now: float) -> None:
        """Ask every rule about a job made up for that; Refused when one cannot be had, raises or
        takes too long."""
        if self.rules is None or not document.rules:
            return
        job = Job(
            id=JobId("example"),
            spec=JobSpec(command=("true",)),
            team="example",
            user="example",
            state=JobState.PENDING,
            submitted_at=now,
            queued_at=now,
        )
        world = Snapshot(now=now, revision=0, installation="", jobs={job.id: job})
        faults = [
            Fault(f"rules[{i}]", str(reason), "mend the rule, or take it out")
            for i, use in enumerate(document.rules)
            for reason in self.rules.ask(use, [job], world).values()
            if isinstance(reason, RuleFailed)
        ]
        if faults:
            raise Refused("broken_rule", faults[0].message, errors=faults)

    def history(
        self, *, limit: int = HISTORY_PAGE, before: int | None = None
    ) -> tuple[PolicyVersion, ...]:
        """Who put what in force, when and why; newest first."""
        return self.store.policies(limit=min(limit, HISTORY_PAGE), before=before)

    def version(self, number: int) -> PolicyVersion:
        """One version, in force or not; NotFound."""
        found = self.store.policy_of(number)
        if found is None:
            newest = self.store.policy().version
            raise NotFound(
                "no_such_policy",
                f"there is no version {number} of the policy; they go from 0 to {newest}",
            )
        return found

    def rollback(self, to: int, *, over: int, by: str, why: str = "") -> PolicyVersion:
        """Put an earlier version in force again, as a version of its own; Stale, NotFound.

        It is read as strictly as when it was new: Refused where it is no policy any more.
        """
        earlier = self.version(to)
        said = f"back to version {to}" + (f": {why}" if why else "")
        return self.replace(earlier.document, over=over, by=by, why=said)

    def replace(self, text: str, *, over: int, by: str, why: str = "") -> PolicyVersion:
        """Put ``text`` in force in place of version ``over``, its budgets with it.

        Raises Stale when another version is in force; Refused when the text is no policy.
        """
        document = parsed(text)
        now = self.clock.now()
        self._refuse_broken_rules(document, now)
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


def placed_doubts(policy: ReadPolicy, there: Surroundings) -> tuple[PlacedDoubt, ...]:
    """What in a document can hardly be meant, in the order of the text."""
    found = [
        PlacedDoubt(*policy.place(each.path), dotted(each.path), each.message, each.hint)
        for each in doubts(policy.document, there)
    ]
    return tuple(sorted(found, key=lambda each: (each.line, each.column, each.path)))


def parsed(text: str) -> PolicyDocument:
    """The document; Refused with the place of each fault."""
    return read(text).document


def read(text: str) -> ReadPolicy:
    """The document with its places; Refused with the place of each fault."""
    try:
        return read_policy(text)
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


def settings_that_differ(before: PolicyDocument, after: PolicyDocument) -> tuple[Difference, ...]:
    """Every place where two policies differ, what is not written included."""
    return tuple(_differences("", before.model_dump(mode="json"), after.model_dump(mode="json")))


def _differences(path: str, before: Any, after: Any) -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            inner = f"{path}.{key}" if path else str(key)
            yield from _differences(inner, before.get(key), after.get(key))
    elif before != after:
        yield Difference(path, before, after)
