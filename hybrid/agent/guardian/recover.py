"""What to do with a run whose guardian is dead: end what is left of it, then say so."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hybrid.agent.guardian.child import run_cleanup
from hybrid.agent.guardian.durable import read_record, write_record_once
from hybrid.agent.guardian.handle import GuardianHandle
from hybrid.agent.guardian.journal import RECOVERED, Journal
from hybrid.agent.guardian.processes import (
    ProcessIdentity,
    ProcessStat,
    all_processes,
    boot_id,
    boottime_s,
    kill_each,
    marked_with,
)
from hybrid.agent.guardian.records import CAUSE_NODE_LOST, Ended, Started, Stopping, harder_cause
from hybrid.agent.guardian.rundir import RunDir


class GuardianAlive(RuntimeError):
    """The run is in good hands: there is nothing to recover."""


class LeftoversRemain(RuntimeError):
    """Something of the run may still be alive, so its end must not be recorded; try again."""


def recover(run_dir: Path, *, timeout_s: float = 15.0) -> Ended:
    """End what a dead guardian left behind and record the end as ``node_lost``; repeatable.

    Leftovers are found by the run's marker in their environment and by the session of the first
    process. (A process that changed its session *and* wiped its environment, and outlived its
    guardian's violent death, is beyond reach without control groups.) A run that no guardian had
    claimed yet is claimed here, so that none can start it later.

    Raises GuardianAlive, LeftoversRemain, or InvalidOrder when the directory holds no run.
    """
    handle = GuardianHandle.adopt(run_dir)
    run = RunDir(handle.run_dir)
    order = handle.order
    own_claim = {**ProcessIdentity.of(os.getpid()).to_record(), "recovery": True}
    write_record_once(run.claimed, own_claim)
    claimed = ProcessIdentity.from_record(read_record(run.claimed) or {})
    if claimed.pid != os.getpid() and claimed.is_alive():
        raise GuardianAlive(f"run {order.run_id}: guardian {claimed.pid} is alive")
    ended = Ended.from_record(read_record(run.ended))
    if ended is not None:
        return ended
    started = Started.from_record(read_record(run.started))
    killed = 0
    # After a reboot nothing of it can be alive.
    if claimed.boot_id == boot_id():
        killed = _kill_leftovers(run.path, started, timeout_s)
        unclean = run_cleanup(order.cleanup, order.env, deadline_s=timeout_s)
        if unclean is not None:
            raise LeftoversRemain(f"run {order.run_id}: {unclean}")
    stopping = Stopping.from_record(read_record(run.stopping))
    cause = CAUSE_NODE_LOST if stopping is None else harder_cause(CAUSE_NODE_LOST, stopping.cause)
    record = Ended(
        run_id=order.run_id,
        job_id=order.job_id,
        attempt=order.attempt,
        exit_code=None,
        exit_signal=None,
        cause=cause,
        ended_at=time.time(),
        ended_boottime_s=boottime_s(),
        started_at=None if started is None else started.started_at,
        leftovers_killed=killed,
        process=None if started is None else started.process,
        rank=order.rank,
    )
    Journal(run.journal, order).note(RECOVERED, killed=killed)
    write_record_once(run.ended, record.to_record())
    return Ended.from_record(read_record(run.ended)) or record


def _leftovers(run_dir: Path, started: Started | None) -> list[ProcessStat]:
    found = {stat.pid: stat for stat in marked_with(run_dir)}
    if started is not None and started.process.boot_id == boot_id():
        for stat in all_processes():
            # A session lives on while it has members, so its number cannot have been given away
            # to a process that started before our first one.
            if (
                stat.sid == started.process.pid
                and not stat.is_gone
                and stat.start_ticks >= started.process.start_ticks
                and stat.pid != os.getpid()
            ):
                found[stat.pid] = stat
    return list(found.values())


def _kill_leftovers(run_dir: Path, started: Started | None, timeout_s: float) -> int:
    end_s = time.monotonic() + timeout_s
    seen: set[int] = set()
    pause_s = 0.002
    while left := _leftovers(run_dir, started):
        seen.update(stat.pid for stat in left)
        if time.monotonic() > end_s:
            raise LeftoversRemain(f"{run_dir.name}: processes {sorted(seen)[:20]} do not die")
        kill_each(left)
        time.sleep(pause_s)
        pause_s = min(0.1, pause_s * 2)
    return len(seen)
