"""Folders travel whole, small and harmless, or not at all."""

from __future__ import annotations

import gzip
import io
import os
import socket
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from hybrid.agent.archive import (
    ArchiveTooLarge,
    BrokenArchive,
    Limits,
    UnsafeArchiveEntry,
    file_digest,
    list_folder,
    pack_folder,
    pack_paths,
    unpack,
)


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def names(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir())


def round_trip(root: Path, tmp_path: Path) -> Path:
    report = pack_folder(root, tmp_path / "a.tar.gz")
    out = tmp_path / "out"
    unpacked = unpack(tmp_path / "a.tar.gz", out, report.digest)
    assert unpacked.content_bytes == report.content_bytes
    return out


def test_a_folder_comes_out_as_it_went_in(tmp_path: Path) -> None:
    root = tree(tmp_path / "in", {"a.py": "print(1)", "deep/er/b.txt": "b" * 9999, "empty": ""})
    (root / "bare").mkdir()
    (root / "run.sh").write_text("#!/bin/sh")
    (root / "run.sh").chmod(0o700)
    (root / "deep/link").symlink_to("../a.py")
    (root / "naïve name\n").write_text("odd")
    out = round_trip(root, tmp_path)
    assert names(out) == names(root)
    assert (out / "deep/er/b.txt").read_text() == "b" * 9999
    assert (out / "bare").is_dir()
    assert os.access(out / "run.sh", os.X_OK)
    assert not os.access(out / "a.py", os.X_OK)
    assert (out / "deep/link").readlink() == Path("../a.py")


def test_the_same_files_give_the_same_digest(tmp_path: Path) -> None:
    files = {"b": "2", "a/x": "1", "a/y": "3"}
    first = tree(tmp_path / "one", files)
    second = tree(tmp_path / "elsewhere", dict(reversed(files.items())))
    os.utime(second / "b", (1, 1))
    (second / "b").chmod(0o600)
    one = pack_folder(first, tmp_path / "1.tgz")
    two = pack_folder(second, tmp_path / "2.tar.gz")
    assert one.digest == two.digest == file_digest(tmp_path / "1.tgz")
    (second / "b").write_text("4")
    assert pack_folder(second, tmp_path / "3").digest != one.digest


@pytest.mark.parametrize(
    ("rules", "left_out"),
    [
        ({".gitignore": "*.log\n"}, {"x.log", "sub/y.log"}),
        ({".hybridignore": "/data/\n"}, {"data/big.bin", "data/keep.txt"}),
        ({".gitignore": "data/*\n!data/keep.txt\n"}, {"data/big.bin"}),
        ({".gitignore": "*.log\n", ".hybridignore": "!x.log\n"}, {"sub/y.log"}),
        ({"sub/.gitignore": "*\n"}, {"sub/y.log", "sub/z.py", "sub/.gitignore"}),
        ({".gitignore": "*.log\n", "sub/.gitignore": "!y.log\n"}, {"x.log"}),
        ({"sub/.hybridignore": "/z.py\n"}, {"sub/z.py"}),
    ],
)
def test_ignore_files_are_obeyed_as_git_does(
    tmp_path: Path, rules: dict[str, str], left_out: set[str]
) -> None:
    files = dict.fromkeys(
        ["x.log", "sub/y.log", "sub/z.py", "data/big.bin", "data/keep.txt", "main.py"], "x"
    )
    root = tree(tmp_path / "in", files | rules)
    listed = {e.path for e in list_folder(root) if not e.is_directory}
    assert (set(files) | set(rules)) - listed == left_out


def test_the_repository_itself_and_bytecode_never_travel(tmp_path: Path) -> None:
    root = tree(tmp_path / "in", {".git/config": "x", "a/__pycache__/m.pyc": "x", "a/m.py": "x"})
    assert [e.path for e in list_folder(root)] == ["a", "a/m.py"]


def test_a_folder_above_the_limit_is_refused_with_its_largest_files(tmp_path: Path) -> None:
    root = tree(tmp_path / "in", {"big": "x" * 900, "mid": "x" * 300, "small": "x"})
    with pytest.raises(ArchiveTooLarge, match="hybridignore") as refused:
        pack_folder(root, tmp_path / "a", Limits(total_bytes=1000))
    assert (refused.value.limit, refused.value.found) == (1000, 1201)
    assert refused.value.biggest[:2] == (("big", 900), ("mid", 300))
    assert not (tmp_path / "a").exists()


def test_a_folder_of_too_many_files_is_refused(tmp_path: Path) -> None:
    root = tree(tmp_path / "in", {f"f{i}": "" for i in range(30)})
    with pytest.raises(ArchiveTooLarge, match="entries"):
        pack_folder(root, tmp_path / "a", Limits(entries=29))
    with pytest.raises(ArchiveTooLarge, match="entries"):
        pack_folder(root, tmp_path / "a", Limits(entries=5))


@pytest.mark.parametrize(
    ("target", "kept"),
    [
        ("a.py", True),
        ("sub/../a.py", True),
        ("missing", True),
        ("/etc/passwd", False),
        ("../outside", False),
        ("sub/../../outside", False),
    ],
)
def test_links_are_kept_when_they_stay_inside(tmp_path: Path, target: str, kept: bool) -> None:
    root = tree(tmp_path / "in", {"a.py": "x", "sub/b": "x"})
    (root / "link").symlink_to(target)
    if kept:
        assert str((round_trip(root, tmp_path) / "link").readlink()) == target
    else:
        with pytest.raises(UnsafeArchiveEntry) as refused:
            pack_folder(root, tmp_path / "a")
        assert refused.value.entry == "link"


def test_a_link_that_leaves_through_another_link_is_refused(tmp_path: Path) -> None:
    root = tree(tmp_path / "in", {"deep/er/x": "x"})
    (root / "short").symlink_to("deep/er")
    (root / "fine").symlink_to("short/../..")
    (root / "out").symlink_to("short/../../..")
    with pytest.raises(UnsafeArchiveEntry) as refused:
        pack_folder(root, tmp_path / "a")
    assert refused.value.entry == "out"


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    root = tree(tmp_path / "in", {"a": "x"})
    here = Path.cwd()
    if kind == "pipe":
        os.mkfifo(root / "odd")
    else:
        with socket.socket(socket.AF_UNIX) as sock:
            os.chdir(root)  # a socket's path may not be long
            try:
                sock.bind("odd")
            finally:
                os.chdir(here)
    with pytest.raises(UnsafeArchiveEntry) as refused:
        pack_folder(root, tmp_path / "a")
    assert refused.value.entry == "odd"


def test_only_the_outputs_named_are_packed_and_missing_ones_left_out(tmp_path: Path) -> None:
    root = tree(
        tmp_path / "in",
        {".gitignore": "out\n", "out/w.npz": "w", "out/sub/m": "m", "log/a": "a", "log/b": "b"},
    )
    report = pack_paths(root, ["out", "log/a", "missing"], tmp_path / "a")
    unpack(tmp_path / "a", tmp_path / "got", report.digest)
    assert names(tmp_path / "got") == ["log/a", "out/sub/m", "out/w.npz"]


@pytest.mark.parametrize("path", ["../x", "a/../../x", ""])
def test_outputs_outside_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(UnsafeArchiveEntry):
        pack_paths(tree(tmp_path / "in", {"a": "x"}), [path], tmp_path / "a")


def test_an_output_behind_a_link_is_refused(tmp_path: Path) -> None:
    root = tree(tmp_path / "in", {"a": "x"})
    tree(tmp_path / "private", {"key": "secret"})
    (root / "out").symlink_to(tmp_path / "private")
    with pytest.raises(UnsafeArchiveEntry):
        pack_paths(root, ["out/key"], tmp_path / "a")


# -- what strangers send -----------------------------------------------------------------------


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data)
    return info, data


def stranger(path: Path, members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return path


FINE = member("fine", data=b"x")


@pytest.mark.parametrize(
    "bad",
    [
        [member("../out", data=b"x")],
        [member("/etc/out", data=b"x")],
        [member("a/../../out", data=b"x")],
        [member("a//b", data=b"x")],
        [member("./a", data=b"x")],
        [member("l", tarfile.SYMTYPE, "/etc")],
        [member("l", tarfile.SYMTYPE, "../..")],
        [member("l", tarfile.SYMTYPE, "")],
        [member("l", tarfile.SYMTYPE, "."), member("l/x", data=b"x")],
        [member("l", tarfile.SYMTYPE, "fine"), member("l", data=b"x")],
        [member("f", data=b"x"), member("f/x", data=b"x")],
        [member("d", tarfile.CHRTYPE)],
        [member("d", tarfile.BLKTYPE)],
        [member("d", tarfile.FIFOTYPE)],
        [member("h", tarfile.LNKTYPE, "fine")],
        [member("a", tarfile.SYMTYPE, "b/.."), member("b", tarfile.SYMTYPE, "a/..")],
    ],
)
def test_a_harmful_archive_is_refused_and_nothing_is_unpacked(
    tmp_path: Path, bad: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    archive = stranger(tmp_path / "a.tgz", [FINE, *bad])
    with pytest.raises(UnsafeArchiveEntry) as refused:
        unpack(archive, place / "target")
    assert refused.value.entry in {info.name for info, _ in bad}
    assert list(place.iterdir()) == []


def test_set_id_bits_do_not_survive(tmp_path: Path) -> None:
    info, data = member("tool", data=b"x")
    info.mode = 0o6777
    unpack(stranger(tmp_path / "a.tgz", [(info, data)]), tmp_path / "t")
    assert (tmp_path / "t/tool").stat().st_mode & 0o7022 == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not gzip at all",
        gzip.compress(b"not tar at all" * 100),
        gzip.compress(b"x") + b"more",
        gzip.compress(b"\0" * 10240)[:-9],
    ],
    ids=["empty", "not gzip", "not tar", "with more behind it", "cut short"],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(BrokenArchive):
        unpack(tmp_path / "a", tmp_path / "t")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_damaged_archive_is_refused_by_its_digest(tmp_path: Path) -> None:
    report = pack_folder(tree(tmp_path / "in", {"a": "x"}), tmp_path / "a")
    data = bytearray((tmp_path / "a").read_bytes())
    data[-1] ^= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(BrokenArchive, match="digest"):
        unpack(tmp_path / "a", tmp_path / "t", report.digest)


def test_too_much_content_is_refused_however_small_it_is_packed(tmp_path: Path) -> None:
    archive = stranger(tmp_path / "a", [member("zeros", data=b"\0" * 3_000_000)])
    assert archive.stat().st_size < 10_000
    with pytest.raises(ArchiveTooLarge):
        unpack(archive, tmp_path / "t", limits=Limits(total_bytes=2_000_000, entries=10))
    with pytest.raises(ArchiveTooLarge):
        unpack(archive, tmp_path / "t", limits=Limits(total_bytes=1000, entries=1))


def test_too_many_entries_are_refused(tmp_path: Path) -> None:
    archive = stranger(tmp_path / "a", [member(f"f{i}") for i in range(50)])
    with pytest.raises(ArchiveTooLarge, match="entries"):
        unpack(archive, tmp_path / "t", limits=Limits(entries=49))


def test_a_bomb_is_refused_by_its_ratio_before_it_unfolds(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a", "wb") as file:
        for _ in range(100):
            file.write(b"\0" * (1 << 20))
    with pytest.raises(BrokenArchive, match="bomb"):
        unpack(tmp_path / "a", tmp_path / "t")


def test_a_folder_of_zeros_is_packed_so_that_nobody_takes_it_for_a_bomb(tmp_path: Path) -> None:
    root = tmp_path / "in"
    root.mkdir()
    with (root / "zeros").open("wb") as file:
        file.truncate(70 << 20)
    out = round_trip(root, tmp_path)
    assert (out / "zeros").stat().st_size == 70 << 20


def test_a_target_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    pack_folder(tree(tmp_path / "in", {"a": "x"}), tmp_path / "a")
    tree(tmp_path / "t", {"mine": "x"})
    with pytest.raises(FileExistsError):
        unpack(tmp_path / "a", tmp_path / "t")
    assert names(tmp_path / "t") == ["mine"]


def test_an_empty_target_is_filled(tmp_path: Path) -> None:
    pack_folder(tree(tmp_path / "in", {"a": "x"}), tmp_path / "a")
    (tmp_path / "t").mkdir()
    unpack(tmp_path / "a", tmp_path / "t")
    assert names(tmp_path / "t") == ["a"]
