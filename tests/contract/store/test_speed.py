"""Plans of queries that must not read history."""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy import event

from hybrid.store import SqlStore
from tests.doubles.build import NOW, a_job
from tests.doubles.committing import a_budget, put, set_budgets


def test_a_load_never_scans_a_table_that_grows(tmp_path: Path) -> None:
    with SqlStore.open(f"sqlite:///{tmp_path / 'state.db'}") as store:
        set_budgets(
            store,
            a_budget("org", period="rolling"),
            a_budget("reds", scope="team", subject="red", period="rolling"),
        )
        put(store, a_job("j1", version=0))
        engine = store._database.engine
        said: list[tuple[str, object]] = []

        def listen(conn, cursor, statement, parameters, context, many) -> None:
            if statement.startswith("SELECT"):
                said.append((statement, parameters))

        event.listen(engine, "before_cursor_execute", listen)
        store.load(now=NOW)
        store.load(now=NOW + 100, since=1)
        event.remove(engine, "before_cursor_execute", listen)
        with engine.connect() as connection:
            plans = {
                statement: [
                    row[3]
                    for row in connection.exec_driver_sql(
                        f"EXPLAIN QUERY PLAN {statement}", parameters
                    )
                ]
                for statement, parameters in said
            }
    growing = ("jobs", "runs", "claims", "nodes", "decisions", "events", "ledger")
    live = re.compile(r"USING (COVERING )?INDEX (ix_\w+_live|uq_runs_one_live_per_job)")
    scans = [
        (step, statement)
        for statement, steps in plans.items()
        for step in steps
        if step.startswith(tuple(f"SCAN {table}" for table in growing)) and not live.search(step)
    ]
    assert len(plans) > 12
    assert not scans, "\n".join(map(str, scans))
