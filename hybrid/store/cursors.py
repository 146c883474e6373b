"""How far the readers of the event log have come."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, update

from hybrid.store.database import Database
from hybrid.store.tables import cursors


class CursorRows:
    """Implements :class:`~hybrid.ports.cursors.Cursors`."""

    _database: Database

    def cursor(self, reader: str) -> int | None:
        """The number of the last event that the reader is done with."""
        question = select(cursors.c.seq).where(cursors.c.reader == reader)
        return self._database.read(lambda connection: connection.execute(question).scalar())

    def move_cursor(self, reader: str, seq: int) -> None:
        """The reader is done with everything up to ``seq``."""

        def work(connection: Connection) -> None:
            mine = cursors.c.reader == reader
            known = connection.execute(select(cursors.c.seq).where(mine)).scalar()
            if known is None:
                connection.execute(insert(cursors).values(reader=reader, seq=seq))
            elif seq > known:
                connection.execute(update(cursors).where(mine).values(seq=seq))

        self._database.write(work)
