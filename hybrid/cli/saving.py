"""The state directory as one file, and back.

The file is a .tar.gz: the server's files under their names in the state directory, the database
as of one moment, and last ``manifest.json`` with the size and SHA-256 of each of them. A file
without its manifest, or with one that does not fit, is not used.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any

from hybrid.cli.exits import CliError, Exit
from hybrid.services.state_dir import StateDir

DATABASE = "hybrid.db"
MANIFEST = "manifest.json"
FORMAT = 1
FILES = ("secret.key", "admin.token", "config.yaml")
FOLDERS = ("artifacts", "checkpoints")
OURS = (*FILES, DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", *FOLDERS)
"""What of a state directory is replaced. Logs and the agent's folder are not the server's state."""
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Facts:
    """What a backup holds. ``elsewhere``: what the server keeps outside its state directory."""

    installation: str
    made_at: str
    entries: int
    size_bytes: int
    elsewhere: tuple[str, ...] = ()


def save(state_dir: Path, file: Path, *, told: Callable[..., None] = lambda *_: None) -> Facts:
    """Write the state of ``state_dir`` to ``file``, which must not exist and appears whole or not
    at all. A server may be running. ``told`` hears of bytes as they are read, and of how many.

    Raises CliError, StartupError.
    """
    from hybrid.config import load_settings

    if file.exists():
        raise CliError(Exit.USAGE, f"{file} exists: a backup never overwrites anything")
    if not state_dir.is_dir():
        raise CliError(Exit.CANNOT_START, f"there is no state directory {state_dir}")
    settings = load_settings(state_dir=state_dir)
    elsewhere = []
    if settings.database_url is not None:
        elsewhere.append("the database, which is elsewhere: save it with its own tool")
    for name, url in (
        ("checkpoints", settings.checkpoint_url),
        ("work folders and outputs", settings.artifacts_url),
    ):
        if url is not None:
            elsewhere.append(f"{name}, which are in {url}")
    draft = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with tempfile.TemporaryDirectory(prefix=".hybrid-backup-", dir=file.parent) as scratch:
            copy = Path(scratch) / DATABASE
            installation = ""
            if settings.database_url is None:
                installation = _copied(settings.database, state_dir, copy)
            made = _write(draft, state_dir, copy, installation, told)
        draft.replace(file)
    except OSError as problem:
        why = problem.strerror or problem
        raise CliError(Exit.USAGE, f"no backup could be written to {file}: {why}") from problem
    finally:
        draft.unlink(missing_ok=True)
    entries = len(made["files"])
    return Facts(installation, made["made_at"], entries, file.stat().st_size, tuple(elsewhere))


def _copied(url: str, state_dir: Path, copy: Path) -> str:
    """Copy the database as of one moment, look through the copy; the installation it names."""
    from hybrid.store import StoreError, check_backup
    from hybrid.store.backup import back_up
    from hybrid.store.database import Database

    if not (state_dir / DATABASE).exists():
        raise CliError(Exit.CANNOT_START, f"{state_dir} has no database: no server has run there")
    try:
        database = Database(url)
        try:
            back_up(database, copy)
        finally:
            database.close()
        return check_backup(copy).installation
    except StoreError as problem:
        raise CliError(Exit.CANNOT_START, " ".join(str(problem).split())) from problem


def _write(
    draft: Path, state_dir: Path, copy: Path, installation: str, told: Callable[..., None]
) -> dict[str, Any]:
    # the database first: what it speaks of is there when it is copied, or newer
    sources = [(DATABASE, copy), *((name, state_dir / name) for name in FILES)]
    for folder in FOLDERS:
        sources += _within(state_dir, folder)
    total = sum(path.stat().st_size for _, path in sources if path.is_file())
    files: dict[str, dict[str, Any]] = {}
    manifest = {
        "format": FORMAT,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "installation": installation,
        "files": files,
    }
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        with tarfile.open(fileobj=out, mode="w:gz", compresslevel=3) as tar:
            for name, path in sources:
                added = _add(tar, name, path, lambda count: told(count, total))
                if added is not None:
                    files[name] = added
            data = json.dumps(manifest, indent=1).encode()
            tar.addfile(_header(MANIFEST, len(data)), io.BytesIO(data))
        out.flush()
        os.fsync(out.fileno())
    return manifest


def _within(state_dir: Path, folder: str) -> list[tuple[str, Path]]:
    """Every finished file below a folder. A name that begins with a dot is still being written."""
    return [
        (path.relative_to(state_dir).as_posix(), path)
        for path in sorted((state_dir / folder).rglob("*"))
        if path.is_file() and not path.is_symlink() and not path.name.startswith(".")
    ]


class _Counting:
    """Reads as a file does, which is all that tarfile wants; hashes and counts what it reads."""

    def __init__(self, file: IO[bytes], told: Callable[[int], None]) -> None:
        self._file, self._told = file, told
        self.sha256 = hashlib.sha256()

    def read(self, count: int = -1) -> bytes:
        data = self._file.read(count)
        self.sha256.update(data)
        self._told(len(data))
        return data


def _add(
    tar: tarfile.TarFile, name: str, path: Path, told: Callable[[int], None]
) -> dict[str, Any] | None:
    """Add a file; its size and digest. None when it is not there (any more)."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        count = os.fstat(file.fileno()).st_size
        reading = _Counting(file, told)
        tar.addfile(_header(name, count), reading)
    return {"bytes": count, "sha256": reading.sha256.hexdigest()}


def _header(name: str, count: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.size, header.mode, header.mtime = count, 0o600, int(time.time())
    return header


# --- and back ------------------------------------------------------------------------------------


def bring_back(file: Path, state_dir: Path, *, force: bool = False) -> Facts:
    """Make ``state_dir`` be as it was saved in ``file``. Nothing is replaced before all of it has
    been checked; a failure while replacing puts back what was there.

    Raises CliError (a server runs there; it is not empty and ``force`` is false; the file is
    damaged, or of a newer program), StartupError.
    """
    if not file.is_file():
        raise CliError(Exit.USAGE, f"there is no backup {file}")
    state = StateDir.opened(state_dir)
    with state.locked() as alone:
        if not alone:
            raise CliError(Exit.CANNOT_START, f"a server runs in {state_dir}: end it first")
        there = sorted(path.name for path in state_dir.iterdir() if path.name != "server.lock")
        if there and not force:
            said = f"{state_dir} is not empty ({', '.join(there[:3])}…)"
            raise CliError(Exit.CANNOT_START, said, hint="--force replaces what a backup holds")
        with _scratch(state_dir, ".restore-") as fresh:
            manifest = _unpacked(file, fresh)
            _check_database(fresh)
            with _scratch(state_dir, ".replaced-") as aside:
                _swap(state_dir, fresh, aside)
    entries = manifest["files"]
    size_bytes = sum(each["bytes"] for each in entries.values())
    return Facts(manifest["installation"], manifest["made_at"], len(entries), size_bytes)


@contextmanager
def _scratch(state_dir: Path, prefix: str) -> Iterator[Path]:
    """A private folder on the same disk, gone afterwards."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=state_dir))
    except OSError as problem:
        said = f"the state directory {state_dir} cannot be used: {problem.strerror}"
        raise CliError(Exit.CANNOT_START, said) from problem
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unpacked(file: Path, folder: Path) -> dict[str, Any]:
    """Unpack all of ``file``; its manifest, which fits what came. CliError otherwise."""
    found: dict[str, dict[str, Any]] = {}
    manifest: dict[str, Any] | None = None
    try:
        with tarfile.open(file, mode="r:gz") as tar:
            for member in tar:
                if not member.isreg() or manifest is not None:
                    raise _damaged(file, f"{member.name} does not belong there")
                source = tar.extractfile(member)
                assert source is not None
                if member.name == MANIFEST:
                    manifest = json.load(source)
                    continue
                found[member.name] = _extract(source, folder / _safe(file, member.name))
    except (tarfile.TarError, EOFError, ValueError, zlib.error) as problem:
        raise _damaged(file, str(problem) or type(problem).__name__) from problem
    except OSError as problem:
        if problem.errno is None:  # gzip's own
            raise _damaged(file, str(problem)) from problem
        said = f"{file} cannot be unpacked: {problem.strerror}"
        raise CliError(Exit.CANNOT_START, said) from problem
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _damaged(file, "it has no manifest of this format")
    if manifest.get("files") != found:
        raise _damaged(file, "what is in it is not what its manifest says")
    return manifest


def _safe(file: Path, name: str) -> PurePosixPath:
    """A name in the archive as a path below the state directory."""
    path = PurePosixPath(name)
    single = len(path.parts) == 1 and name in (*FILES, DATABASE)
    inside = len(path.parts) > 1 and path.parts[0] in FOLDERS and ".." not in path.parts
    if path.is_absolute() or not (single or inside):
        raise _damaged(file, f"{name} does not belong there")
    return path


def _extract(source: IO[bytes], target: Path) -> dict[str, Any]:
    for folder in reversed([each for each in target.parents if not each.exists()]):
        folder.mkdir(mode=0o700)
    sha256, count = hashlib.sha256(), 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        while data := source.read(_PIECE_BYTES):
            sha256.update(data)
            count += len(data)
            out.write(data)
        out.flush()
        os.fsync(out.fileno())
    return {"bytes": count, "sha256": sha256.hexdigest()}


def _damaged(file: Path, why: str) -> CliError:
    return CliError(
        Exit.USAGE, f"{file} is damaged, or no backup of ours: {why}; nothing was changed"
    )


def _check_database(folder: Path) -> None:
    from hybrid.store import StoreError, check_backup

    if not (folder / DATABASE).exists():
        return  # it was elsewhere
    try:
        check_backup(folder / DATABASE)
    except StoreError as problem:
        said = " ".join(str(problem).split())
        raise CliError(Exit.CANNOT_START, f"{said}; nothing was changed") from problem


def _swap(state_dir: Path, fresh: Path, aside: Path) -> None:
    """Put what is in ``fresh`` in place of all that is the server's; undo it on failure."""
    moved: list[tuple[Path, Path]] = []

    def move(source: Path, target: Path) -> None:
        source.rename(target)
        moved.append((source, target))

    try:
        for name in OURS:
            if (state_dir / name).exists():
                move(state_dir / name, aside / name)
        for path in sorted(fresh.iterdir()):
            move(path, state_dir / path.name)
    except OSError as problem:
        for source, target in reversed(moved):
            target.rename(source)
        said = f"{state_dir} cannot be replaced: {problem.strerror}; it is as it was"
        raise CliError(Exit.CANNOT_START, said) from problem
