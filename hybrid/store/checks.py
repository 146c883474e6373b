"""Whether a bundle still holds, checked against the rows as they stand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import Connection, func, literal, select

from hybrid.domain.ids import JobId
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.domain.plan import RowRef
from hybrid.ledger.caps import fits
from hybrid.ledger.periods import UnknownTimezone
from hybrid.ports.store import (
    Bundle,
    Change,
    Decide,
    DropCause,
    Entity,
    Learn,
    Note,
    Post,
    Put,
    Remember,
    Remove,
    SetBudgets,
    SetPolicy,
)
from hybrid.store.ground import Account, Ground, Purse, Standing
from hybrid.store.rows import KINDS, kind_of
from hybrid.store.staged import IDS_AT_ONCE, Key, Staged
from hybrid.store.tables import policies

POLICY = "policy"
"""The kind by which a :class:`RowRef` names the policy (its id is ignored)."""


class Drop(Exception):
    """Why a bundle does not hold."""

    def __init__(self, cause: DropCause, words: str) -> None:
        super().__init__(words)
        self.cause, self.words = cause, words


def read_standing(connection: Connection, bundles: Iterable[Bundle]) -> Standing:
    """The rows that bundles name, as the database has them. ValueError for a row of a kind there
    is none of."""
    wanted: dict[str, set[str]] = {}
    for bundle in bundles:
        for name, id_ in named(bundle):
            wanted.setdefault(name, set()).add(id_)
    versions: dict[Key, int] = {}
    over: set[Key] = set()
    for name, ids in sorted(wanted.items()):
        kind, ordered = KINDS[name], sorted(ids)
        live = literal(1) if kind.live is None else kind.table.c.live
        for start in range(0, len(ordered), IDS_AT_ONCE):
            some = kind.table.c.id.in_(ordered[start : start + IDS_AT_ONCE])
            question = select(kind.table.c.id, kind.table.c.version, live).where(some)
            for id_, version, is_live in connection.execute(question):
                versions[name, id_] = version
                if not is_live:
                    over.add((name, id_))
    return Standing(versions, over, dict(versions))


def advance(standing: Standing, staged: Staged) -> None:
    """Something staged has been written."""
    for key, entity in staged.rows.items():
        standing.over.discard(key)
        if entity is None:
            standing.versions.pop(key, None)
            continue
        standing.versions[key] = entity.version
        if not is_live(key, entity):
            standing.over.add(key)


class Checks:
    """Takes bundles one after another; those that hold, each after those before it, are staged."""

    def __init__(self, ground: Ground, money: Purse, standing: Standing) -> None:
        self._ground = ground
        self._money = money
        self._standing = standing
        self.staged = Staged()
        self.account: Account | None = None
        """The balances with what is staged; None while no bundle was about money."""

    def take(self, bundle: Bundle) -> None:
        """Stage a bundle, or leave everything as it was and raise Drop."""
        part, account = Staged(), self.account
        try:
            for ref in bundle.rests_on:
                self._check(ref)
            for change in bundle.changes:
                self._apply(change, part)
        except Drop:
            self.account = account
            raise
        self.staged.add(part)

    def _check(self, ref: RowRef) -> None:
        # against the rows as the transaction found them: what another bundle of the same commit
        # does to a row was planned together with this one
        if ref.kind == POLICY:
            current = self._ground.policy_version()
            if current != ref.version:
                raise _moved(POLICY, "", current, ref.version)
            return
        key = ref.kind, ref.id
        version = self._standing.began.get(key, 0)
        absent = KINDS[ref.kind].renewable and not self._standing.of(key)[1]
        if version != ref.version and not (ref.version == 0 and absent):
            raise _moved(ref.kind, ref.id, version, ref.version)

    def _apply(self, change: Change, part: Staged) -> None:
        match change:
            case Put(entity):
                self._put(entity, part)
            case Remove(kind, id_):
                part.rows[kind, id_] = None
            case Post(entry):
                self._post(entry, part)
            case Note(event):
                part.events.append(event)
            case Decide(decision):
                part.decisions[JobId(decision.job_id)] = decision
            case Learn(lessons):
                part.learned = lessons
            case Remember():
                self._remember(change, part)
            case SetPolicy():
                self._set_policy(change, part)
            case SetBudgets():
                self._set_budgets(change)

    def _put(self, entity: Entity, part: Staged) -> None:
        kind = kind_of(entity)
        key = kind.name, kind.id_of(entity)
        version, live = self._now(key, part)
        renewed = entity.version == 0 and not live and kind.renewable
        if entity.version != version and not renewed:
            raise _moved(*key, version, entity.version)
        part.rows[key] = replace(entity, version=version + 1)

    def _now(self, key: Key, part: Staged) -> tuple[int, bool]:
        for staged in (part, self.staged):
            if key in staged.rows:
                entity = staged.rows[key]
                return (0, False) if entity is None else (entity.version, is_live(key, entity))
        return self._standing.of(key)

    def _post(self, entry: LedgerEntry, part: Staged) -> None:
        if entry.amount_micros < 0 and entry.kind is not EntryKind.SETTLEMENT:
            raise Drop(DropCause.CONFLICT, f"entry {entry.id} is a negative {entry.kind}")
        account = self._account()
        if self._money.knows(account, entry.id):
            raise Drop(DropCause.DUPLICATE, f"entry {entry.id} is in the ledger already")
        if entry.kind is EntryKind.RELEASE:
            # a release of what was never held would make room for spending above the limit
            held = self._money.held_for(account, entry.claim_id)
            if entry.amount_micros > held:
                raise Drop(
                    DropCause.CONFLICT,
                    f"entry {entry.id} would release {entry.amount_micros} micro-dollars of the"
                    f" {held} held for claim {entry.claim_id}",
                )
        reason = fits(account.balances, entry)
        if reason is not None:
            raise Drop(DropCause.OVER_BUDGET, str(reason))
        self.account = account.with_entry(entry)
        part.entries.append(entry)

    def _remember(self, key: Remember, part: Staged) -> None:
        pair = key.team, key.key
        staged = part.keys.get(pair) or self.staged.keys.get(pair)
        stored = self._ground.stands_for(key.team, key.key, at=key.at)
        job_id = stored if staged is None else staged.job_id
        if job_id is not None:
            raise Drop(DropCause.DUPLICATE, f"idempotency key {key.key!r} stands for job {job_id}")
        part.keys[pair] = key

    def _set_policy(self, change: SetPolicy, part: Staged) -> None:
        staged = len(self.staged.policies) + len(part.policies)
        current = self._ground.policy_version() + staged
        if current != change.version:
            raise _moved(POLICY, "", current, change.version)
        part.policies.append(change)

    def _set_budgets(self, change: SetBudgets) -> None:
        names = [budget.name for budget in change.budgets]
        if len(set(names)) != len(names):
            raise Drop(DropCause.CONFLICT, "two budgets have the same name")
        try:
            self.account = self._money.with_budgets(self._account(), change.budgets)
        except UnknownTimezone as problem:
            raise Drop(DropCause.CONFLICT, str(problem)) from problem

    def _account(self) -> Account:
        return self._money.open() if self.account is None else self.account


def policy_version(connection: Connection) -> int:
    """The current policy's version, 0 before any was set."""
    return int(
        connection.execute(select(func.coalesce(func.max(policies.c.version), 0))).scalar_one()
    )


def named(bundle: Bundle) -> Iterable[Key]:
    """The rows a bundle writes or rests on."""
    for ref in bundle.rests_on:
        if ref.kind in KINDS:
            yield ref.kind, ref.id
        elif ref.kind != POLICY:
            raise ValueError(f"bundle {bundle.id} rests on a row of kind {ref.kind!r}")
    for change in bundle.changes:
        match change:
            case Put(entity):
                kind = kind_of(entity)
                yield kind.name, kind.id_of(entity)
            case Remove(name, id_):
                if name != "breaker":
                    raise ValueError(f"only breakers are removed, not a {name}")
                yield name, id_


def is_live(key: Key, entity: Entity) -> bool:
    """Whether an entity's row counts as live."""
    live = KINDS[key[0]].live
    return live is None or live(entity)


def _moved(kind: str, id_: str, found: int, wanted: int) -> Drop:
    name = f"{kind} {id_}".strip()
    return Drop(DropCause.MOVED, f"{name} is at version {found}, not {wanted}")
