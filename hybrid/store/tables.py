"""The tables. Nothing outside this package knows them.

What queries, constraints and decisions use has a column; the whole value stands in ``doc`` as
JSON text. It is text and not the database's JSON type so that it comes back byte for byte, on
both databases, whatever is in it (a NUL in a job's output, for one).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_Serial = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only under the type name INTEGER."""


def _flag(name: str) -> Column[int]:
    """0 or 1: partial indexes are then written the same on both databases."""
    return Column(name, Integer, nullable=False)


system = Table(
    "system",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("installation", Text, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("lease_until", Double, nullable=False),
)
"""One row (id 1). Every commit updates it first, so its row lock puts writers in a queue and the
order of revisions is the order of commits: a reader that has seen revision *n* has missed nothing
below it. The loop's lease stands in the same row, so an epoch cannot change under a commit."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False, index=True),
    _flag("live"),
    Column("state", Text, nullable=False),
    Column("team", Text, nullable=False),
    Column("user_name", Text, nullable=False),
    Column("priority", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("submitted_at", Double, nullable=False),
    Column("doc", Text, nullable=False),
    Index("ix_jobs_live", "id", sqlite_where=text("live = 1"), postgresql_where=text("live = 1")),
    Index("ix_jobs_submitted_at", "submitted_at", "id"),
    Index("ix_jobs_state", "state", "submitted_at", "id"),
    Index("ix_jobs_team", "team", "submitted_at", "id"),
    Index("ix_jobs_user_name", "user_name", "submitted_at", "id"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False, index=True),
    _flag("live"),
    Column("state", Text, nullable=False),
    Column("job_id", Text, ForeignKey("jobs.id"), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("doc", Text, nullable=False),
    Index("ix_runs_live", "id", sqlite_where=text("live = 1"), postgresql_where=text("live = 1")),
    Index("ix_runs_job_id", "job_id", "attempt"),
    Index(
        "uq_runs_one_live_per_job",
        "job_id",
        unique=True,
        sqlite_where=text("live = 1"),
        postgresql_where=text("live = 1"),
    ),
)

run_gpus = Table(
    "run_gpus",
    metadata,
    Column("run_id", Text, ForeignKey("runs.id"), nullable=False),
    Column("node_id", Text, nullable=False),
    Column("gpu_id", Text, nullable=False),
    Column("share_ppm", Integer, nullable=False),
    _flag("whole"),
    PrimaryKeyConstraint("run_id", "node_id", "gpu_id"),
    Index(
        "uq_run_gpus_one_whole_holder",
        "node_id",
        "gpu_id",
        unique=True,
        sqlite_where=text("whole = 1"),
        postgresql_where=text("whole = 1"),
    ),
    Index("ix_run_gpus_gpu", "node_id", "gpu_id"),
)
"""What live runs hold; a run's rows go when it ends. ``share_ppm`` is in millionths of a GPU."""

claims = Table(
    "claims",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False, index=True),
    _flag("live"),
    Column("state", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("team", Text, nullable=False),
    Column("job_id", Text, nullable=False, index=True),
    Column("requested_at", Double, nullable=False),
    Column("doc", Text, nullable=False),
    Index("ix_claims_live", "id", sqlite_where=text("live = 1"), postgresql_where=text("live = 1")),
    Index("ix_claims_requested_at", "requested_at", "id"),
    Index("ix_claims_state", "state", "requested_at", "id"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False, index=True),
    _flag("live"),
    Column("state", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("doc", Text, nullable=False),
    Index("ix_nodes_live", "id", sqlite_where=text("live = 1"), postgresql_where=text("live = 1")),
)

pools = Table(
    "pools",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False, index=True),
    _flag("live"),
    Column("doc", Text, nullable=False),
)

breakers = Table(
    "breakers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("doc", Text, nullable=False),
)

sightings = Table(
    "sightings",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False, index=True),
    Column("doc", Text, nullable=False),
)
"""What was seen of the availability of spot offers, by offer."""

decisions = Table(
    "decisions",
    metadata,
    Column("job_id", Text, ForeignKey("jobs.id"), primary_key=True),
    Column("revision", BigInteger, nullable=False, index=True),
    Column("doc", Text, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("seq", _Serial, primary_key=True),
    Column("job_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("doc", Text, nullable=False),
    Index("ix_events_job_id", "job_id", "seq"),
    sqlite_autoincrement=True,
)

cursors = Table(
    "cursors",
    metadata,
    Column("reader", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
)
"""How far the readers of the event log have come."""

ledger = Table(
    "ledger",
    metadata,
    Column("seq", _Serial, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("claim_id", Text, nullable=False),
    Column("amount_micros", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("team", Text, nullable=False),
    Column("user_name", Text, nullable=False),
    Column("job_id", Text, nullable=False),
    Column("memo", Text, nullable=False),
    Index("ix_ledger_at", "at"),
    Index("ix_ledger_team", "team", "at"),
    Index("ix_ledger_user_name", "user_name", "at"),
    Index("ix_ledger_job_id", "job_id", "at"),
    Index("ix_ledger_claim_id", "claim_id", "seq"),
    sqlite_autoincrement=True,
)

balances = Table(
    "balances",
    metadata,
    Column("name", Text, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("charged_micros", BigInteger, nullable=False),
    Column("held_micros", BigInteger, nullable=False),
    Column("window_start_at", Double, nullable=False),
    Column("doc", Text, nullable=False),
)
"""Budgets, each with what the ledger comes to since ``window_start_at``: kept for speed, and
verified by replaying the ledger."""

learned = Table(
    "learned",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("doc", Text, nullable=False),
)

remembered = Table(
    "remembered",
    metadata,
    Column("team", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("body_sha256", Text, nullable=False),
    Column("job_id", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
    PrimaryKeyConstraint("team", "key"),
)

policies = Table(
    "policies",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("document", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("why", Text, nullable=False),
)

# --- the mailbox: no revision, for heartbeats must not wake the loop ---------------------------

mail_nodes = Table(
    "mail_nodes",
    metadata,
    Column("node_id", Text, primary_key=True),
    Column("pool", Text, nullable=False),
    Column("claim_id", Text),
    Column("token_sha256", Text, nullable=False, unique=True),
    Column("heard_at", Double, nullable=False),
    Column("doc", Text, nullable=False),
    Column("work_revision", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    _flag("cordoned"),
    Column("lease_until", Double),
)

mail_orders = Table(
    "mail_orders",
    metadata,
    Column("run_id", Text, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("node_id", Text, nullable=False, index=True),
    Column("epoch", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    Column("stop", Text, nullable=False),
    PrimaryKeyConstraint("run_id", "rank"),
)

mail_ranks = Table(
    "mail_ranks",
    metadata,
    Column("node_id", Text, nullable=False),
    Column("run_id", Text, nullable=False, index=True),
    Column("rank", Integer, nullable=False),
    Column("phase", Text, nullable=False),
    Column("doc", Text, nullable=False),
    PrimaryKeyConstraint("node_id", "run_id", "rank"),
)
"""Keyed by node first: what one node says can never replace what another said."""

mail_acks = Table(
    "mail_acks",
    metadata,
    Column("node_id", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("heard_at", Double, nullable=False),
    PrimaryKeyConstraint("node_id", "run_id"),
)
"""Runs that are over for a node. ``heard_at`` is when it was last heard of as that was written."""

# --- access ------------------------------------------------------------------------------------

tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("sha256", Text, nullable=False, unique=True),
    Column("role", Text, nullable=False),
    Column("user_name", Text, nullable=False),
    Column("teams", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    _flag("revoked"),
    Column("note", Text, nullable=False),
)

join_tokens = Table(
    "join_tokens",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("pool", Text, nullable=False),
    _flag("derived"),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    _flag("revoked"),
    Column("used_by", Text),
    Column("used_token_sha256", Text),
    Column("used_at", Double),
    Column("note", Text, nullable=False),
)
"""``derived`` rows are uses of claims' tokens, which are computed and never kept."""

artifacts = Table(
    "artifacts",
    metadata,
    Column("digest", Text, nullable=False),
    Column("team", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    PrimaryKeyConstraint("digest", "team"),
    Index("ix_artifacts_created_at", "created_at"),
)
