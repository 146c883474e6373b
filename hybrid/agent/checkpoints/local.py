"""Objects in a directory, which may be a network file system."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from hybrid.agent.checkpoints.errors import StoreFull, StoreReadOnly, StoreUnavailable
from hybrid.agent.checkpoints.objects import ObjectInfo, ObjectMissing

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_serial = itertools.count()


@contextlib.contextmanager
def _translated(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        words = f"{root}: {error.strerror}"
        if error.errno in _FULL:
            raise StoreFull(words) from error
        if error.errno in _READ_ONLY:
            raise StoreReadOnly(words) from error
        raise StoreUnavailable(words) from error


class LocalObjects:
    """Objects as files under ``root``, synced before they appear under their name."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def put(self, key: str, data: bytes) -> None:
        """Write beside, sync, rename."""
        path = self._root / key
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{next(_serial)}.part")
        with _translated(self._root):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise
            self._sync(path.parent)

    @staticmethod
    def _sync(directory: Path) -> None:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Read a file or a part of it."""
        with _translated(self._root):
            try:
                with (self._root / key).open("rb") as file:
                    file.seek(start or 0)
                    return file.read() if end is None else file.read(end - (start or 0))
            except FileNotFoundError:
                raise ObjectMissing(key) from None

    def info(self, key: str) -> ObjectInfo | None:
        """Size and modification time of a file."""
        with _translated(self._root):
            try:
                stat = (self._root / key).stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return ObjectInfo(key, stat.st_size, stat.st_mtime)

    def list(self, prefix: str) -> list[ObjectInfo]:
        """Every file under a directory, half-written ones left out."""
        found = []
        with _translated(self._root):
            for directory, _, names in os.walk(self._root / prefix):
                for name in names:
                    if name.startswith("."):
                        continue
                    path = Path(directory, name)
                    with contextlib.suppress(FileNotFoundError):
                        stat = path.stat()
                        key = str(path.relative_to(self._root))
                        found.append(ObjectInfo(key, stat.st_size, stat.st_mtime))
        return sorted(found, key=lambda info: info.key)

    def delete(self, keys: Iterable[str]) -> None:
        """Unlink files."""
        with _translated(self._root):
            for key in keys:
                (self._root / key).unlink(missing_ok=True)
