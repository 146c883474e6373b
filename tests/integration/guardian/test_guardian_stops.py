"""Every way to stop a run ends the whole of it, within its grace, with its cause on record."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from hybrid.agent.guardian import GuardianHandle, Outcome, RunPhase, boot_id, boottime_s, recover
from hybrid.agent.guardian.processes import marked_with
from hybrid.agent.guardian.recover import GuardianAlive

from .conftest import Node, wait_ended, wait_for, wait_output, wait_phase

pytestmark = pytest.mark.integration

IGNORES = (
    "import signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('ready', flush=True)\n"
    "time.sleep(60)\n"
)
#: Writes without buffers: the signal may come in the middle of a print.
COOPERATES = (
    "import os, signal, sys, time\n"
    "def stop(*_): os.write(1, b'saved\\n'); sys.exit(85)\n"
    "signal.signal(signal.SIGTERM, stop)\n"
    "os.write(1, b'ready\\n')\n"
    "time.sleep(60)\n"
)
#: Forks twice with a new session in between: the classic way out of a process group.
DAEMONISES = (
    "import os, signal, sys, time\n"
    "def daemon():\n"
    "    if os.fork(): os.wait(); return\n"
    "    os.setsid()\n"
    "    if os.fork(): os._exit(0)\n"
    "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "    signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    "    time.sleep(60)\n"
    "    os._exit(0)\n"
)


def test_a_cooperative_job_is_stopped_by_its_signal_and_says_it_checkpointed(node: Node) -> None:
    handle = node.spawn(node.python("r", COOPERATES))
    wait_output(handle, "ready")
    handle.request_stop("preempt")
    ended = wait_ended(handle)
    assert (ended.exit_code, ended.cause, ended.outcome) == (85, "preempt", Outcome.CHECKPOINTED)
    assert ended.killed is False
    assert ended.stop_took_s is not None
    assert ended.stop_took_s < 2.0


def test_the_jobs_own_stop_signal_is_used(node: Node) -> None:
    code = COOPERATES.replace("SIGTERM", "SIGUSR1")
    handle = node.spawn(node.python("r", code, stop_signal="SIGUSR1"))
    wait_output(handle, "ready")
    handle.request_stop("drain")
    assert wait_ended(handle).exit_code == 85


def test_a_job_that_ignores_its_signal_is_killed_after_the_grace(node: Node) -> None:
    handle = node.spawn(node.python("r", IGNORES, grace_s=0.4))
    wait_output(handle, "ready")
    handle.request_stop("cancel")
    ended = wait_ended(handle)
    assert (ended.exit_signal, ended.cause, ended.killed) == ("SIGKILL", "cancel", True)
    assert ended.stop_took_s is not None
    assert 0.4 <= ended.stop_took_s < 2.0


def test_a_harder_second_stop_shrinks_the_grace_and_takes_the_cause(node: Node) -> None:
    handle = node.spawn(node.python("r", IGNORES, grace_s=60))
    wait_output(handle, "ready")
    handle.request_stop("return")
    first = wait_phase(handle, RunPhase.STOPPING).stopping
    assert first is not None
    assert first.cause == "return"
    handle.request_stop("interruption", 0.2)
    ended = wait_ended(handle)
    assert (ended.cause, ended.killed) == ("interruption", True)
    assert ended.stop_took_s is not None
    assert ended.stop_took_s < 5.0


def test_a_softer_second_stop_changes_neither_cause_nor_grace(node: Node) -> None:
    handle = node.spawn(node.python("r", IGNORES, grace_s=60))
    wait_output(handle, "ready")
    handle.request_stop("cancel", 0.3)
    handle.request_stop("return", 50)
    ended = wait_ended(handle)
    assert ended.cause == "cancel"
    assert ended.stop_took_s is not None
    assert ended.stop_took_s < 5.0


def test_a_stop_that_comes_before_the_start_starts_nothing(node: Node) -> None:
    order = node.order("r", "sh", "-c", "echo x > started")
    run_dir = node.root / order.run_id
    run_dir.mkdir()
    (run_dir / "spec.json").write_text(json.dumps(order.to_record()))
    GuardianHandle.adopt(run_dir).request_stop("cancel")
    ended = wait_ended(node.spawn(order))
    assert (ended.cause, ended.error) == ("cancel", "stopped before it started")
    assert not (node.root / "started").exists()


def test_the_end_of_the_lease_stops_the_run(node: Node) -> None:
    handle = node.spawn(node.python("r", COOPERATES), lease_s=0.5)
    ended = wait_ended(handle)
    assert (ended.cause, ended.exit_code) == ("lease", 85)


def test_a_renewed_lease_lets_the_run_go_on(node: Node) -> None:
    handle = node.spawn(node.order("r", "sleep", "1"), lease_s=0.6)
    handle.renew_lease(boottime_s() + 60)
    handle.renew_lease(boottime_s() + 1)  # an older answer that arrives late
    ended = wait_ended(handle)
    assert (ended.cause, ended.exit_code) == (None, 0)


@pytest.mark.parametrize("fault", ["missing", "garbage"])
def test_a_lease_that_cannot_be_read_has_ended(node: Node, fault: str) -> None:
    handle = node.spawn(node.python("r", COOPERATES))
    wait_output(handle, "ready")
    lease = handle.run_dir / "lease.json"
    if fault == "missing":
        lease.unlink()
    else:
        lease.write_text('{"until_boottime_s": [')
    assert wait_ended(handle).cause == "lease"


def test_a_run_past_its_lease_is_not_started(node: Node) -> None:
    ended = wait_ended(node.spawn(node.order("r", "sh", "-c", "echo x > started"), lease_s=-1))
    assert (ended.cause, ended.process) == ("lease", None)
    assert not (node.root / "started").exists()


def test_the_walltime_stops_the_run(node: Node) -> None:
    ended = wait_ended(node.spawn(node.python("r", COOPERATES, walltime_s=0.4)))
    assert (ended.cause, ended.exit_code) == ("timeout", 85)


def test_a_guardian_told_to_end_stops_its_run_first(node: Node) -> None:
    handle = node.spawn(node.python("r", COOPERATES))
    wait_output(handle, "ready")
    guardian = handle.status().guardian
    assert guardian is not None
    guardian.send(signal.SIGTERM)
    ended = wait_ended(handle)
    assert (ended.cause, ended.exit_code) == ("interruption", 85)


def test_a_daemon_that_left_the_group_is_ended_with_the_run(node: Node) -> None:
    handle = node.spawn(node.python("r", DAEMONISES + "daemon(); print('bye')"))
    ended = wait_ended(handle)
    assert (ended.exit_code, ended.leftovers_killed) == (0, 1)
    assert marked_with(handle.run_dir) == []


def test_a_daemon_that_wiped_its_environment_is_ended_too(node: Node) -> None:
    wiped = DAEMONISES.replace(
        "    time.sleep(60)\n", "    os.execve('/bin/sleep', ['sleep', '61.5'], {})\n"
    )
    handle = node.spawn(
        node.python("r", wiped + "daemon(); print('ready', flush=True)\n" + IGNORES)
    )
    wait_output(handle, "ready")
    handle.request_stop("cancel", 0.2)
    assert wait_ended(handle).leftovers_killed == 1


def test_a_child_in_the_group_gets_the_rest_of_the_grace(node: Node) -> None:
    # The shell dies of the signal at once; its child is in the middle of a checkpoint.
    child = "trap 'sleep 0.4; echo saved > saved' TERM; echo ready; sleep 60 & wait $!"
    order = node.order("r", "bash", "-c", f'bash -c "{child}" | cat; :', grace_s=5)
    handle = node.spawn(order)
    wait_output(handle, "ready")
    handle.request_stop("preempt")
    ended = wait_ended(handle)
    assert (node.root / "saved").read_text() == "saved\n"
    assert ended.leftovers_killed == 0


def test_a_job_that_keeps_forking_is_ended(node: Node) -> None:
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "end = time.monotonic() + 20\n"
        "print('ready', flush=True)\n"
        "while time.monotonic() < end:\n"
        "    if os.fork():\n"
        "        time.sleep(0.005)\n"
        "        os._exit(0)\n"  # each child outlives its parent: the pid moves all the time
    )
    handle = node.spawn(node.python("r", code))
    ended = wait_ended(handle)
    assert ended.exit_code == 0
    assert marked_with(handle.run_dir) == []


def test_a_killed_guardian_takes_its_first_process_along(node: Node) -> None:
    handle = node.spawn(node.order("r", "sleep", "60"))
    started = wait_phase(handle, RunPhase.RUNNING).started
    assert started is not None
    _kill_guardian(handle)
    wait_for(lambda: not started.process.is_alive())
    assert handle.status().phase is RunPhase.LOST


def _kill_guardian(handle: GuardianHandle) -> None:
    guardian = handle.status().guardian
    assert guardian is not None
    guardian.send(signal.SIGKILL)
    wait_for(lambda: not handle.is_alive())


def test_recovery_ends_what_a_killed_guardian_left_and_says_node_lost(node: Node) -> None:
    handle = node.spawn(
        node.python("r", DAEMONISES + "daemon(); print('ready', flush=True); time.sleep(60)")
    )
    wait_output(handle, "ready")
    _kill_guardian(handle)
    assert len(marked_with(handle.run_dir)) >= 1
    ended = recover(handle.run_dir)
    assert (ended.cause, ended.exit_code, ended.outcome) == ("node_lost", None, Outcome.UNKNOWN)
    assert ended.leftovers_killed >= 1
    assert marked_with(handle.run_dir) == []
    assert recover(handle.run_dir) == ended
    assert handle.status().phase is RunPhase.ENDED


def test_a_live_guardian_is_not_recovered(node: Node) -> None:
    handle = node.spawn(node.order("r", "sleep", "60"))
    wait_phase(handle, RunPhase.RUNNING)
    with pytest.raises(GuardianAlive):
        recover(handle.run_dir)
    assert handle.status().phase is RunPhase.RUNNING


def test_a_recovered_run_that_nobody_had_claimed_can_never_start(node: Node) -> None:
    order = node.order("r", "sh", "-c", "echo x > started")
    run_dir = node.root / order.run_id
    run_dir.mkdir()
    (run_dir / "spec.json").write_text(json.dumps(order.to_record()))
    assert recover(run_dir).cause == "node_lost"
    handle = node.spawn(order)
    assert handle.status().phase is RunPhase.ENDED
    assert not handle.is_alive()
    assert not (node.root / "started").exists()


def test_a_recovery_that_died_half_way_is_taken_up_again(node: Node) -> None:
    order = node.order("r", "true")
    run_dir = node.root / order.run_id
    run_dir.mkdir()
    (run_dir / "spec.json").write_text(json.dumps(order.to_record()))
    (run_dir / "claimed").write_text(
        json.dumps({"pid": 4_000_000, "boot_id": boot_id(), "start_ticks": 5, "recovery": True})
    )
    assert GuardianHandle.adopt(run_dir).status().phase is RunPhase.LOST
    assert recover(run_dir).cause == "node_lost"


def test_the_loss_of_the_guardian_is_harder_than_the_stop_under_way(node: Node) -> None:
    handle = node.spawn(node.python("r", IGNORES, grace_s=60))
    wait_output(handle, "ready")
    handle.request_stop("cancel")
    wait_phase(handle, RunPhase.STOPPING)
    _kill_guardian(handle)
    assert recover(handle.run_dir).cause == "node_lost"


def test_a_run_of_an_earlier_boot_is_recovered_without_a_search(node: Node, tmp_path: Path) -> None:
    order = node.order("r", "true")
    run_dir = tmp_path / order.run_id
    run_dir.mkdir()
    (run_dir / "spec.json").write_text(json.dumps(order.to_record()))
    (run_dir / "claimed").write_text('{"pid": 1, "boot_id": "another", "start_ticks": 5}')
    assert GuardianHandle.adopt(run_dir).status().phase is RunPhase.LOST
    assert recover(run_dir).cause == "node_lost"


def test_cleanup_runs_after_the_end_and_is_repeated_until_it_works(node: Node) -> None:
    script = node.root / "remove"
    script.write_text(
        "#!/bin/sh\necho try >> tries\n[ $(wc -l < tries) -ge 3 ] && echo $1 > removed\n".replace(
            "tries", str(node.root / "tries")
        ).replace("> removed", f"> {node.root}/removed")
    )
    script.chmod(0o755)
    order = node.order("r", "true", cleanup=((str(script), "name-of-run"),))
    ended = wait_ended(node.spawn(order))
    assert (ended.exit_code, ended.error) == (0, None)
    assert (node.root / "removed").read_text() == "name-of-run\n"
    assert (node.root / "tries").read_text() == "try\n" * 3


def test_a_stop_takes_effect_at_once_and_not_at_the_next_poll(node: Node) -> None:
    handle = node.spawn(node.python("r", COOPERATES))
    wait_output(handle, "ready")
    time.sleep(0.05)
    asked = boottime_s()
    handle.request_stop("preempt")
    stopping = wait_phase(handle, RunPhase.ENDED).stopping
    assert stopping is not None
    assert stopping.stop_boottime_s - asked < 0.2


def test_guardian_and_job_leave_no_zombie_with_the_agent(node: Node) -> None:
    handle = node.spawn(node.order("r", "true"))
    guardian = wait_ended(handle) and handle.status().guardian
    assert guardian is not None
    assert not Path(f"/proc/{guardian.pid}").exists()
