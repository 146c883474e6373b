"""Whatever happens to money: no hold passes a cap, none is lost, nothing is charged twice.

The lives of :mod:`tests.properties.test_life`, about money: budgets of every scope and period in
several time zones, half an hour before a month ends or clocks are changed; prices jump, clocks do,
answers to launches are lost, machines settle late, bills say something else, control planes are
killed between any two effects, and others write to the same budgets at the same time.

A small part runs with all tests; ``HYBRID_SOAK=1`` (``make soak FULL=1``) takes 20,000 steps on
each database.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from hybrid.domain.job_spec import Market
from hybrid.ports.store import Store
from hybrid.store import SqlStore
from tests.doubles.life import LIST_MICROS
from tests.doubles.money_life import TURNS, MoneyLife
from tests.doubles.private_postgres import HOW_TO_GET, PrivatePostgres, find_binaries
from tests.properties.test_life import SOAK, AnyLife, _quiet_log, _settings

__all__ = ["_quiet_log"]  # a fixture: thousands of lines of trouble that is meant to be

STEPS = 50
SOAK_STEPS = int(os.environ.get("HYBRID_SOAK_MONEY_STEPS", "20000"))


class AnyMoney(AnyLife):
    """Lives about money over a database; ``new_stores`` opens two connections to a new one."""

    def __init__(self) -> None:
        super(AnyLife, self).__init__()
        self.store, self.other = self.new_stores()

    def new_stores(self) -> tuple[Store, Store]:
        """Two connections to one empty database."""
        raise NotImplementedError

    @initialize(minutes=st.sampled_from((10, 40)), turn=st.sampled_from(sorted(TURNS)))
    def a_full_house(self, minutes: int, turn: str) -> None:
        """Home is taken, half an hour before something happens to calendars."""
        self.life = MoneyLife(self.store, TURNS[turn], other=self.other)
        for _ in range(2):
            self.life.submit(
                minutes,
                team="red",
                resources={"gpus": 2},
                checkpoint={"enabled": True, "interval": 60, "size": 0.1},
                where={"burst": "never"},
            )
        self.life.live(20)

    @rule(hours=st.sampled_from((0.4, 0.6, 3, 9)), deaf=st.booleans())
    def jump(self, hours: float, deaf: bool) -> None:
        """Nobody looks for so long: leases run out, days and months end."""
        self.life.sleep(hours * 3600, deaf=deaf)

    @rule(part=st.sampled_from((0.3, 0.99, 1.5, 3.0)))
    def prices_jump(self, part: float) -> None:
        """Every spot price at once."""
        for kind, micros in LIST_MICROS.items():
            self.life.cloud.prices[kind, Market.SPOT] = int(micros * 0.4 * part)

    @rule(percent=st.sampled_from((70, 100, 100, 130, 400)))
    def import_bill(self, percent: int) -> None:
        """The cloud bills something else than we expect."""
        self.life.import_bill(percent)

    @rule(count=st.sampled_from((1, 2, 5)))
    def others_write(self, count: int) -> None:
        """Somebody holds money under the same budgets in the middle of a tick."""
        self.life.write_at_once(count)

    @precondition(lambda self: self.life.others)
    @rule()
    def others_release(self) -> None:
        self.life.give_back()

    def teardown(self) -> None:
        if not hasattr(self, "life"):
            return
        try:
            if sys.exc_info()[0] is None:
                self.life.give_back()
                self.life.end()
        finally:
            self.life.close()


class AnyMoneyInSqlite(AnyMoney):
    """Over SQLite."""

    def new_stores(self) -> tuple[Store, Store]:
        """A file of its own, copied: migrating takes longer."""
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "money.db"
        shutil.copy(_template(), path)
        self.opened = [SqlStore.open(f"sqlite:///{path}") for _ in range(2)]
        return self.opened[0], self.opened[1]

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            for store in self.opened:
                store.close()
            self.folder.cleanup()


class AnyMoneyInPostgres(AnyMoney):
    """Over PostgreSQL."""

    def new_stores(self) -> tuple[Store, Store]:
        """A database of its own, made from one that has the schema."""
        server, template = _postgres()
        self.url = server.create(template)
        self.opened = [SqlStore.open(self.url) for _ in range(2)]
        return self.opened[0], self.opened[1]

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            for store in self.opened:
                store.close()
            _postgres()[0].drop(self.url)


_made: dict[str, object] = {}


def _template() -> Path:
    if "folder" not in _made:
        folder = _made["folder"] = tempfile.TemporaryDirectory()
        path = _made["template"] = Path(folder.name) / "template.db"
        SqlStore.open(f"sqlite:///{path}").close()
    template = _made["template"]
    assert isinstance(template, Path)
    return template


def _postgres() -> tuple[PrivatePostgres, str]:
    if "server" not in _made:
        binaries = find_binaries()
        if binaries is None:
            pytest.skip(HOW_TO_GET)
        server = _made["server"] = PrivatePostgres(binaries)
        url = server.create()
        SqlStore.open(url).close()
        _made["database"] = url.rsplit("/", 1)[1]
    server = _made["server"]
    assert isinstance(server, PrivatePostgres)
    return server, str(_made["database"])


@pytest.fixture(scope="module", autouse=True)
def _clean_up() -> Iterator[None]:
    yield
    server, folder = _made.pop("server", None), _made.pop("folder", None)
    if isinstance(server, PrivatePostgres):
        server.stop()
    if isinstance(folder, tempfile.TemporaryDirectory):
        folder.cleanup()
    _made.clear()


def _steps(examples: int) -> object:
    return _settings(SOAK_STEPS // STEPS if SOAK else examples, STEPS if SOAK else 25)


TestMoneyInSqlite = AnyMoneyInSqlite.TestCase
TestMoneyInSqlite.settings = _steps(4)
TestMoneyInSqlite.pytestmark = [pytest.mark.timeout(0 if SOAK else 240)]

TestMoneyInPostgres = AnyMoneyInPostgres.TestCase
TestMoneyInPostgres.settings = _steps(2)
TestMoneyInPostgres.pytestmark = [pytest.mark.timeout(0 if SOAK else 240)]
