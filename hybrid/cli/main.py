"""The entry point: the list of commands, and what becomes of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated

import typer

from hybrid.cli.exits import Exit
from hybrid.cli.lazy import Lazy, LazyGroup, new_app

_HERE = "hybrid.cli.commands"

SECTIONS: Mapping[str, Mapping[str, Lazy]] = MappingProxyType(
    {
        "Run the place": {
            "up": Lazy(f"{_HERE}.up", "Start a server and an agent for this machine."),
            "serve": Lazy(f"{_HERE}.serve", "Start a server alone."),
            "agent": Lazy(f"{_HERE}.agent", "Make this machine a node of a server."),
            "demo": Lazy(f"{_HERE}.demo", "Watch a story on this machine and a sandbox cloud."),
            "doctor": Lazy(f"{_HERE}.doctor", "Check what works here and what does not."),
            "backup": Lazy(f"{_HERE}.backup", "Save the state directory, also while in use."),
            "restore": Lazy(f"{_HERE}.restore", "Bring a saved state directory back."),
        },
        "Jobs": {
            "run": Lazy(f"{_HERE}.run", "Run a command from this folder, and follow it."),
            "submit": Lazy(f"{_HERE}.submit", "Submit a job from a file or from options."),
            "quote": Lazy(f"{_HERE}.quote", "What a job would cost, where and when."),
            "jobs": Lazy(f"{_HERE}.jobs", "List jobs."),
            "show": Lazy(f"{_HERE}.show", "Show a job."),
            "logs": Lazy(f"{_HERE}.logs", "What a job prints."),
            "cancel": Lazy(f"{_HERE}.cancel", "Cancel a job."),
            "timeline": Lazy(f"{_HERE}.timeline", "What happened to a job, in order."),
            "explain": Lazy(f"{_HERE}.explain", "Why a job is where it is, option by option."),
            "outputs": Lazy(f"{_HERE}.outputs", "Bring a job's outputs here."),
        },
        "Machines and money": {
            "pools": Lazy(f"{_HERE}.pools", "List, show, apply and remove pools."),
            "nodes": Lazy(f"{_HERE}.nodes", "List, cordon and uncordon nodes."),
            "drain": Lazy(f"{_HERE}.drain", "Empty a node or an owned pool for maintenance."),
            "undrain": Lazy(f"{_HERE}.undrain", "Let a drained node or pool take runs again."),
            "offers": Lazy(f"{_HERE}.offers", "What the clouds offer now."),
            "claims": Lazy(f"{_HERE}.claims", "Cloud machines that were asked for."),
            "budgets": Lazy(f"{_HERE}.budgets", "Budgets, and what is left of them."),
            "usage": Lazy(f"{_HERE}.usage", "What teams have used, spent and saved."),
            "ledger": Lazy(
                f"{_HERE}.ledger", "Show and verify the ledger, compare and import bills."
            ),
            "policy": Lazy(f"{_HERE}.policy", "Show, check, compare and apply the policy."),
            "token": Lazy(f"{_HERE}.token", "Create, list and revoke tokens."),
            "openapi": Lazy(f"{_HERE}.openapi", "The description of the REST API."),
        },
    }
)


class _Commands(LazyGroup):
    sections = SECTIONS


app = new_app(cls=_Commands, no_args_is_help=True)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"hybrid {version('hybrid')}")
        raise typer.Exit


@app.callback()
def hybrid(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Wait for local GPUs or burst to the cloud, job by job, and carry it out safely.

    The server is found by --server, HYBRID_SERVER, or in the state directory of `hybrid up`; the
    token by --token, HYBRID_TOKEN, or in the same place.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code (:mod:`hybrid.cli.exits`)."""
    try:
        typer.main.get_command(app)(args=arguments, prog_name="hybrid")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Exception as problem:
        if os.environ.get("HYBRID_DEBUG"):
            raise
        from hybrid.cli.failing import told

        exit_, text = told(problem)
        print(text, file=sys.stderr)
        return exit_
    return Exit.OK
