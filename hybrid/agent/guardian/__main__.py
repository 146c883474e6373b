"""``python -m hybrid.agent.guardian RUN_DIR``: guard one run; secrets come on standard input."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

from hybrid.agent.guardian.child import become_subreaper
from hybrid.agent.guardian.durable import read_record, reserve, write_record_once
from hybrid.agent.guardian.guard import Guard
from hybrid.agent.guardian.journal import CLAIMED, Journal
from hybrid.agent.guardian.processes import ProcessIdentity
from hybrid.agent.guardian.records import InvalidOrder, RunOrder
from hybrid.agent.guardian.rundir import RunDir

EXIT_GUARDED = 0
EXIT_BAD_ORDER = 2
EXIT_CLAIMED_BY_ANOTHER = 3
EXIT_ORPHANED = 4


def read_secrets() -> dict[str, str] | None:
    """The secrets that the agent sends; None when it died before it had sent them all."""
    data = sys.stdin.buffer.read()
    if not data.endswith(b"\n"):
        return None
    return {str(name): str(value) for name, value in json.loads(data).items()}


def main(argv: list[str]) -> int:
    """Claim the run, guard it to its end, and exit; the exit status is for people only."""
    run = RunDir(Path(argv[1]).resolve())
    with contextlib.suppress(PermissionError):
        os.setsid()  # already so when the agent started us
    os.chdir("/")
    try:
        order = RunOrder.from_record(read_record(run.spec) or {})
    except InvalidOrder as error:
        sys.stderr.write(f"{run.spec}: {error}\n")
        return EXIT_BAD_ORDER
    secrets = read_secrets()
    if secrets is None:
        # Nothing is claimed yet: the next agent finds the run untouched and starts it.
        return EXIT_ORPHANED
    if not write_record_once(run.claimed, ProcessIdentity.of(os.getpid()).to_record()):
        return EXIT_CLAIMED_BY_ANOTHER
    with contextlib.suppress(OSError):
        reserve(run.ended_reserve)
    journal = Journal(run.journal, order)
    journal.note(CLAIMED)
    become_subreaper()
    Guard(run, order, journal).run(secrets)
    return EXIT_GUARDED


if __name__ == "__main__":
    os.closerange(3, 1 << 16)
    sys.exit(main(sys.argv))
