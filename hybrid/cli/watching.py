"""Following a job to its end, from a terminal that may say otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

from hybrid.cli.exits import Exit, job_exit
from hybrid.cli.serving import remark
from hybrid.cli.words import plain, span

if TYPE_CHECKING:
    from hybrid.client import HybridClient
    from hybrid.client.answers import Job


class Wish(StrEnum):
    """What someone who pressed Ctrl-C wants."""

    CANCEL = "cancel"
    DETACH = "detach"
    GO_ON = "go on"


@dataclass
class Teller:
    """Says each new thing about a job once, on standard error."""

    tell: Callable[[str], None] = remark
    _said: str = ""

    def __call__(self, job: Job) -> None:
        """Look at a job, and say what is new."""
        live = next((run for run in reversed(job.runs) if run.ended_at is None), None)
        if job.state.ended:
            return
        if live is not None:
            nodes = ", ".join(slot.node_id for slot in live.slots)
            text = f"{job.id} is {job.state} in {live.pool} on {nodes}"
        else:
            why = "" if job.decision is None else f": {job.decision.sentence}"
            text = f"{job.id} is {job.state}{why}"
        if text != self._said:
            self._said = text
            self.tell(plain(text))


def follow(
    client: HybridClient,
    job_id: str,
    *,
    out: Callable[[bytes], None],
    wish: Callable[[], Wish],
    tell: Callable[[str], None] = remark,
) -> int:
    """Write what a job prints until it has ended; its exit code. ``wish`` is asked on Ctrl-C."""
    from hybrid.client import LogFollower

    follower = LogFollower(client, job_id, told=Teller(tell))
    while True:
        try:
            for piece in follower.pieces():
                out(piece)
            break
        except KeyboardInterrupt:
            wanted = wish()
            if wanted is Wish.DETACH:
                tell(f"{job_id} goes on; `hybrid logs --follow {job_id}` shows the rest")
                return Exit.INTERRUPTED
            if wanted is Wish.CANCEL:
                client.cancel(job_id)
                tell(f"{job_id} is being cancelled")
    job = follower.last
    assert job is not None
    tell(plain(_ending(job)))
    return job_exit(job.state, job.exit_code)


def _ending(job: Job) -> str:
    reason = job.reason.splitlines()[0].removesuffix("; its last lines:") if job.reason else ""
    took = ""
    if job.ended_at is not None:
        took = f" after {span((job.ended_at - job.submitted_at).total_seconds())}"
    about = f": {reason}" if reason and reason != job.state else ""
    return f"{job.id} {job.state}{took}{about}"


def ask(answers: TextIO = sys.stdin, prompt: TextIO = sys.stderr) -> Wish:
    """Ask on a terminal what Ctrl-C meant; a second one detaches. Without a terminal nobody can
    be asked: the job goes on."""
    if not (answers.isatty() and prompt.isatty()):
        return Wish.DETACH
    try:
        while True:
            prompt.write("\n[c]ancel the job, [d]etach from it, or Enter to go on following? ")
            prompt.flush()
            line = answers.readline()
            if not line:
                return Wish.DETACH
            wanted = {"c": Wish.CANCEL, "d": Wish.DETACH, "": Wish.GO_ON}.get(
                line.strip().lower()[:1]
            )
            if wanted is not None:
                return wanted
    except KeyboardInterrupt:
        prompt.write("\n")
        return Wish.DETACH
