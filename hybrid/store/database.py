"""One database: how to connect to it, and what a transaction is.

SQLite: write-ahead log, foreign keys on, ``BEGIN IMMEDIATE`` for writes, so that a transaction
that writes never has to give up half-way because another wrote first. PostgreSQL: read committed
for writes, which queue up behind a row lock and see all that was committed before they got it;
repeatable read for reads of several tables, which must fit together.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from hybrid.store.errors import StoreUnavailable, WrongDatabase

T = TypeVar("T")

BUSY_S = 10.0
"""How long one transaction waits for another that writes."""
CONNECT_S = 5
STATEMENT_S = 60.0
TRIES = 8
DEADLINE_S = 30.0
_POOL_SIZE = 8
_POOL_EXTRA = 24

_DURABLE, _RELAXED = "FULL", "NORMAL"


class Database:
    """An engine, and its two kinds of transaction."""

    def __init__(self, url: str) -> None:
        self.url = _parsed(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.path = Path(self.url.database or "").absolute() if self.is_sqlite else None
        if self.path is not None:
            _make_private(self.path)
        self.engine = _sqlite_engine(self.url) if self.is_sqlite else _postgres_engine(self.url)
        # one writer at a time is all SQLite has; waiting for each other here is fair and cheap,
        # polling its file lock is neither
        self._turn = threading.Lock() if self.is_sqlite else nullcontext()

    @property
    def shown(self) -> str:
        """The database's name for messages: no password in it."""
        return str(self.path) if self.path else self.url.render_as_string(hide_password=True)

    def read(self, work: Callable[[Connection], T]) -> T:
        """What ``work`` makes of one consistent view of the database."""
        return self._retrying(lambda: self._read_once(work))

    def write(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Do ``work`` in one transaction: committed when it returns, undone when it raises.

        It is done again when the database could not let it finish beside another; it must
        therefore touch nothing but the connection. ``durable`` false: a power cut (not a crash of
        the program) may undo it, for what is sent again anyway.
        """
        return self._retrying(lambda: self._write_once(work, durable=durable))

    def write_twice(self, work: Callable[[Connection], T]) -> T:
        """As :meth:`write`, for work that adds a row unless it is there: when another adds it at
        the same moment, the second time sees it."""
        try:
            return self.write(work)
        except IntegrityError:
            return self.write(work)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def _read_once(self, work: Callable[[Connection], T]) -> T:
        options: dict[str, Any] = (
            {"hybrid_begin": "BEGIN"}
            if self.is_sqlite
            else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        )
        with self.engine.connect().execution_options(**options) as connection:
            return work(connection)

    def _write_once(self, work: Callable[[Connection], T], *, durable: bool) -> T:
        options: dict[str, Any] = (
            {"hybrid_begin": "BEGIN IMMEDIATE", "hybrid_sync": _DURABLE if durable else _RELAXED}
            if self.is_sqlite
            else {}
        )
        with (
            self._turn,
            self.engine.connect().execution_options(**options) as connection,
            connection.begin(),
        ):
            if not self.is_sqlite and not durable:
                connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            return work(connection)

    def _retrying(self, attempt: Callable[[], T]) -> T:
        with self.translated():
            return Retrying(
                retry=retry_if_exception(_undone_by_another),
                wait=wait_random_exponential(multiplier=0.01, max=1.0),
                stop=stop_after_attempt(TRIES) | stop_after_delay(DEADLINE_S),
                retry_error_callback=_last_error,
            )(attempt)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise StoreUnavailable for what the database's driver says when it cannot be used."""
        try:
            yield
        except (DBAPIError, PoolTimeout) as problem:
            if _sqlite_name(problem) == "SQLITE_NOTADB":
                raise WrongDatabase(f"{self.shown} is not a database") from problem
            if not _means_unavailable(problem):
                raise
            raise StoreUnavailable(
                f"the database {self.shown} cannot be used: {_first_line(problem)}"
            ) from problem


def _means_unavailable(problem: SQLAlchemyError) -> bool:
    """Whether the database could not do it, rather than was asked for something wrong."""
    return (
        isinstance(problem, OperationalError | InterfaceError | PoolTimeout)
        or type(problem) is DatabaseError  # SQLite: the file is damaged
        or (isinstance(problem, DBAPIError) and problem.connection_invalidated)
    )


def _sqlite_name(problem: SQLAlchemyError) -> str:
    name = getattr(getattr(problem, "orig", None), "sqlite_errorname", "")
    return str(name or "")


def _last_error(state: RetryCallState) -> Any:
    assert state.outcome is not None
    return state.outcome.result()


def _undone_by_another(problem: BaseException) -> bool:
    """Whether the transaction was refused only for others that ran beside it, and rolled back."""
    if not isinstance(problem, DBAPIError):
        return False
    sqlstate = getattr(problem.orig, "sqlstate", None)
    if sqlstate is not None:
        # serialization failure, deadlock, lock not available
        return sqlstate in {"40001", "40P01", "55P03"}
    return _sqlite_name(problem).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _first_line(problem: SQLAlchemyError) -> str:
    original = getattr(problem, "orig", None) or problem
    return (str(original).strip().splitlines() or [type(original).__name__])[0]


# --- engines -----------------------------------------------------------------------------------


def _parsed(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as problem:
        raise WrongDatabase(
            "the database URL cannot be read; write sqlite:////path/to/file or"
            " postgresql://user@host/name"
        ) from problem
    match url.get_backend_name():
        case "sqlite":
            if url.database in (None, "", ":memory:") or "mode=memory" in str(url.database):
                raise WrongDatabase("the database must be a file: sqlite:////path/to/file")
            return url
        case "postgresql" | "postgres":
            return url.set(drivername="postgresql+psycopg")
        case other:
            raise WrongDatabase(f"{other} databases are not supported: use sqlite or postgresql")


def _make_private(path: Path) -> None:
    """Create the file so that only its owner reads it; its log files get the same permissions."""
    try:
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, stat.S_IRUSR | stat.S_IWUSR))
        elif not path.is_file():
            raise WrongDatabase(f"the database {path} is not a file")
        elif not os.access(path, os.R_OK | os.W_OK):
            raise StoreUnavailable(f"the database {path} may not be written by this user")
    except OSError as problem:
        raise StoreUnavailable(
            f"the database {path} cannot be created: {problem.strerror}"
        ) from problem


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(
        url,
        connect_args={"timeout": BUSY_S, "check_same_thread": False},
        pool_size=_POOL_SIZE,
        max_overflow=_POOL_EXTRA,
        pool_timeout=DEADLINE_S,
    )

    @event.listens_for(engine, "connect")
    def _configure(dbapi_connection: Any, record: Any) -> None:
        # the driver's own idea of when a transaction begins is not ours
        dbapi_connection.isolation_level = None
        cursor = dbapi_connection.cursor()
        for pragma in ("journal_mode = WAL", "foreign_keys = ON", f"synchronous = {_DURABLE}"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()
        record.info["sync"] = _DURABLE

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        sync = options.get("hybrid_sync", connection.info["sync"])
        if sync != connection.info["sync"]:  # it cannot change inside a transaction
            connection.exec_driver_sql(f"PRAGMA synchronous = {sync}")
            connection.info["sync"] = sync
        connection.exec_driver_sql(options.get("hybrid_begin", "BEGIN"))

    return engine


def _postgres_engine(url: URL) -> Engine:
    limits = {
        "statement_timeout": f"{STATEMENT_S:.0f}s",
        "lock_timeout": f"{BUSY_S:.0f}s",
        "idle_in_transaction_session_timeout": f"{STATEMENT_S:.0f}s",
    }
    try:
        return create_engine(
            url,
            connect_args={
                "connect_timeout": CONNECT_S,
                "options": " ".join(f"-c {name}={value}" for name, value in limits.items()),
            },
            pool_size=_POOL_SIZE,
            max_overflow=_POOL_EXTRA,
            pool_timeout=DEADLINE_S,
            pool_pre_ping=True,
        )
    except ModuleNotFoundError as problem:
        raise WrongDatabase(
            "PostgreSQL needs the package psycopg: pip install 'hybrid[postgres]'"
        ) from problem
