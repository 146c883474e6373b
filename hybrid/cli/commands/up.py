"""``hybrid up``: a server and an agent for this machine."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.cli.lazy import new_app
from hybrid.cli.log_output import Level, LevelOption, log_to_stderr
from hybrid.cli.options import takes
from hybrid.cli.serving import announce, remark, server_settings
from hybrid.cli.words import plural

if TYPE_CHECKING:
    from pathlib import Path

    from api.server import Ready, Server
    from hybrid.agent.identity import Identity
    from hybrid.cli.local_agent import LocalAgent
    from hybrid.config import Settings
    from hybrid.domain.ids import NodeId

JOIN_VALID_S = 3600.0
_NAME = "hybrid up"
_LOOK_S = 0.5

app = new_app()


@app.command()
@takes(settings=server_settings)
def up(
    settings: Settings,
    virtual_gpus: Annotated[
        str | None,
        typer.Option(
            "--virtual-gpus",
            metavar="MODEL[:COUNT[:LINKS]]",
            help="GPUs to declare where there is no driver, such as a100-80gb:4:nvlink-pairs.",
        ),
    ] = None,
    no_agent: Annotated[
        bool, typer.Option("--no-agent", help="Start the server alone; nodes join by themselves.")
    ] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="At the end, stop the runs here instead of leaving them")
    ] = False,
    log_level: LevelOption = Level.WARNING,
) -> None:
    """Start a server and an agent for this machine, until Ctrl-C or SIGTERM.

    An empty state directory is enough. Runs that are under way at the end go on under their
    guardians, and the next `hybrid up` takes them over; with --drain they are stopped first, with
    a checkpoint where the job can.
    """
    log_to_stderr(log_level)
    from api.server import Server

    _refuse_bad_gpus(virtual_gpus)
    _refuse_second(settings.state_dir)
    server = Server(settings)
    _Up(server, settings, virtual_gpus, no_agent, drain, str(log_level)).run()


def _refuse_bad_gpus(declared: str | None) -> None:
    """A declaration that cannot be read is said before anything starts."""
    if declared is None:
        return
    from hybrid.services.errors import StartupError
    from hybrid.topology import InvalidDeclaration, parse_virtual_gpus

    try:
        parse_virtual_gpus(declared)
    except InvalidDeclaration as problem:
        raise StartupError(f"--virtual-gpus {problem}") from problem


def _refuse_second(state_dir: Path) -> None:
    """Two servers on one state directory would also mean two agents in one folder."""
    from hybrid.services.errors import StartupError
    from hybrid.services.state_dir import StateDir

    if not (state_dir / "server.lock").is_file():
        return
    state = StateDir.opened(state_dir)
    with state.locked() as alone:
        if alone:
            return
    url = (state.announced() or {}).get("url") or "it is starting"
    raise StartupError(
        f"a server runs in {state_dir} already ({url}): use it, or name another --state-dir"
    )


class _Up:
    """The server in a thread, the agent in a process, and signals in the main thread."""

    def __init__(
        self,
        server: Server,
        settings: Settings,
        virtual_gpus: str | None,
        no_agent: bool,
        drain: bool,
        log_level: str,
    ) -> None:
        self._server, self._settings = server, settings
        self._virtual_gpus, self._with_agent = virtual_gpus, not no_agent
        self._drain, self._log_level = drain, log_level
        self._agent: LocalAgent | None = None
        self._told = 0
        self._ready = threading.Event()
        self._failed: BaseException | None = None

    def run(self) -> None:
        """Until told to end, or until the server ends."""
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, self._on_signal)
        serving = threading.Thread(target=self._serve, name="server")
        serving.start()
        try:
            while serving.is_alive() and not self._told:
                serving.join(_LOOK_S)
            self._end_agent()
        finally:
            self._server.stop()
            serving.join()
        if self._failed is not None:
            raise self._failed

    def _on_signal(self, *_: object) -> None:
        self._told += 1

    def _serve(self) -> None:
        try:
            self._server.run(self._on_ready)
        except BaseException as problem:  # noqa: BLE001  raised again in the main thread
            self._failed = problem

    def _on_ready(self, ready: Ready) -> None:
        announce(ready, self._settings.state_dir)
        if not self._with_agent or self._told:
            return
        from hybrid.cli.local_agent import LocalAgent

        folder = self._settings.state_dir / "agent"
        agent = LocalAgent(
            server=self._server.url,
            folder=folder,
            join_token=lambda: _join_token(ready, folder),
            told=remark,
            virtual_gpus=self._virtual_gpus,
            drain=self._drain,
            log_level=self._log_level,
            ca_file=self._settings.tls_ca,
        )
        agent.start()
        self._agent = agent

    def _end_agent(self) -> None:
        agent = self._agent
        if agent is None:
            return
        runs = len(self._server.app.live.world().runs)
        if not self._drain:
            agent.end()
            if runs:
                goes = "goes" if runs == 1 else "go"
                remark(
                    f"{plural(runs, 'run')} {goes} on without the server; the next `hybrid up`"
                    " takes over"
                )
            return
        if runs:
            remark(f"stopping {plural(runs, 'run')}; Ctrl-C again leaves them")
        node = self._cordon()
        before = self._told
        agent.ask_to_end()
        while agent.alive and self._told == before:
            threading.Event().wait(_LOOK_S / 5)
        if self._told != before and node is not None:
            self._server.app.nodes.uncordon(node, by=_NAME)  # it is to work again next time
        agent.end()

    def _cordon(self) -> NodeId | None:
        """Let nothing start on this machine while its runs are stopped; its node, if it has
        joined."""
        from hybrid.domain.ids import NodeId
        from hybrid.services.errors import ServiceError

        identity = _identity(self._settings.state_dir / "agent")
        if identity is None:
            return None
        node = NodeId(identity.node_id)
        try:
            self._server.app.nodes.cordon(node, by=_NAME, why="draining")
        except ServiceError:
            return None  # it has not joined, or is gone
        return node


def _identity(folder: Path) -> Identity | None:
    from hybrid.agent.identity import IdentityFile

    return IdentityFile(folder).load()


def _join_token(ready: Ready, folder: Path) -> str | None:
    """A token for the agent to join with, if it has not joined this server.

    An identity that this server does not know is another installation's (its database was
    replaced): the agent becomes a new node.
    """
    from hybrid.domain.ids import PoolName

    identity = _identity(folder)
    if identity is not None and identity.joined:
        if ready.app.store.node_of(identity.token_sha256) is not None:
            return None
        (folder / "identity.json").unlink(missing_ok=True)
    _, secret = ready.app.access.create_join(
        pool=PoolName("local"), valid_s=JOIN_VALID_S, note=_NAME, by=_NAME
    )
    return secret
