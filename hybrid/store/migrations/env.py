"""Runs migrations on the connection, and in the transaction, that the store gives."""

from __future__ import annotations

from alembic import context

from hybrid.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
