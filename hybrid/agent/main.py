"""The agent process: join, take over what runs, work until told to end."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import structlog
import tenacity

from hybrid.agent.config import AgentConfig, AgentConfigError, Cloud, metadata_url
from hybrid.agent.desk import sha256_of
from hybrid.agent.guardian import boot_id, boottime_s
from hybrid.agent.guardian.durable import read_record, write_record
from hybrid.agent.identity import Identity, IdentityFile
from hybrid.agent.inventory import HostInventory
from hybrid.agent.loops import LeaseGuard, heartbeat_loop, log_loop, work_loop
from hybrid.agent.metadata import MetadataWatcher, metadata_source
from hybrid.agent.node import Node, Signals
from hybrid.agent.protocol import JoinRequest
from hybrid.agent.staging import Stage
from hybrid.agent.transport import ServerClient, ServerRefused, ServerUnreachable
from hybrid.agent.virtual import declared_gpus
from hybrid.domain.job import StopCause
from hybrid.ports.gpus import GpuInventory

_log = structlog.get_logger(__name__)

DRAIN_DEADLINE_S = 7200.0
_THREADS_END_S = 3.0
_ONE_ENDS_S = 0.5
_LOOK_S = 0.1


class AlreadyRunning(Exception):
    """Another agent has the state directory."""


class JoinFailed(Exception):
    """The server does not let this machine in; one line says why."""


class Agent:
    """One agent. ``run`` returns when it has been told to end; guardians and their runs go on."""

    def __init__(
        self,
        config: AgentConfig,
        gpus: GpuInventory | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._config = config
        self._gpus = gpus
        self._environ = dict(os.environ if environ is None else environ)
        self._signals = Signals()
        # Plain flags: a signal handler that set an Event could meet its lock held by the very
        # thread it interrupted.
        self._told_to_end = False
        self._told_to_drain = False

    def end(self) -> None:
        """End the agent; runs go on under their guardians. Safe in a signal handler."""
        self._told_to_end = True

    def drain(self) -> None:
        """Stop the runs, deliver their results, say goodbye, end. Safe in a signal handler."""
        self._told_to_drain = True

    def run(self) -> None:
        """Until told to end. Raises AgentConfigError, AlreadyRunning, JoinFailed."""
        _private(self._config.state_dir)
        with _alone(self._config.state_dir):
            client = ServerClient(
                self._config.server,
                ca_pem=self._config.server_ca_pem,
                trust_environment=not self._config.server_is_local,
            )
            try:
                self._work(client)
            finally:
                client.close()

    def _work(self, client: ServerClient) -> None:
        file = IdentityFile(self._config.state_dir)
        try:
            identity = file.of(self._config)
        except OSError as error:
            raise AgentConfigError(f"{self._config.state_dir}: {error.strerror}") from error
        client.speak_as(identity.node_id, identity.token)
        gpus = self._gpus or declared_gpus(self._config.virtual_gpus, identity.node_id)
        inventory = HostInventory(self._config, gpus)
        if not identity.joined and not self._join(client, inventory, identity, file):
            return  # told to end before the server was there
        stage = Stage(
            config=self._config, client=client, inventory=inventory, environ=self._environ
        )
        node = Node(self._config, client, inventory, gpus, stage, self._signals)
        if _same_boot_as_before(self._config.state_dir):
            node.claim_lease.recall()
        node.adopt()
        threads = self._threads(node, client, inventory)
        for thread in threads:
            thread.start()
        load_ahead(self._config.cloud)
        _log.info("agent at work", node=identity.node_id, pool=identity.pool)
        self._wait(node, client)
        self._signals.stopping.set()
        self._signals.news.set()
        # A thread in the middle of a call is left behind: it is a daemon, and nothing is lost.
        end_s = boottime_s() + _THREADS_END_S
        for thread in threads:
            thread.join(min(_ONE_ENDS_S, max(0.0, end_s - boottime_s())))
        for worker in node.workers():
            worker.join(min(_ONE_ENDS_S, max(0.0, end_s - boottime_s())))
        _log.info("agent ends", runs_left=sum(not worker.settled for worker in node.workers()))

    def _threads(
        self, node: Node, client: ServerClient, inventory: HostInventory
    ) -> list[threading.Thread]:
        threads = [
            heartbeat_loop(node, self._config),
            work_loop(node, client),
            log_loop(node),
            LeaseGuard(node, self._config),
        ]
        source = metadata_source(self._config.cloud, metadata_url(self._config, self._environ))
        if source is not None:

            def noticed(at: float) -> None:
                node.notice_at = at
                self._signals.news.set()

            def hinted(at: float) -> None:
                node.rebalance_at = at
                self._signals.news.set()

            def named(machine_id: str) -> None:
                inventory.machine_id = machine_id
                self._signals.news.set()

            threads.append(
                MetadataWatcher(
                    source,
                    on_notice=noticed,
                    on_rebalance=hinted,
                    on_machine_id=named,
                    stopping=self._signals.stopping,
                )
            )
        return threads

    # --- joining ------------------------------------------------------------------------------

    def _join(
        self,
        client: ServerClient,
        inventory: HostInventory,
        identity: Identity,
        file: IdentityFile,
    ) -> bool:
        """Become a node; False when told to end meanwhile. Raises JoinFailed."""
        token = self._config.token_to_join()
        if token is None:
            raise JoinFailed("this machine has not joined yet: a join token is needed")
        request = JoinRequest(
            node_id=identity.node_id,
            pool=identity.pool,
            claim_id=identity.claim_id,
            token_sha256=sha256_of(identity.token),
            inventory=inventory.read(),
        )
        overdue = tenacity.stop_after_delay(self._config.join_deadline)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(ServerUnreachable),
            wait=tenacity.wait_random_exponential(multiplier=0.3, max=10.0),
            stop=lambda state: self._leaving or overdue(state),
            sleep=self._sleep,
            before_sleep=_say_waiting,
            reraise=True,
        )
        try:
            answer = retrying(client.join, request, token)
        except ServerRefused as error:
            raise JoinFailed(f"the server does not let this machine in: {error}") from error
        except ServerUnreachable as error:
            if self._leaving:
                return False
            raise JoinFailed(f"the server cannot be reached: {error}") from error
        if answer.node_id != identity.node_id:
            raise JoinFailed(f"the server calls this machine {answer.node_id}")
        file.joined(identity)
        return True

    # --- ending -------------------------------------------------------------------------------

    @property
    def _leaving(self) -> bool:
        return self._told_to_end or self._told_to_drain

    def _sleep(self, seconds: float) -> None:
        """Sleep, but not beyond being told to end."""
        end_s = boottime_s() + seconds
        while not self._leaving and (left_s := end_s - boottime_s()) > 0:
            time.sleep(min(_LOOK_S, left_s))

    def _wait(self, node: Node, client: ServerClient) -> None:
        while not self._leaving:
            time.sleep(_LOOK_S)
        if not self._told_to_end:
            self._drain(node, client)

    def _drain(self, node: Node, client: ServerClient) -> None:
        began_s = boottime_s()
        node.close(StopCause.DRAIN)
        for worker in node.workers():
            worker.stop(StopCause.DRAIN, worker.document.spec.stop.grace)
        while node.workers() and boottime_s() - began_s < DRAIN_DEADLINE_S:
            if self._told_to_end:
                return
            time.sleep(_LOOK_S)
        if node.workers():
            _log.warning("not drained in time", runs_left=len(node.workers()))
            return
        try:
            client.leave()
        except (ServerUnreachable, ServerRefused) as error:
            _log.warning("left without goodbye", error=str(error))


def _say_waiting(state: tenacity.RetryCallState) -> None:
    if state.attempt_number in (1, 10, 100):
        error = None if state.outcome is None else state.outcome.exception()
        _log.info("waiting for the server", tries=state.attempt_number, said=str(error))


def _private(state_dir: Path) -> None:
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        state_dir.chmod(0o700)
    except OSError as error:
        raise AgentConfigError(f"{state_dir}: {error.strerror}") from error


@contextmanager
def _alone(state_dir: Path) -> Iterator[None]:
    """One agent per state directory: two would start one run twice."""
    fd = os.open(state_dir / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(f"another agent works in {state_dir}") from None
        yield
    finally:
        os.close(fd)


def load_ahead(cloud: Cloud) -> None:
    """Load the library of the cloud's own object store in the background: a second that the first
    run need not wait for. What is not installed, or not used, does no harm."""
    modules = {Cloud.AWS: "s3fs", Cloud.GCP: "gcsfs"}

    def load() -> None:
        with contextlib.suppress(ImportError):
            importlib.import_module(modules[cloud])

    if cloud in modules:
        threading.Thread(target=load, name="load-ahead", daemon=True).start()


def _same_boot_as_before(state_dir: Path) -> bool:
    """Whether the agent before this one worked in the same boot; remembers this one."""
    path = state_dir / "boot.json"
    before = (read_record(path) or {}).get("boot_id")
    now = boot_id()
    if before != now:
        write_record(path, {"boot_id": now})
    return before == now


def log_to_stderr() -> None:
    """One JSON line per event on standard error, unless a program around has decided otherwise."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        # looked up for every logger: standard error may be another by then
        logger_factory=lambda *_names: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


def run(
    config: AgentConfig, gpus: GpuInventory | None = None, *, drain_on_end: bool = False
) -> None:
    """Run an agent in this process until SIGTERM or SIGINT. With ``drain_on_end`` the first of
    them stops the runs before it ends the agent; otherwise they go on, and a new agent finds them.

    Raises AgentConfigError, AlreadyRunning, JoinFailed.
    """
    agent = Agent(config, gpus)
    told = 0

    def on_signal(*_: object) -> None:
        nonlocal told
        told += 1
        if drain_on_end and told == 1:
            agent.drain()
        else:
            agent.end()

    if not structlog.is_configured():
        log_to_stderr()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, on_signal)
    agent.run()
