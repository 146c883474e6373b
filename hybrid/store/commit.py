"""The one way rows that decisions rest on are written: bundles in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sqlalchemy import Connection, delete, func, insert, literal, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from hybrid.domain.ids import RunId
from hybrid.domain.job import Job
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.domain.plan import RowRef
from hybrid.domain.run import Run
from hybrid.ledger.periods import UnknownTimezone
from hybrid.ports.store import (
    Bundle,
    Change,
    Committed,
    Decide,
    DropCause,
    Dropped,
    Entity,
    EpochPassed,
    Learn,
    Note,
    Post,
    Put,
    Remember,
    Remove,
    SetBudgets,
    SetPolicy,
)
from hybrid.store.documents import dump
from hybrid.store.money import Money, held_for
from hybrid.store.rows import KINDS, kind_of
from hybrid.store.tables import (
    breakers,
    decisions,
    events,
    learned,
    ledger,
    policies,
    remembered,
    run_gpus,
    system,
)

_IDS_AT_ONCE = 500
_WHOLE_PPM = 1_000_000
_ABSENT = (0, False)
POLICY = "policy"
"""The kind of the row that :class:`RowRef` names the policy's version by (its id is ignored)."""

Accept = Callable[[frozenset[str]], bool]


class Refused(Exception):
    """Nothing of a commit was written: what to tell who asked."""

    def __init__(self, outcome: Committed) -> None:
        super().__init__()
        self.outcome = outcome


class _Drop(Exception):
    def __init__(self, cause: DropCause, words: str) -> None:
        super().__init__(words)
        self.cause, self.words = cause, words


def begin(connection: Connection, epoch: int | None) -> int:
    """Queue up behind other writers; returns this transaction's revision.

    The update comes first in every transaction that writes loop rows: its row lock lets one at a
    time through, so a revision that is visible has every smaller one below it.
    """
    connection.execute(
        update(system).where(system.c.id == 1).values(revision=system.c.revision + 1)
    )
    row = connection.execute(select(system.c.revision, system.c.epoch)).one()
    if epoch is not None and row.epoch != epoch:
        raise EpochPassed(f"the loop's epoch is {row.epoch}, not {epoch}: another process leads")
    return int(row.revision)


class Commit:
    """One commit in its transaction. It is made anew for every attempt at that transaction."""

    def __init__(self, connection: Connection, at: float, revision: int) -> None:
        self._connection = connection
        self._at = at
        self._revision = revision
        self._money = Money(connection, at)
        self._versions: dict[tuple[str, str], tuple[int, bool]] = {}
        self._undo: dict[tuple[str, str], tuple[int, bool]] = {}

    def run(self, bundles: Sequence[Bundle], accept: Accept | None) -> Committed:
        """Write the bundles that hold; raises Refused when nothing is to be written."""
        self._read_versions(bundles)
        applied: list[str] = []
        dropped: list[Dropped] = []
        for bundle in bundles:
            drop = self._attempt(bundle)
            if drop is None:
                applied.append(bundle.id)
            else:
                dropped.append(Dropped(bundle.id, drop.cause, drop.words))
        before = self._revision - 1
        if not applied:
            raise Refused(Committed((), tuple(dropped), before))
        if dropped and accept and not accept(frozenset(drop.bundle_id for drop in dropped)):
            words = "what remained without the dropped bundles was not clean"
            dropped += [Dropped(id_, DropCause.LINT, words) for id_ in applied]
            raise Refused(Committed((), tuple(dropped), before))
        self._money.save()
        return Committed(tuple(applied), tuple(dropped), self._revision)

    # --- bundles ----------------------------------------------------------------------------

    def _attempt(self, bundle: Bundle) -> _Drop | None:
        """Write a bundle in a savepoint of its own, so that it alone is undone when it fails."""
        self._undo = {}
        money = self._money.mark()
        try:
            with self._connection.begin_nested():
                for ref in bundle.rests_on:
                    self._check(ref)
                for change in sorted(bundle.changes, key=_turn):
                    self._apply(change)
        except _Drop as drop:
            failure = drop
        except IntegrityError as problem:
            failure = _Drop(DropCause.CONFLICT, str(problem.orig).strip().splitlines()[0])
        else:
            return None
        self._versions.update(self._undo)
        self._money.restore(money)
        return failure

    def _read_versions(self, bundles: Iterable[Bundle]) -> None:
        wanted: dict[str, set[str]] = {}
        for bundle in bundles:
            for ref in bundle.rests_on:
                if ref.kind != POLICY and ref.kind not in KINDS:
                    raise ValueError(f"bundle {bundle.id} rests on a row of kind {ref.kind!r}")
                wanted.setdefault(ref.kind, set()).add(ref.id)
            for change in bundle.changes:
                if isinstance(change, Put):
                    kind = kind_of(change.entity)
                    wanted.setdefault(kind.name, set()).add(kind.id_of(change.entity))
        wanted.pop(POLICY, None)
        for name, ids in sorted(wanted.items()):
            table = KINDS[name].table
            live = table.c.live if KINDS[name].live else literal(1)
            ordered = sorted(ids)
            for start in range(0, len(ordered), _IDS_AT_ONCE):
                some = ordered[start : start + _IDS_AT_ONCE]
                question = select(table.c.id, table.c.version, live).where(table.c.id.in_(some))
                for id_, version, is_live in self._connection.execute(question):
                    self._versions[name, id_] = (version, bool(is_live))

    def _check(self, ref: RowRef) -> None:
        if ref.kind == POLICY:
            current = self._policy_version()
            if current != ref.version:
                raise _moved(POLICY, "", current, ref.version)
            return
        version, live = self._versions.get((ref.kind, ref.id), _ABSENT)
        absent = ref.version == 0 and not live and KINDS[ref.kind].renewable
        if version != ref.version and not absent:
            raise _moved(ref.kind, ref.id, version, ref.version)

    # --- changes ----------------------------------------------------------------------------

    def _apply(self, change: Change) -> None:
        match change:
            case Put(entity):
                self._put(entity)
            case Remove(kind, id_):
                self._remove(kind, id_)
            case Post(entry):
                self._post(entry)
            case Note(event):
                self._connection.execute(
                    insert(events).values(
                        job_id=event.job_id,
                        kind=event.kind.value,
                        subject=event.subject,
                        at=event.at,
                        doc=dump(event),
                    )
                )
            case Decide(decision):
                self._replace(
                    decisions,
                    {"job_id": decision.job_id},
                    {"revision": self._revision, "doc": dump(decision)},
                )
            case Learn(lesson):
                self._replace(learned, {"id": 1}, {"doc": dump(lesson)})
            case Remember():
                self._remember(change)
            case SetPolicy():
                self._set_policy(change)
            case SetBudgets():
                self._set_budgets(change)

    def _put(self, entity: Entity) -> None:
        kind = kind_of(entity)
        key = kind.name, kind.id_of(entity)
        version, live = self._versions.get(key, _ABSENT)
        renewed = entity.version == 0 and version > 0 and not live and kind.renewable
        if entity.version != version and not renewed:
            raise _moved(*key, version, entity.version)
        written = replace(entity, version=version + 1)
        values = {
            **kind.values(written),
            "version": version + 1,
            "revision": self._revision,
            "doc": dump(written),
        }
        try:
            if version == 0:
                self._connection.execute(insert(kind.table).values(values))
            else:
                self._connection.execute(
                    update(kind.table).where(kind.table.c.id == key[1]).values(values)
                )
        except IntegrityError as problem:
            if not isinstance(entity, Run):
                raise
            raise _Drop(
                DropCause.CONFLICT, f"job {entity.job_id} has another live run, or is not there"
            ) from problem
        if isinstance(written, Run):
            self._hold_gpus(written)
        self._now_at(key, version + 1, kind.live is None or kind.live(written))

    def _now_at(self, key: tuple[str, str], version: int, live: bool) -> None:
        self._undo.setdefault(key, self._versions.get(key, _ABSENT))
        self._versions[key] = (version, live)

    def _hold_gpus(self, run: Run) -> None:
        self._connection.execute(delete(run_gpus).where(run_gpus.c.run_id == run.id))
        if not run.live:
            return
        holds = [
            {
                "run_id": run.id,
                "node_id": slot.node_id,
                "gpu_id": gpu_id,
                "share_ppm": round(slot.share * _WHOLE_PPM),
                "whole": int(slot.share >= 1),
            }
            for slot in run.slots
            for gpu_id in slot.gpu_ids
        ]
        if not holds:
            return
        try:
            self._connection.execute(insert(run_gpus), holds)
        except IntegrityError as problem:
            raise _Drop(
                DropCause.CONFLICT, f"a GPU of run {run.id} is held whole by another run"
            ) from problem
        self._check_shares(run.id, [(hold["node_id"], hold["gpu_id"]) for hold in holds])

    def _check_shares(self, run_id: RunId, gpus: Sequence[tuple[object, object]]) -> None:
        place = tuple_(run_gpus.c.node_id, run_gpus.c.gpu_id)
        for start in range(0, len(gpus), _IDS_AT_ONCE):
            over = self._connection.execute(
                select(run_gpus.c.node_id, run_gpus.c.gpu_id)
                .where(place.in_(gpus[start : start + _IDS_AT_ONCE]))
                .group_by(run_gpus.c.node_id, run_gpus.c.gpu_id)
                # each share was rounded, so a full GPU may come to a millionth more per holder
                .having(func.sum(run_gpus.c.share_ppm) > _WHOLE_PPM + func.count())
            ).first()
            if over is not None:
                raise _Drop(
                    DropCause.CONFLICT,
                    f"run {run_id} would bring GPU {over.gpu_id} of node {over.node_id} above 1",
                )

    def _remove(self, kind: str, id_: str) -> None:
        if kind != "breaker":
            raise ValueError(f"only breakers are removed, not a {kind}")
        self._connection.execute(delete(breakers).where(breakers.c.id == id_))
        self._now_at((kind, id_), *_ABSENT)

    def _post(self, entry: LedgerEntry) -> None:
        if entry.amount_micros < 0 and entry.kind is not EntryKind.SETTLEMENT:
            raise _Drop(DropCause.CONFLICT, f"entry {entry.id} is a negative {entry.kind}")
        known = select(ledger.c.seq).where(ledger.c.id == entry.id)
        if self._connection.execute(known).first() is not None:
            raise _Drop(DropCause.DUPLICATE, f"entry {entry.id} is in the ledger already")
        if entry.kind is EntryKind.RELEASE:
            held = held_for(self._connection, entry.claim_id)
            if entry.amount_micros > held:
                raise _Drop(
                    DropCause.CONFLICT,
                    f"entry {entry.id} would release {entry.amount_micros} micro-dollars of the"
                    f" {held} held for claim {entry.claim_id}",
                )
        reason = self._money.refusal(entry)
        if reason is not None:
            raise _Drop(DropCause.OVER_BUDGET, str(reason))
        self._money.post(entry)

    def _remember(self, key: Remember) -> None:
        same = (remembered.c.team == key.team) & (remembered.c.key == key.key)
        found = self._connection.execute(
            select(remembered.c.job_id).where(same, remembered.c.expires_at > key.at)
        ).first()
        if found is not None:
            raise _Drop(
                DropCause.DUPLICATE, f"idempotency key {key.key!r} stands for job {found.job_id}"
            )
        self._connection.execute(delete(remembered).where(remembered.c.expires_at <= key.at))
        self._connection.execute(
            insert(remembered).values(
                team=key.team,
                key=key.key,
                body_sha256=key.body_sha256,
                job_id=key.job_id,
                at=key.at,
                expires_at=key.expires_at,
            )
        )

    def _set_policy(self, change: SetPolicy) -> None:
        current = self._policy_version()
        if current != change.version:
            raise _moved(POLICY, "", current, change.version)
        self._connection.execute(
            insert(policies).values(
                version=current + 1,
                document=change.document,
                actor=change.actor,
                at=change.at,
                why=change.why,
            )
        )

    def _set_budgets(self, change: SetBudgets) -> None:
        names = [budget.name for budget in change.budgets]
        if len(set(names)) != len(names):
            raise _Drop(DropCause.CONFLICT, "two budgets have the same name")
        try:
            self._money.replace_budgets(change.budgets)
        except UnknownTimezone as problem:
            raise _Drop(DropCause.CONFLICT, str(problem)) from problem

    def _policy_version(self) -> int:
        return policy_version(self._connection)

    def _replace(self, table: object, key: dict[str, object], values: dict[str, object]) -> None:
        assert table is decisions or table is learned
        column = next(iter(key))
        done = self._connection.execute(
            update(table).where(table.c[column] == key[column]).values(values)
        )
        if done.rowcount == 0:
            self._connection.execute(insert(table).values({**key, **values}))


def policy_version(connection: Connection) -> int:
    """The current policy's version, 0 before any was set."""
    return int(
        connection.execute(select(func.coalesce(func.max(policies.c.version), 0))).scalar_one()
    )


def _moved(kind: str, id_: str, found: int, wanted: int) -> _Drop:
    name = f"{kind} {id_}".strip()
    return _Drop(DropCause.MOVED, f"{name} is at version {found}, not {wanted}")


def _turn(change: Change) -> int:
    """Rows before what refers to them; a run that ends before one that takes its place."""
    match change:
        case Put(Job()):
            return 0
        case Put(Run() as run):
            return 3 if run.live else 2
        case Put():
            return 1
        case _:
            return 4
