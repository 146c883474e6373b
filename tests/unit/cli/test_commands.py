"""The list of commands is whole, and every one has a help."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybrid.cli import reference
from hybrid.cli.exits import CliError, Exit, job_exit
from hybrid.cli.failing import told
from hybrid.cli.main import SECTIONS
from tests.unit.cli.conftest import Hybrid

COMMANDS = [name for section in SECTIONS.values() for name in section]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help(hybrid: Hybrid, name: str) -> None:
    ended = hybrid(name, "--help")
    assert ended.code == Exit.OK
    assert ended.out.startswith(f"Usage: hybrid {name} ")


def test_every_module_of_a_command_is_listed() -> None:
    folder = Path(__file__).parents[3] / "hybrid" / "cli" / "commands"
    there = {f"hybrid.cli.commands.{path.stem}" for path in folder.glob("[!_]*.py")}
    listed = {lazy.module for section in SECTIONS.values() for lazy in section.values()}
    assert there == listed


def test_a_command_that_is_nearly_one_is_named(hybrid: Hybrid) -> None:
    ended = hybrid("jbos")
    assert ended.code == Exit.USAGE
    assert "Did you mean 'jobs'?" in ended.err


@pytest.mark.parametrize("arguments", [("nothing-like-it",), ("jobs", "--nope"), ("show",)])
def test_a_command_line_that_cannot_be_understood_ends_with_2(
    hybrid: Hybrid, arguments: tuple[str, ...]
) -> None:
    assert hybrid(*arguments).code == Exit.USAGE


def test_the_version_is_told(hybrid: Hybrid) -> None:
    assert hybrid("--version").out.startswith("hybrid ")


@pytest.mark.parametrize(
    ("state", "code", "exit_"),
    [
        ("succeeded", 0, 0),
        ("failed", 7, 7),
        ("failed", -9, 137),
        ("failed", None, 1),
        ("failed", 0, 1),
        ("cancelled", 143, 1),
        ("cancelled", None, 1),
    ],
)
def test_run_ends_as_its_job_did(state: str, code: int | None, exit_: int) -> None:
    assert job_exit(state, code) == exit_


def test_the_page_of_exit_codes_is_up_to_date() -> None:
    written = Path(__file__).parents[3] / reference.PAGE
    assert written.read_text(encoding="utf-8") == reference.page()


def test_what_nobody_foresaw_is_one_line_too() -> None:
    assert told(KeyError("x")) == (
        Exit.FAULT,
        "hybrid: a fault of hybrid itself: KeyError: 'x'; HYBRID_DEBUG=1 shows where",
    )


def test_an_error_says_what_and_what_to_do_and_nothing_that_a_terminal_obeys() -> None:
    problem = CliError(Exit.NOT_FOUND, "no \x1b[2Jjob", hint="look")
    assert told(problem) == (Exit.NOT_FOUND, "hybrid: no ·[2Jjob; look")
