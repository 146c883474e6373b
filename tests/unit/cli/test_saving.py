"""Backups: whole, private, checked before anything is replaced."""

from __future__ import annotations

import io
import json
import sqlite3
import stat
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from hybrid.bootstrap import build
from hybrid.cli import saving
from hybrid.cli.exits import CliError, Exit
from hybrid.cli.saving import MANIFEST, bring_back, save
from hybrid.config import Settings

ARTIFACT = "artifacts/ab/sha256"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory that a server has used."""
    state_dir = tmp_path_factory.mktemp("original")
    build(Settings(state_dir=state_dir), url="http://127.0.0.1:1").stop()
    (state_dir / "artifacts" / "ab").mkdir(parents=True)
    (state_dir / ARTIFACT).write_bytes(b"bytes" * 100_000)
    (state_dir / "artifacts" / "ab" / ".draft").write_bytes(b"half")
    (state_dir / "logs").mkdir(exist_ok=True)
    (state_dir / "logs" / "0").write_bytes(b"printed")
    (state_dir / "agent").mkdir()
    (state_dir / "agent" / "identity.json").write_text("{}")
    return state_dir


@pytest.fixture(scope="module")
def saved(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("saved") / "state.tar.gz"
    save(original, file)
    return file


@pytest.fixture
def rewritten(tmp_path: Path) -> Path:
    """Where tests put a backup that somebody has changed."""
    return tmp_path / "changed.tar.gz"


def members(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as tar:
        return {each.name: tar.extractfile(each).read() for each in tar}  # type: ignore[union-attr]


def write(file: Path, content: dict[str, bytes]) -> None:
    with tarfile.open(file, "w:gz") as tar:
        for name, data in content.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_backup_is_private_and_has_all_but_logs_drafts_and_the_agents_folder(
    saved: Path,
) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert set(members(saved)) == {"hybrid.db", "secret.key", "admin.token", ARTIFACT, MANIFEST}


def test_nothing_is_left_beside_a_backup(saved: Path) -> None:
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_a_state_directory_comes_back_byte_by_byte(
    saved: Path, original: Path, tmp_path: Path
) -> None:
    target = tmp_path / "back"
    facts = bring_back(saved, target)
    assert facts.entries == 4
    for name in ("secret.key", "admin.token", ARTIFACT):
        assert (target / name).read_bytes() == (original / name).read_bytes()
    with closing(sqlite3.connect(target / "hybrid.db")) as database:
        (installation,) = database.execute("SELECT installation FROM system").fetchone()
    assert installation == facts.installation
    assert stat.S_IMODE((target / "admin.token").stat().st_mode) == 0o600
    build(Settings(state_dir=target), url="http://127.0.0.1:1").stop()


def test_how_far_it_is_is_told(original: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    save(original, tmp_path / "a.tar.gz", told=lambda count, total: told.append((count, total)))
    assert sum(count for count, _ in told) == told[-1][1]


def test_a_directory_with_something_in_it_is_refused(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(CliError, match="is not empty") as caught:
        bring_back(saved, tmp_path)
    assert caught.value.exit is Exit.CANNOT_START
    assert (tmp_path / "mine").read_text() == "precious"


def test_force_replaces_the_servers_files_and_leaves_the_agents(
    saved: Path, tmp_path: Path
) -> None:
    target = tmp_path / "back"
    (target / "agent").mkdir(parents=True)
    (target / "agent" / "identity.json").write_text("mine")
    (target / "secret.key").write_bytes(b"old")
    (target / "hybrid.db-wal").write_bytes(b"of another database")
    (target / "artifacts").mkdir()
    (target / "artifacts" / "old").write_bytes(b"old")
    bring_back(saved, target, force=True)
    there = files_of(target)
    assert there["agent/identity.json"] == b"mine"
    assert there["secret.key"] == members(saved)["secret.key"]
    assert "artifacts/old" not in there
    assert "hybrid.db-wal" not in there
    assert not [name for name in there if name.startswith(".")]


def test_a_damaged_backup_changes_nothing(saved: Path, rewritten: Path, tmp_path: Path) -> None:
    data = bytearray(saved.read_bytes())
    data[len(data) // 2] ^= 0xFF
    rewritten.write_bytes(bytes(data))
    target = tmp_path / "back"
    target.mkdir()
    (target / "secret.key").write_bytes(b"old")
    with pytest.raises(CliError, match="nothing was changed") as caught:
        bring_back(rewritten, target, force=True)
    assert caught.value.exit is Exit.USAGE
    assert files_of(target) == {"secret.key": b"old", "server.lock": b""}


@pytest.mark.parametrize("cut", [0, 100, 5000])
def test_a_backup_that_ends_too_early_is_refused(
    saved: Path, rewritten: Path, tmp_path: Path, cut: int
) -> None:
    rewritten.write_bytes(saved.read_bytes()[:cut])
    with pytest.raises(CliError, match="damaged"):
        bring_back(rewritten, tmp_path / "back")


def test_another_file_than_the_manifest_says_is_refused(
    saved: Path, rewritten: Path, tmp_path: Path
) -> None:
    content = members(saved)
    content["admin.token"] = b"hyb_mine\n"
    write(rewritten, content)
    with pytest.raises(CliError, match="not what its manifest says"):
        bring_back(rewritten, tmp_path / "back")


@pytest.mark.parametrize(
    "name", ["../out", "/etc/x", "artifacts/../../out", "agent/identity.json", "artifacts"]
)
def test_a_name_that_does_not_belong_in_a_backup_is_refused(
    saved: Path, rewritten: Path, tmp_path: Path, name: str
) -> None:
    write(rewritten, {name: b"x", **members(saved)})
    with pytest.raises(CliError, match="does not belong there"):
        bring_back(rewritten, tmp_path / "back")
    assert not (tmp_path / "out").exists()


def test_a_link_in_a_backup_is_refused(rewritten: Path, tmp_path: Path) -> None:
    with tarfile.open(rewritten, "w:gz") as tar:
        header = tarfile.TarInfo("secret.key")
        header.type, header.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(header)
    with pytest.raises(CliError, match="does not belong there"):
        bring_back(rewritten, tmp_path / "back")


def test_a_database_of_a_newer_program_is_refused(
    saved: Path, rewritten: Path, tmp_path: Path
) -> None:
    content = members(saved)
    database = tmp_path / "newer.db"
    database.write_bytes(content["hybrid.db"])
    with closing(sqlite3.connect(database)) as opened:
        opened.execute("UPDATE alembic_version SET version_num = '9999'")
        opened.commit()
    content["hybrid.db"] = database.read_bytes()
    manifest = json.loads(content.pop(MANIFEST))
    write(tmp_path / "only.tar.gz", {"hybrid.db": content["hybrid.db"]})
    with tarfile.open(tmp_path / "only.tar.gz") as tar:
        member = tar.extractfile("hybrid.db")
        assert member is not None
        manifest["files"]["hybrid.db"] = saving._extract(member, tmp_path / "copy.db")
    write(rewritten, {**content, MANIFEST: json.dumps(manifest).encode()})
    with pytest.raises(CliError, match=r"9999.*nothing was changed") as caught:
        bring_back(rewritten, tmp_path / "back")
    assert caught.value.exit is Exit.CANNOT_START


def test_what_fails_half_way_is_put_back(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "back"
    target.mkdir()
    (target / "secret.key").write_bytes(b"old")
    (target / "hybrid.db").write_bytes(b"old database")
    rename, count = Path.rename, iter(range(100))

    def failing(self: Path, to: Path) -> Path:
        if next(count) == 3:
            raise OSError(28, "No space left on device")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(CliError, match="No space left on device; it is as it was"):
        bring_back(saved, target, force=True)
    there = files_of(target)
    del there["server.lock"]
    assert there == {"secret.key": b"old", "hybrid.db": b"old database"}


def test_a_folder_without_a_server_has_nothing_to_save(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="no state directory"):
        save(tmp_path / "none", tmp_path / "a.tar.gz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CliError, match="no server has run there"):
        save(tmp_path / "empty", tmp_path / "a.tar.gz")


def test_what_is_kept_elsewhere_is_said(original: Path, tmp_path: Path) -> None:
    settings = original / "config.yaml"
    settings.write_text("artifacts_url: s3://bucket/artifacts\n")
    try:
        facts = save(original, tmp_path / "a.tar.gz")
    finally:
        settings.unlink()
    assert facts.elsewhere == ("work folders and outputs, which are in s3://bucket/artifacts",)


def test_a_place_that_cannot_be_written_to_is_one_line(original: Path) -> None:
    target = Path("/proc/nothing/a.tar.gz")
    with pytest.raises(CliError, match="no backup could be written to /proc/nothing"):
        save(original, target)
