"""The sandbox cloud as a process: ``python -m providers.sandbox --state DIR``.

Writes ``DIR/endpoint.json`` once it answers. SIGTERM and SIGINT end every machine, then the
process. Exit codes: 0 ended as told, 2 bad arguments or configuration, 3 another sandbox serves
the state directory, 4 the port is taken.
"""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from providers.sandbox.config import SandboxConfig, load_config
from providers.sandbox.process import ENDPOINT_FILE
from providers.sandbox.processes import process
from providers.sandbox.views import Endpoint

if TYPE_CHECKING:
    from providers.sandbox.cloud import SandboxCloud

WATCH_S = 0.5
LOCK_FILE = "lock"

log = logging.getLogger("providers.sandbox")


def main(argv: list[str]) -> int:
    """Serve until told to end."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    state_dir: Path = arguments.state.resolve()
    if not Path("/proc/self/environ").exists():
        return _refuse(2, "sandbox machines need Linux with /proc")
    try:
        config = load_config(arguments.config) if arguments.config else SandboxConfig()
        (state_dir / "machines").mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (state_dir / LOCK_FILE).open("w", encoding="utf-8")
    except (OSError, ValueError) as error:
        return _refuse(2, str(error))
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _refuse(3, f"another sandbox serves {state_dir}")
        return _serve(state_dir, config, arguments.port, arguments.until_pid)


def _serve(state_dir: Path, config: SandboxConfig, port: int, until_pid: int | None) -> int:
    # moto is heavy: only a sandbox that may start loads it
    from providers.sandbox.cloud import SandboxCloud

    try:
        cloud = SandboxCloud(config, state_dir=state_dir, port=port)
    except (ValueError, OSError, SystemExit) as error:
        return _refuse(4 if port else 2, f"cannot serve on port {port}: {error}")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: cloud.ended.set())
    cloud.start()
    try:
        _announce(state_dir, cloud)
        log.info("serving %s on %s", state_dir, cloud.url)
        _wait(cloud.ended, until_pid)
    finally:
        (state_dir / ENDPOINT_FILE).unlink(missing_ok=True)
        cloud.close()
        log.info("every machine has ended")
    return 0


def _announce(state_dir: Path, cloud: SandboxCloud) -> None:
    me = process(os.getpid())
    endpoint = Endpoint(
        url=cloud.url,
        port=cloud.port,
        pid=os.getpid(),
        pid_started_ticks=0 if me is None else me.started_ticks,
        started_at=cloud.started_at,
        region=cloud.region,
        account_id=cloud.account_id,
    )
    # written whole or not at all: whoever reads it finds a cloud that answers
    partial = state_dir / f"{ENDPOINT_FILE}.partial"
    partial.write_text(endpoint.model_dump_json(), encoding="utf-8")
    partial.replace(state_dir / ENDPOINT_FILE)


def _wait(ended: threading.Event, until_pid: int | None) -> None:
    watched = None if until_pid is None else process(until_pid)
    while not ended.wait(WATCH_S):
        if until_pid is None:
            continue
        now = process(until_pid)
        if now is None or watched is None or now.started_ticks != watched.started_ticks:
            log.info("process %s is gone: ending", until_pid)
            return


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m providers.sandbox", description="A cloud on this machine."
    )
    parser.add_argument("--state", type=Path, required=True, help="directory for its state")
    parser.add_argument("--port", type=int, default=0, help="loopback port; 0 takes a free one")
    parser.add_argument("--config", type=Path, help="YAML or JSON document (SandboxConfig)")
    parser.add_argument("--until-pid", type=int, help="end when this process is gone")
    return parser


def _refuse(code: int, reason: str) -> int:
    sys.stderr.write(f"sandbox: {reason}\n")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
