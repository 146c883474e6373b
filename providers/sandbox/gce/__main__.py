"""The sandbox's Compute Engine as a process: ``python -m providers.sandbox.gce --port 8460``.

Says where it is on standard output, one JSON object. SIGTERM and SIGINT end it. Exit codes: 0 ended
as told, 2 bad arguments or configuration, or the port is taken.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from providers.sandbox.gce.cloud import GceCloud
from providers.sandbox.gce.config import GceConfig, load_config


def main(argv: list[str]) -> int:
    """Serve until told to end."""
    parser = argparse.ArgumentParser(
        prog="python -m providers.sandbox.gce", description="A Compute Engine on this machine."
    )
    parser.add_argument("--port", type=int, default=0, help="loopback port; 0 takes a free one")
    parser.add_argument("--config", type=Path, help="YAML or JSON document (GceConfig)")
    arguments = parser.parse_args(argv)
    try:
        config = load_config(arguments.config) if arguments.config else GceConfig()
        cloud = GceCloud(config, port=arguments.port)
    except (OSError, ValueError, SystemExit) as error:
        sys.stderr.write(f"sandbox: {error}\n")
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: cloud.ended.set())
    with cloud:
        place = {"url": cloud.url, "project": config.project, "region": config.region}
        sys.stdout.write(f"{json.dumps(place)}\n")
        sys.stdout.flush()
        cloud.ended.wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
