"""An error as one line for people, and the exit code that goes with it."""

from __future__ import annotations

from hybrid.cli.exits import CliError, Exit
from hybrid.cli.words import plain
from hybrid.services.errors import StartupError

_UNREACHABLE = "start one with `hybrid up`, or name one with --server or HYBRID_SERVER"
_TOKEN = "name one with --token or HYBRID_TOKEN"


def told(problem: Exception) -> tuple[Exit, str]:
    """The exit code and the text, without a newline at its end."""
    exit_, lines = _told(problem)
    text = "\n".join(plain(line) for line in lines if line)
    return exit_, f"hybrid: {text}"


def _told(problem: Exception) -> tuple[Exit, list[str]]:
    if isinstance(problem, CliError):
        return problem.exit, [str(problem) + (f"; {problem.hint}" if problem.hint else "")]
    if isinstance(problem, StartupError):
        return Exit.CANNOT_START, [str(problem)]
    found = _of_client(problem) or _of_agent(problem)
    if found is not None:
        return found
    if isinstance(problem, OSError):
        where = f"{problem.filename}: " if problem.filename else ""
        return Exit.USAGE, [f"{where}{problem.strerror or problem}"]
    what = f"{type(problem).__name__}: {problem}".rstrip(": ")
    return Exit.FAULT, [f"a fault of hybrid itself: {what}; HYBRID_DEBUG=1 shows where"]


def _of_client(problem: Exception) -> tuple[Exit, list[str]] | None:
    from hybrid.client import ClientError, Problem, Unreachable

    if isinstance(problem, Unreachable):
        return Exit.UNREACHABLE, [f"{problem}; {_UNREACHABLE}"]
    if isinstance(problem, Problem):
        exit_ = Exit.NOT_FOUND if problem.status == 404 else Exit.REFUSED
        return exit_, _refusal(problem)
    if isinstance(problem, ClientError):
        return Exit.FAILED, [str(problem)]
    return None


def _refusal(problem: object) -> list[str]:
    from hybrid.client import Problem

    assert isinstance(problem, Problem)
    first = f"{problem.detail} [{problem.code}]"
    if problem.status == 401:
        first += f"; {_TOKEN}"
    if problem.status >= 500 and problem.request_id:
        first += f" (request {problem.request_id})"
    if len(problem.errors) == 1:
        only = problem.errors[0]
        return [first + (f"; {only.hint}" if only.hint else "")]
    parts = [
        f"  {each.path}: {each.message}" + (f"; {each.hint}" if each.hint else "")
        for each in problem.errors
    ]
    return [first, *parts]


def _of_agent(problem: Exception) -> tuple[Exit, list[str]] | None:
    from hybrid.agent.archive.errors import ArchiveError
    from hybrid.agent.config import AgentConfigError

    if isinstance(problem, AgentConfigError):
        return Exit.CANNOT_START, [str(problem)]
    if isinstance(problem, ArchiveError):
        return Exit.USAGE, [f"the folder cannot travel: {problem}"]
    return None
