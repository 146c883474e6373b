"""What a commit is about to write, and the writing of it, many rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, func, insert, select, tuple_, update

from hybrid.domain.event import Event
from hybrid.domain.ids import JobId
from hybrid.domain.learned import Learned
from hybrid.domain.ledger_entry import LedgerEntry
from hybrid.domain.plan import Decision
from hybrid.domain.run import Run
from hybrid.ports.store import Entity, Remember, SetPolicy
from hybrid.store.documents import dump
from hybrid.store.rows import KINDS, RUN
from hybrid.store.tables import (
    decisions,
    events,
    learned,
    ledger,
    policies,
    remembered,
    run_gpus,
)

Key = tuple[str, str]
"""A row's kind and id."""

IDS_AT_ONCE = 500
WHOLE_PPM = 1_000_000
_REVISION = "revision"


@dataclass(slots=True)
class Staged:
    """Changes that passed every check and are not written yet.

    ``rows`` holds entities as they will stand (at their new version), None for one that goes.
    """

    rows: dict[Key, Entity | None] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    decisions: dict[JobId, Decision] = field(default_factory=dict)
    entries: list[LedgerEntry] = field(default_factory=list)
    keys: dict[tuple[str, str], Remember] = field(default_factory=dict)
    policies: list[SetPolicy] = field(default_factory=list)
    learned: Learned | None = None

    def add(self, other: Staged) -> None:
        """Take in what was staged after this."""
        self.rows.update(other.rows)
        self.events.extend(other.events)
        self.decisions.update(other.decisions)
        self.entries.extend(other.entries)
        self.keys.update(other.keys)
        self.policies.extend(other.policies)
        self.learned = other.learned or self.learned


class GpuOverheld(Exception):
    """Shares of one GPU would come to more than the whole."""


def write(
    connection: Connection, staged: Staged, *, revision: int, there: Mapping[Key, int]
) -> None:
    """Write what is staged. ``there`` has the version of every row that exists already.

    Raises IntegrityError when an index refuses (a second live run of a job, a second holder of a
    whole GPU, a reference to nothing), GpuOverheld.
    """
    for name in KINDS:
        rows = {key[1]: entity for key, entity in staged.rows.items() if key[0] == name}
        if rows:
            _write_kind(connection, name, rows, revision, there)
    held = [row for row in staged.rows.values() if isinstance(row, Run)]
    if held:
        _hold_gpus(connection, held, there)
    _write_decisions(connection, staged.decisions, revision)
    _insert(connection, events, [_event_row(event) for event in staged.events])
    _insert(connection, ledger, [_entry_row(entry) for entry in staged.entries])
    _insert(connection, policies, [_policy_row(policy) for policy in staged.policies])
    for key in staged.keys.values():
        _write_key(connection, key)
    if staged.learned is not None:
        connection.execute(delete(learned))
        connection.execute(insert(learned).values(id=1, doc=dump(staged.learned)))


def _insert(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), rows)


# --- entities ----------------------------------------------------------------------------------


def _write_kind(
    connection: Connection,
    name: str,
    rows: Mapping[str, Entity | None],
    revision: int,
    there: Mapping[Key, int],
) -> None:
    table = KINDS[name].table
    gone = [id_ for id_, entity in rows.items() if entity is None and (name, id_) in there]
    if gone:
        connection.execute(delete(table).where(table.c.id == bindparam("key")), _keys(gone))
    written = [_entity_row(name, entity, revision) for entity in rows.values() if entity]
    # runs that end first: their job, and their GPUs, may have another in the same commit
    written.sort(key=lambda row: row.get("live", 0))
    old = [row for row in written if (name, row["id"]) in there]
    new = [row for row in written if (name, row["id"]) not in there]
    if old:
        columns: dict[str, Any] = {
            column: bindparam(f"new_{column}") for column in old[0] if column != "id"
        }
        connection.execute(
            update(table).where(table.c.id == bindparam("key")).values(columns),
            [
                {"key": row["id"], **{f"new_{column}": row[column] for column in columns}}
                for row in old
            ],
        )
    _insert(connection, table, new)


def _keys(ids: Iterable[str]) -> list[dict[str, str]]:
    return [{"key": id_} for id_ in ids]


def _entity_row(name: str, entity: Entity, revision: int) -> dict[str, Any]:
    return {
        **KINDS[name].values(entity),
        "version": entity.version,
        _REVISION: revision,
        "doc": dump(entity),
    }


def _hold_gpus(connection: Connection, held: Sequence[Run], there: Mapping[Key, int]) -> None:
    old = [run.id for run in held if (RUN.name, run.id) in there]
    if old:
        connection.execute(
            delete(run_gpus).where(run_gpus.c.run_id == bindparam("key")), _keys(old)
        )
    live = [run for run in held if run.live]
    _insert(
        connection,
        run_gpus,
        [
            {
                "run_id": run.id,
                "node_id": slot.node_id,
                "gpu_id": gpu_id,
                "share_ppm": round(slot.share * WHOLE_PPM),
                "whole": int(slot.share >= 1),
            }
            for run in live
            for slot in run.slots
            for gpu_id in slot.gpu_ids
        ],
    )
    _check_shares(connection, [run.id for run in live])


def _check_shares(connection: Connection, run_ids: Sequence[str]) -> None:
    for start in range(0, len(run_ids), IDS_AT_ONCE):
        mine = run_gpus.alias()
        touched = select(mine.c.node_id, mine.c.gpu_id).where(
            mine.c.run_id.in_(run_ids[start : start + IDS_AT_ONCE])
        )
        over = connection.execute(
            select(run_gpus.c.node_id, run_gpus.c.gpu_id)
            .where(tuple_(run_gpus.c.node_id, run_gpus.c.gpu_id).in_(touched))
            .group_by(run_gpus.c.node_id, run_gpus.c.gpu_id)
            # each share was rounded, so a full GPU may come to a millionth more per holder
            .having(func.sum(run_gpus.c.share_ppm) > WHOLE_PPM + func.count())
        ).first()
        if over is not None:
            raise GpuOverheld(f"GPU {over.gpu_id} of node {over.node_id} would be held above 1")


# --- the rest ----------------------------------------------------------------------------------


def _write_decisions(connection: Connection, said: Mapping[JobId, Decision], revision: int) -> None:
    if not said:
        return
    ids = sorted(said)
    there: set[str] = set()
    for start in range(0, len(ids), IDS_AT_ONCE):
        some = decisions.c.job_id.in_(ids[start : start + IDS_AT_ONCE])
        there.update(connection.execute(select(decisions.c.job_id).where(some)).scalars())
    rows = [(id_, dump(said[id_])) for id_ in ids]
    old = [{"key": id_, "new_doc": doc} for id_, doc in rows if id_ in there]
    if old:
        connection.execute(
            update(decisions)
            .where(decisions.c.job_id == bindparam("key"))
            .values(doc=bindparam("new_doc"), revision=revision),
            old,
        )
    _insert(
        connection,
        decisions,
        [{"job_id": id_, "doc": doc, _REVISION: revision} for id_, doc in rows if id_ not in there],
    )


def _event_row(event: Event) -> dict[str, Any]:
    return {
        "job_id": event.job_id,
        "kind": event.kind.value,
        "subject": event.subject,
        "at": event.at,
        "doc": dump(event),
    }


def _entry_row(entry: LedgerEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "kind": entry.kind.value,
        "claim_id": entry.claim_id,
        "amount_micros": entry.amount_micros,
        "at": entry.at,
        "team": entry.team,
        "user_name": entry.user,
        "job_id": entry.job_id,
        "memo": entry.memo,
    }


def _policy_row(policy: SetPolicy) -> dict[str, Any]:
    return {
        "version": policy.version + 1,
        "document": policy.document,
        "actor": policy.actor,
        "at": policy.at,
        "why": policy.why,
    }


def _write_key(connection: Connection, key: Remember) -> None:
    # expired keys go whenever one is written: there is no other clock here
    connection.execute(delete(remembered).where(remembered.c.expires_at <= key.at))
    connection.execute(
        insert(remembered).values(
            team=key.team,
            key=key.key,
            body_sha256=key.body_sha256,
            job_id=key.job_id,
            at=key.at,
            expires_at=key.expires_at,
        )
    )
