"""``hybrid agent``: this machine as a node."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.cli.exits import CliError, Exit
from hybrid.cli.lazy import new_app
from hybrid.cli.log_output import Level, LevelOption, log_to_stderr

if TYPE_CHECKING:
    from hybrid.ports.gpus import GpuInventory

app = new_app()


@app.command()
def agent(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="All of this as a JSON object.")
    ] = None,
    server: Annotated[
        str | None, typer.Option(envvar="HYBRID_SERVER", metavar="URL", help="The server's URL.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TOKEN",
            help="The join token, for the first time; better in HYBRID_JOIN_TOKEN.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="A file that holds it.")
    ] = None,
    pool: Annotated[
        str | None, typer.Option(help="Pool to join. Default: local", show_default=False)
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            "--state-dir",
            metavar="DIR",
            help="Where the agent keeps its runs. Default: /var/lib/hybrid/agent",
            show_default=False,
        ),
    ] = None,
    virtual_gpus: Annotated[
        str | None,
        typer.Option(
            "--virtual-gpus",
            metavar="MODEL[:COUNT[:LINKS]]",
            help="GPUs to declare where there is no driver, such as a100-80gb:4:nvlink-pairs.",
        ),
    ] = None,
    address: Annotated[
        str | None, typer.Option(metavar="HOST", help="Where other nodes reach this one.")
    ] = None,
    block: Annotated[str | None, typer.Option(help="Network block this machine is in.")] = None,
    rack: Annotated[str | None, typer.Option(help="Rack this machine is in.")] = None,
    machine: Annotated[
        str | None, typer.Option(help="owned, or burst: it ends itself with its lease.")
    ] = None,
    claim: Annotated[
        str | None, typer.Option(metavar="ID", help="The claim this cloud machine is for.")
    ] = None,
    cloud: Annotated[
        str | None, typer.Option(help="Whose notices to listen for: none, aws or gcp.")
    ] = None,
    checkpoint_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Instead of what the server says.")
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option("--ca", envvar="HYBRID_CA", metavar="FILE", help="Whom to trust.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Stop the runs before ending, instead of leaving them.")
    ] = False,
    until_stdin_closes: Annotated[bool, typer.Option("--until-stdin-closes", hidden=True)] = False,
    log_level: LevelOption = Level.INFO,
) -> None:
    """Make this machine a node of a server and work for it, until Ctrl-C or SIGTERM.

    The first time a join token is needed: `hybrid token create --join POOL` makes one. Runs go on
    under their guardians when the agent ends; the next agent here takes them over.
    """
    log_to_stderr(log_level)
    from hybrid.agent.config import load_config
    from hybrid.agent.main import AlreadyRunning, JoinFailed, run

    given = {
        "server": server,
        "join_token": token,
        "join_token_file": token_file,
        "pool": pool,
        "state_dir": state_dir,
        "virtual_gpus": virtual_gpus,
        "address": address,
        "block": block,
        "rack": rack,
        "machine": machine,
        "claim_id": claim,
        "cloud": cloud,
        "checkpoint_url": checkpoint_url,
        "server_ca_pem": None if ca_file is None else ca_file.read_text(encoding="ascii"),
    }
    settings = load_config(config, given, os.environ)
    if until_stdin_closes:
        threading.Thread(target=_end_with_stdin, name="parent", daemon=True).start()
    try:
        run(settings, _gpus(declared=settings.virtual_gpus is not None), drain_on_end=drain)
    except (AlreadyRunning, JoinFailed) as problem:
        raise CliError(Exit.CANNOT_START, str(problem)) from problem


def _gpus(*, declared: bool) -> GpuInventory | None:
    """The machine's own GPUs; None where they are declared, or where there are none."""
    if declared:
        return None
    from providers.nvml import open_inventory

    return open_inventory()


def _end_with_stdin() -> None:
    """End when whoever started us is gone: then nobody holds the other end of our input.

    Two signals, as the first may only mean to drain: nobody is left to drain for.
    """
    while os.read(0, 1 << 10):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
