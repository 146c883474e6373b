"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("team", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", "team", name=op.f("pk_artifacts")),
    )
    op.create_index("ix_artifacts_created_at", "artifacts", ["created_at"], unique=False)
    op.create_table(
        "balances",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("charged_micros", sa.BigInteger(), nullable=False),
        sa.Column("held_micros", sa.BigInteger(), nullable=False),
        sa.Column("window_start_at", sa.Double(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_balances")),
    )
    op.create_table(
        "breakers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_breakers")),
    )
    op.create_table(
        "claims",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("live", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("team", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("requested_at", sa.Double(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_claims")),
    )
    op.create_index(op.f("ix_claims_job_id"), "claims", ["job_id"], unique=False)
    op.create_index(
        "ix_claims_live",
        "claims",
        ["id"],
        unique=False,
        sqlite_where=sa.text("live = 1"),
        postgresql_where=sa.text("live = 1"),
    )
    op.create_index("ix_claims_requested_at", "claims", ["requested_at", "id"], unique=False)
    op.create_index(op.f("ix_claims_revision"), "claims", ["revision"], unique=False)
    op.create_index("ix_claims_state", "claims", ["state", "requested_at", "id"], unique=False)
    op.create_table(
        "events",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_job_id", "events", ["job_id", "seq"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("live", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("team", sa.Text(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("priority", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("submitted_at", sa.Double(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(
        "ix_jobs_live",
        "jobs",
        ["id"],
        unique=False,
        sqlite_where=sa.text("live = 1"),
        postgresql_where=sa.text("live = 1"),
    )
    op.create_index(op.f("ix_jobs_revision"), "jobs", ["revision"], unique=False)
    op.create_index("ix_jobs_state", "jobs", ["state", "submitted_at", "id"], unique=False)
    op.create_index("ix_jobs_submitted_at", "jobs", ["submitted_at", "id"], unique=False)
    op.create_index("ix_jobs_team", "jobs", ["team", "submitted_at", "id"], unique=False)
    op.create_index("ix_jobs_user_name", "jobs", ["user_name", "submitted_at", "id"], unique=False)
    op.create_table(
        "join_tokens",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("derived", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked", sa.Integer(), nullable=False),
        sa.Column("used_by", sa.Text(), nullable=True),
        sa.Column("used_token_sha256", sa.Text(), nullable=True),
        sa.Column("used_at", sa.Double(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_join_tokens")),
        sa.UniqueConstraint("id", name=op.f("uq_join_tokens_id")),
    )
    op.create_table(
        "learned",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_learned")),
    )
    op.create_table(
        "ledger",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("claim_id", sa.Text(), nullable=False),
        sa.Column("amount_micros", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("team", sa.Text(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("memo", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_ledger")),
        sa.UniqueConstraint("id", name=op.f("uq_ledger_id")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_ledger_at", "ledger", ["at"], unique=False)
    op.create_index("ix_ledger_claim_id", "ledger", ["claim_id", "seq"], unique=False)
    op.create_index("ix_ledger_job_id", "ledger", ["job_id", "at"], unique=False)
    op.create_index("ix_ledger_team", "ledger", ["team", "at"], unique=False)
    op.create_index("ix_ledger_user_name", "ledger", ["user_name", "at"], unique=False)
    op.create_table(
        "mail_acks",
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("heard_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("node_id", "run_id", name=op.f("pk_mail_acks")),
    )
    op.create_table(
        "mail_nodes",
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("claim_id", sa.Text(), nullable=True),
        sa.Column("token_sha256", sa.Text(), nullable=False),
        sa.Column("heard_at", sa.Double(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.Column("work_revision", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("cordoned", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("node_id", name=op.f("pk_mail_nodes")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_mail_nodes_token_sha256")),
    )
    op.create_table(
        "mail_orders",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("stop", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "rank", name=op.f("pk_mail_orders")),
    )
    op.create_index(op.f("ix_mail_orders_node_id"), "mail_orders", ["node_id"], unique=False)
    op.create_table(
        "mail_ranks",
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("node_id", "run_id", "rank", name=op.f("pk_mail_ranks")),
    )
    op.create_index(op.f("ix_mail_ranks_run_id"), "mail_ranks", ["run_id"], unique=False)
    op.create_table(
        "nodes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("live", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
    )
    op.create_index(
        "ix_nodes_live",
        "nodes",
        ["id"],
        unique=False,
        sqlite_where=sa.text("live = 1"),
        postgresql_where=sa.text("live = 1"),
    )
    op.create_index(op.f("ix_nodes_revision"), "nodes", ["revision"], unique=False)
    op.create_table(
        "policies",
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_policies")),
    )
    op.create_table(
        "pools",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("live", sa.Integer(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pools")),
    )
    op.create_index(op.f("ix_pools_revision"), "pools", ["revision"], unique=False)
    op.create_table(
        "remembered",
        sa.Column("team", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body_sha256", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("team", "key", name=op.f("pk_remembered")),
    )
    op.create_index(op.f("ix_remembered_expires_at"), "remembered", ["expires_at"], unique=False)
    op.create_table(
        "system",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("installation", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_system")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("teams", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked", sa.Integer(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("sha256", name=op.f("uq_tokens_sha256")),
    )
    op.create_table(
        "decisions",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_decisions_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_decisions")),
    )
    op.create_index(op.f("ix_decisions_revision"), "decisions", ["revision"], unique=False)
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("live", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_runs_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index("ix_runs_job_id", "runs", ["job_id", "attempt"], unique=False)
    op.create_index(
        "ix_runs_live",
        "runs",
        ["id"],
        unique=False,
        sqlite_where=sa.text("live = 1"),
        postgresql_where=sa.text("live = 1"),
    )
    op.create_index(op.f("ix_runs_revision"), "runs", ["revision"], unique=False)
    op.create_index(
        "uq_runs_one_live_per_job",
        "runs",
        ["job_id"],
        unique=True,
        sqlite_where=sa.text("live = 1"),
        postgresql_where=sa.text("live = 1"),
    )
    op.create_table(
        "run_gpus",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("gpu_id", sa.Text(), nullable=False),
        sa.Column("share_ppm", sa.Integer(), nullable=False),
        sa.Column("whole", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_gpus_run_id")),
        sa.PrimaryKeyConstraint("run_id", "node_id", "gpu_id", name=op.f("pk_run_gpus")),
    )
    op.create_index("ix_run_gpus_gpu", "run_gpus", ["node_id", "gpu_id"], unique=False)
    op.create_index(
        "uq_run_gpus_one_whole_holder",
        "run_gpus",
        ["node_id", "gpu_id"],
        unique=True,
        sqlite_where=sa.text("whole = 1"),
        postgresql_where=sa.text("whole = 1"),
    )
