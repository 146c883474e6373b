"""The README's commands work as printed, and the pages hold together."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PORT = 8440
STARTS_S = 30.0
ENDS_S = 20.0
LONGEST_S = 200.0

pytestmark = pytest.mark.e2e


# --- reading ------------------------------------------------------------------------------------


def commands_of(text: str) -> list[str]:
    """Every command of the ``console`` blocks, with the lines of its here-document."""
    found: list[str] = []
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        until: str | None = None
        for line in block.splitlines():
            if until is not None:
                found[-1] += f"\n{line}"
                until = None if line == until else until
            elif line.startswith("$ "):
                found.append(line[2:])
                opened = re.search(r"<<'(\w+)'", line)
                until = opened[1] if opened else None
        assert until is None, f"the here-document {until} does not end"
    return found


def test_a_here_document_belongs_to_its_command() -> None:
    text = "```console\n$ cat > f <<'END'\na: 1\nEND\n$ true\nits output\n```\n"
    assert commands_of(text) == ["cat > f <<'END'\na: 1\nEND", "true"]


def test_the_targets_that_the_readme_names_are_in_the_makefile() -> None:
    named = [each for each in commands_of(README.read_text()) if each.startswith("make ")]
    assert named == ["make demo", "make test"]
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {each.removeprefix("make ") for each in named} <= set(targets)


# --- the tour -----------------------------------------------------------------------------------

SAYS = {
    "hybrid nodes list": "4× A100",
    "hybrid run ": "hello from a GPU slot",
    "hybrid quote ": "local",
    "hybrid submit ": "",
    "hybrid jobs": "first",
    "hybrid policy check ": "cloud",
    "hybrid policy apply ": "in force",
    "hybrid budgets": "500",
    "-d '{": '"name":"by-curl"',
    "/v1/jobs": '"jobs"',
}
"""What the output of a command holds, by a part of the command; the first part that fits."""


@dataclass(frozen=True)
class Said:
    """One command as it went."""

    command: str
    code: int
    out: str
    err: str


def _script(commands: list[str], folder: Path) -> str:
    """One shell for all: what a command sets, the next ones have.

    A person types on once the server has said that it is up, and its agent has joined by then; so
    does this.
    """
    lines = []
    for index, command in enumerate(commands):
        out, err = folder / f"{index}.out", folder / f"{index}.err"
        lines += ["{", command, f"}} >{out} 2>{err}", f"echo $? >{folder / f'{index}.code'}"]
        if command.endswith("&"):
            lines += [
                f"echo $! >{folder / 'background.pid'}",
                f"for _ in $(seq {int(STARTS_S * 10)}); do",
                f"  grep -q 'serves at' {out} && break; sleep 0.1",
                "done",
                f"for _ in $(seq {int(STARTS_S)}); do",
                "  .venv/bin/hybrid nodes list | grep -q ready && break; sleep 0.5",
                "done",
            ]
    return "\n".join(lines) + "\n"


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _any_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def said(tmp_path: Path) -> list[Said]:
    """The tour, taken in a fresh folder by somebody with an empty home."""
    commands = [
        each for each in commands_of(README.read_text()) if not each.startswith(("make ", "cd "))
    ]
    home, place, kept = (tmp_path / name for name in ("home", "checkout", "said"))
    for folder in (home, place, kept):
        folder.mkdir()
    # a folder of our own, as in a checkout: ignored by the same rule when the folder travels
    (place / ".venv").mkdir()
    (place / ".venv" / "bin").symlink_to(Path(sys.prefix) / "bin")
    shutil.copy(ROOT / ".gitignore", place)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    if not _free(PORT):
        # somebody's own server has the port that the README names: ours takes another, so that
        # neither disturbs the other
        port = _any_port()
        environment["HYBRID_PORT"] = str(port)
        commands = [each.replace(f":{PORT}/", f":{port}/") for each in commands]
    try:
        subprocess.run(
            ["bash", "-c", _script(commands, kept)],
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=LONGEST_S,
        )
        return [_read(kept, index, each) for index, each in enumerate(commands)]
    finally:
        _end(kept / "background.pid")


def _read(folder: Path, index: int, command: str) -> Said:
    code = folder / f"{index}.code"
    return Said(
        command,
        int(code.read_text()) if code.exists() else -1,
        (folder / f"{index}.out").read_text(),
        (folder / f"{index}.err").read_text(),
    )


def _end(pid_file: Path) -> None:
    """End the server that the tour started, which ends its agent; by its own number only."""
    if not pid_file.exists():
        return
    pid = int(pid_file.read_text())
    deadline = time.monotonic() + ENDS_S
    try:
        os.kill(pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    pytest.fail("the server did not end when it was told to")


@pytest.mark.timeout(LONGEST_S + 60)
def test_every_command_of_the_readme_works_as_printed(said: list[Said]) -> None:
    assert len(said) > 12
    for each in said:
        assert each.code == 0, f"{each.command}\n{each.out}\n{each.err}"
        wanted = next((text for part, text in SAYS.items() if part in each.command), "")
        assert wanted in each.out, f"{each.command}\n{each.out}\n{each.err}"


# --- pages --------------------------------------------------------------------------------------

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_ELSEWHERE = re.compile(r"[a-z]+:")


def _links(page: Path) -> list[str]:
    """Links to files here. Brackets within code mean other things."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCED.sub("", page.read_text()))
    return [each for each in _LINK.findall(prose) if not _ELSEWHERE.match(each)]


def _anchors(page: Path) -> set[str]:
    """Headings as GitHub names them."""
    headings = re.findall(r"^#+ +(.+)$", _FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in headings}


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    there = (page.parent / path).resolve() if path else page
    if not there.exists():
        return False
    return not anchor or there.suffix != ".md" or anchor in _anchors(there)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert [each for each in _links(page) if not _leads_somewhere(page, each)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_is_unfinished(page: Path) -> None:
    text = page.read_text()
    assert [word for word in ("TODO", "FIXME", "XXX", "TBD", "lorem ipsum") if word in text] == []
    assert text.endswith("\n")


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    to_read = [README]
    while to_read:
        page = to_read.pop()
        if page not in seen and page.suffix == ".md" and page.exists():
            seen.add(page)
            to_read += [(page.parent / each.partition("#")[0]).resolve() for each in _links(page)]
    assert set(PAGES) - seen == set()
