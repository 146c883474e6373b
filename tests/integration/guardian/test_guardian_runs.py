"""A guardian starts a run, keeps its output and records how it ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hybrid.agent.guardian import (
    GuardianHandle,
    InvalidOrder,
    Outcome,
    RunPhase,
    live_span,
    read_journal,
    read_log,
)

from .conftest import Node, wait_ended, wait_output, wait_phase

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(0, Outcome.DONE), (85, Outcome.CHECKPOINTED), (1, Outcome.FAILED), (127, Outcome.FAILED)],
)
def test_the_exit_code_is_recorded_with_its_meaning(
    node: Node, code: int, outcome: Outcome
) -> None:
    ended = wait_ended(node.spawn(node.order("r", "sh", "-c", f"exit {code}")))
    assert (ended.exit_code, ended.exit_signal, ended.cause) == (code, None, None)
    assert ended.outcome is outcome


def test_a_job_killed_by_a_signal_is_recorded_with_the_signal(node: Node) -> None:
    ended = wait_ended(node.spawn(node.order("r", "sh", "-c", "kill -SEGV $$")))
    assert (ended.exit_code, ended.exit_signal, ended.outcome) == (None, "SIGSEGV", Outcome.FAILED)


def test_a_command_that_does_not_exist_is_a_recorded_failure(node: Node) -> None:
    ended = wait_ended(node.spawn(node.order("r", "/no/such/command")))
    assert ended.error == "cannot start /no/such/command: No such file or directory"
    assert (ended.exit_code, ended.outcome, ended.cause) == (None, Outcome.FAILED, None)


def test_a_missing_working_directory_is_a_recorded_failure(node: Node) -> None:
    order = node.order("r", "true")
    ended = wait_ended(node.spawn(type(order)(**{**_fields(order), "cwd": "/no/such/dir"})))
    assert ended.error == "cannot start /no/such/dir: No such file or directory"


def _fields(order: object) -> dict[str, object]:
    return {name: getattr(order, name) for name in order.__slots__}  # type: ignore[attr-defined]


def test_output_is_kept_apart_and_merged_without_cutting_lines(node: Node) -> None:
    code = (
        "import os\n"
        "os.write(1, b'half '); os.write(2, b'error line\\n'); os.write(1, b'whole\\n')\n"
        "os.write(1, b'no newline')\n"
    )
    handle = node.spawn(node.python("r", code))
    wait_ended(handle)
    assert (handle.run_dir / "stdout.log").read_text() == "half whole\nno newline"
    assert (handle.run_dir / "stderr.log").read_text() == "error line\n"
    merged = read_log(handle.run_dir, 0, 1000).data.decode()
    assert sorted(merged.splitlines()) == ["error line", "half whole", "no newline"]


def test_an_unfinished_line_shows_up_while_the_job_runs(node: Node) -> None:
    handle = node.spawn(node.python("r", "import os,time; os.write(1, b'12 %'); time.sleep(60)"))
    wait_output(handle, "12 %")
    assert handle.status().phase is RunPhase.RUNNING


def test_the_job_sees_its_environment_and_secrets_and_nothing_of_the_agent(node: Node) -> None:
    os.environ["HYBRID_TEST_AGENT_SECRET"] = "agent's own"
    try:
        code = "import os, json; print(json.dumps(dict(os.environ)))"
        order = node.python("r", code, env={"COLOUR": "blue"})
        handle = node.spawn(order, secrets={"TOKEN": "s3cr3t-value"})
    finally:
        del os.environ["HYBRID_TEST_AGENT_SECRET"]
    wait_ended(handle)
    seen = json.loads((handle.run_dir / "stdout.log").read_text())
    seen.pop("LC_CTYPE", None)  # Python's own coercion of the C locale
    assert seen == {
        **order.env,
        "TOKEN": "s3cr3t-value",
        "HYBRID_GUARDED_IN": str(handle.run_dir),
    }


def test_a_secret_is_written_to_no_file(node: Node) -> None:
    handle = node.spawn(node.order("r", "true"), secrets={"TOKEN": "s3cr3t-value"})
    wait_ended(handle)
    files = [path for path in handle.run_dir.iterdir() if path.is_file()]
    assert files
    assert [p.name for p in files if b"s3cr3t-value" in p.read_bytes()] == []


def test_many_large_secrets_pass_through_the_pipe(node: Node) -> None:
    secrets = {f"S{i}": "x" * 60_000 for i in range(4)}
    handle = node.spawn(
        node.python("r", "import os; print(len(os.environ['S3']))"), secrets=secrets
    )
    wait_ended(handle)
    assert (handle.run_dir / "stdout.log").read_text() == "60000\n"


def test_the_job_has_a_session_of_its_own_and_default_signal_actions(node: Node) -> None:
    code = (
        "import os, signal\n"
        "print(os.getsid(0) == os.getpgrp() == os.getpid())\n"
        "print([s.name for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)\n"
        "       if signal.getsignal(s) is not signal.SIG_DFL], signal.pthread_sigmask(0, ()))\n"
    )
    handle = node.spawn(node.python("r", code))
    wait_ended(handle)
    assert (handle.run_dir / "stdout.log").read_text() == "True\n[] set()\n"


def test_spawning_the_same_run_twice_starts_it_once(node: Node) -> None:
    order = node.python("r", "print('once'); import time; time.sleep(0.3)")
    handles = [node.spawn(order) for _ in range(4)]
    for handle in handles:
        wait_ended(handle)
    assert (handles[0].run_dir / "stdout.log").read_text() == "once\n"
    events = [event["event"] for event in read_journal(handles[0].run_dir)]
    assert events == ["claimed", "started", "ended"]


def test_a_run_that_ended_is_not_started_again(node: Node) -> None:
    order = node.order("r", "sh", "-c", "echo x >> count")
    wait_ended(node.spawn(order))
    again = node.spawn(order)
    assert again.status().phase is RunPhase.ENDED
    assert (node.root / "count").read_text() == "x\n"


def test_a_directory_that_holds_another_run_is_refused(node: Node) -> None:
    handle = node.spawn(node.order("r", "true"))
    with pytest.raises(InvalidOrder, match="belongs to run"):
        GuardianHandle.spawn(
            handle.run_dir, node.order("other", "true"), lease_until_boottime_s=1e12
        )
    wait_ended(handle)


def test_a_guardian_whose_agent_dies_before_the_secrets_came_claims_nothing(node: Node) -> None:
    order = node.order("r", "true")
    run_dir = node.root / "r"
    run_dir.mkdir()
    (run_dir / "spec.json").write_text(json.dumps(order.to_record()))
    done = subprocess.run(
        [sys.executable, "-m", "hybrid.agent.guardian", str(run_dir)],
        input=b'{"TOKEN": "half',
        timeout=20,
        check=False,
    )
    assert done.returncode == 4
    assert GuardianHandle.adopt(run_dir).status().phase is RunPhase.UNCLAIMED


def test_a_directory_without_an_order_is_refused_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hybrid.agent.guardian", str(tmp_path)],
        input=b"{}\n",
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1


def test_another_agent_process_adopts_a_running_guardian(node: Node) -> None:
    handle = node.spawn(node.order("r", "sleep", "60"))
    wait_phase(handle, RunPhase.RUNNING)
    adopted = GuardianHandle.adopt(handle.run_dir)
    status = adopted.status()
    assert status.phase is RunPhase.RUNNING
    assert adopted.is_alive()
    assert status.started is not None
    assert status.started.process.is_alive()
    adopted.request_stop("cancel", 1.0)
    assert wait_ended(handle).cause == "cancel"


def test_the_agent_can_exit_and_the_run_goes_on(node: Node) -> None:
    order = node.python("r", "import time; time.sleep(0.6); print('done')")
    run_dir = node.root / order.run_id
    script = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from hybrid.agent.guardian import GuardianHandle, RunOrder\n"
        "order = RunOrder.from_record(json.loads(sys.argv[2]))\n"
        "GuardianHandle.spawn(Path(sys.argv[1]), order, lease_until_boottime_s=1e12)\n"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(run_dir), json.dumps(order.to_record())],
        check=True,
        timeout=20,
    )
    handle = GuardianHandle.adopt(run_dir)
    node.handles.append(handle)
    assert wait_ended(handle).exit_code == 0
    assert (run_dir / "stdout.log").read_text() == "done\n"


def test_the_journal_frames_the_time_in_which_the_run_was_live(node: Node) -> None:
    before = time.time()
    handle = node.spawn(node.order("r", "sleep", "0.2"))
    ended = wait_ended(handle)
    span = live_span(handle.run_dir)
    assert span is not None
    assert span.until_at is not None
    assert before <= span.from_at <= span.until_at - 0.2
    assert ended.started_at is not None
    assert span.from_at <= ended.started_at
    assert span.job_id == "job-1"


def test_a_chatty_job_keeps_its_newest_output_within_the_limit(node: Node) -> None:
    code = "import os\nfor i in range(4000): os.write(1, b'%06d ' % i + b'x' * 993)"
    handle = node.spawn(node.python("r", code, output_limit_bytes=1 << 20))
    wait_ended(handle)
    logs = [p for p in handle.run_dir.iterdir() if p.name.startswith(("output.log", "stdout.log"))]
    assert sum(p.stat().st_size for p in logs) <= (1 << 20) * 5 // 4
    last = read_log(handle.run_dir, 3999 * 1000, 6)
    assert (last.offset, last.data) == (3_999_000, b"003999")
    first = read_log(handle.run_dir, 0, 10)
    assert 4_000_000 - (1 << 20) <= first.offset <= 4_000_000 - (1 << 20) * 3 // 4
