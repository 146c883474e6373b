"""Questions that services ask of rows."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, select, tuple_

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.event import Event
from hybrid.domain.ids import JobId
from hybrid.domain.job import Job
from hybrid.domain.run import Run
from hybrid.ports.store import NO_POLICY, JobFilter, Page, PolicyVersion, Remembered
from hybrid.store.documents import load
from hybrid.store.tables import claims, events, jobs, policies, remembered, runs

_NO_CURSOR = "not a cursor of a listing of jobs"
_LAST_SEQ = 2**63 - 1
_NO_VERSION = 2**31 - 1


def nameable(*texts: str | None) -> bool:
    """Whether a database could hold the texts at all: what it cannot hold, no row is called."""
    for text in texts:
        if text is None:
            continue
        if "\0" in text:
            return False
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


def document(connection: Connection, table: Table, id_: str) -> str | None:
    """The document of a row by its primary key."""
    key = next(iter(table.primary_key.columns))
    return connection.execute(select(table.c.doc).where(key == id_)).scalar()


def list_jobs(connection: Connection, which: JobFilter, *, limit: int, cursor: str | None) -> Page:
    """A page of jobs, newest first; ValueError for a cursor that is none."""
    if limit < 1:
        raise ValueError("a page has at least one job")
    place = None if cursor is None else place_of(cursor)
    texts = (which.team, which.user, which.priority, which.name, *(which.teams or ()))
    if not nameable(*texts) or which.teams == ():
        return Page((), None)
    question = _matching(select(jobs.c.doc), which)
    if place is not None:
        question = question.where(tuple_(jobs.c.submitted_at, jobs.c.id) < tuple_(*place))
    question = question.order_by(jobs.c.submitted_at.desc(), jobs.c.id.desc()).limit(limit + 1)
    found = [load(Job, doc) for doc in connection.execute(question).scalars()]
    page = tuple(found[:limit])
    return Page(page, cursor_to(page[-1]) if len(found) > limit else None)


def _matching(question: Select[Any], which: JobFilter) -> Select[Any]:
    if which.states:
        question = question.where(jobs.c.state.in_([state.value for state in which.states]))
    if which.teams is not None:
        question = question.where(jobs.c.team.in_(which.teams))
    for column, wanted in (
        (jobs.c.team, which.team),
        (jobs.c.user_name, which.user),
        (jobs.c.priority, which.priority),
        (jobs.c.name, which.name),
    ):
        if wanted is not None:
            question = question.where(column == wanted)
    return question


def cursor_to(job: Job) -> str:
    """Where a page that ends with a job goes on."""
    text = json.dumps([job.submitted_at, job.id])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place_of(cursor: str) -> tuple[float, str]:
    """When the last job of a page was submitted, and its id; ValueError for no cursor."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        place = json.loads(base64.b64decode(padded.encode(), altchars=b"-_", validate=True))
        at, id_ = float(place[0]), str(place[1])
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as problem:
        raise ValueError(_NO_CURSOR) from problem
    if not math.isfinite(at) or not nameable(id_):
        raise ValueError(_NO_CURSOR)
    return at, id_


def list_runs(connection: Connection, job_id: JobId) -> tuple[Run, ...]:
    """A job's runs in the order of their attempts."""
    question = select(runs.c.doc).where(runs.c.job_id == job_id).order_by(runs.c.attempt, runs.c.id)
    return tuple(load(Run, doc) for doc in connection.execute(question).scalars())


def list_claims(
    connection: Connection, states: Sequence[ClaimState], limit: int
) -> tuple[Claim, ...]:
    """Claims, newest first."""
    question = select(claims.c.doc).order_by(claims.c.requested_at.desc(), claims.c.id.desc())
    if states:
        question = question.where(claims.c.state.in_([state.value for state in states]))
    return tuple(load(Claim, doc) for doc in connection.execute(question.limit(limit)).scalars())


def list_events(
    connection: Connection, *, job_id: JobId | None, after: int, limit: int
) -> tuple[tuple[int, Event], ...]:
    """Events with their numbers, in order."""
    question = select(events.c.seq, events.c.doc).where(events.c.seq > min(after, _LAST_SEQ))
    if job_id is not None:
        question = question.where(events.c.job_id == job_id)
    question = question.order_by(events.c.seq).limit(limit)
    return tuple((row.seq, load(Event, row.doc)) for row in connection.execute(question))


def recall(connection: Connection, team: str, key: str, now: float) -> Remembered | None:
    """What an unexpired idempotency key stands for."""
    row = connection.execute(
        select(remembered.c.job_id, remembered.c.body_sha256).where(
            remembered.c.team == team, remembered.c.key == key, remembered.c.expires_at > now
        )
    ).first()
    return None if row is None else Remembered(JobId(row.job_id), row.body_sha256)


def current_policy(connection: Connection) -> PolicyVersion:
    """The newest policy."""
    newest = list_policies(connection, limit=1, before=None)
    return newest[0] if newest else NO_POLICY


def one_policy(connection: Connection, version: int) -> PolicyVersion | None:
    """A version of the policy; 0 is the empty document."""
    if version == 0:
        return NO_POLICY
    if not 0 < version < _NO_VERSION:
        return None
    row = connection.execute(select(policies).where(policies.c.version == version)).first()
    return None if row is None else _policy(row)


def list_policies(
    connection: Connection, *, limit: int, before: int | None
) -> tuple[PolicyVersion, ...]:
    """Versions of the policy, newest first."""
    question = select(policies).order_by(policies.c.version.desc()).limit(limit)
    if before is not None:
        question = question.where(policies.c.version < min(before, _NO_VERSION))
    return tuple(_policy(row) for row in connection.execute(question))


def _policy(row: Row[Any]) -> PolicyVersion:
    return PolicyVersion(
        version=row.version, document=row.document, actor=row.actor, at=row.at, why=row.why
    )
