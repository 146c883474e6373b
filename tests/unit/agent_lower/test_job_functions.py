"""The three functions, inside a run and outside of one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hybrid.agent.launch import read_progress


def run(code: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_progress_is_written_for_the_agent_to_read(tmp_path: Path) -> None:
    before = time.time()
    done = run(
        "from hybrid import job; job.progress(3, 10)",
        tmp_path,
        HYBRID_PROGRESS_FILE=str(tmp_path / "p"),
    )
    assert done.returncode == 0, done.stderr
    progress = read_progress(tmp_path / "p")
    assert progress is not None
    assert (progress.step, progress.total) == (3, 10)
    assert before <= progress.at <= time.time()
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_progress_is_written_rarely_and_the_last_one_always(tmp_path: Path) -> None:
    code = (
        "import os\n"
        "from hybrid import job\n"
        "seen = set()\n"
        "for step in range(1, 2001):\n"
        "    job.progress(step, 5000)\n"
        "    seen.add(os.stat(os.environ['HYBRID_PROGRESS_FILE']).st_ino)\n"
        "print(len(seen))\n"
    )
    done = run(code, tmp_path, HYBRID_PROGRESS_FILE=str(tmp_path / "p"))
    assert int(done.stdout) < 20, done.stderr
    progress = read_progress(tmp_path / "p")
    assert progress is not None
    assert progress.step == 2000


def test_the_step_at_which_a_job_is_told_to_stop_is_reported(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "from hybrid import job\n"
        "job.should_stop()\n"
        "job.progress(1, 9); job.progress(2, 9)\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "assert job.should_stop()\n"
        "os._exit(85)\n"
    )
    done = run(
        code, tmp_path, HYBRID_PROGRESS_FILE=str(tmp_path / "p"), HYBRID_STOP_SIGNAL="SIGUSR1"
    )
    assert done.returncode == 85, done.stderr
    progress = read_progress(tmp_path / "p")
    assert progress is not None
    assert progress.step == 2


@pytest.mark.parametrize("env", [{}, {"HYBRID_PROGRESS_FILE": "/no/such/dir/p"}])
def test_progress_that_goes_nowhere_does_no_harm(tmp_path: Path, env: dict[str, str]) -> None:
    done = run("from hybrid import job; job.progress(1, 2); print('on')", tmp_path, **env)
    assert done.stdout == "on\n", done.stderr


def test_should_stop_is_false_until_the_signal(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "from hybrid import job\n"
        "print(job.should_stop())\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print(job.should_stop())\n"
    )
    assert run(code, tmp_path).stdout == "False\nTrue\n"


def test_a_handler_of_the_program_is_called_as_well(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('mine'))\n"
        "from hybrid import job\n"
        "job.should_stop()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print(job.should_stop())\n"
    )
    assert run(code, tmp_path).stdout == "mine\nTrue\n"


def test_a_first_call_from_a_thread_installs_nothing_and_does_no_harm(tmp_path: Path) -> None:
    code = (
        "import threading\n"
        "from hybrid import job\n"
        "t = threading.Thread(target=lambda: print(job.should_stop())); t.start(); t.join()\n"
        "print(job.should_stop())\n"
    )
    assert run(code, tmp_path).stdout == "False\nFalse\n"


def test_checkpoint_dir_is_the_contracts_or_one_of_its_own(tmp_path: Path) -> None:
    code = "from hybrid import job; d = job.checkpoint_dir(); print(d, d.is_dir())"
    assert run(code, tmp_path).stdout == "checkpoints True\n"
    given = tmp_path / "a" / "b"
    assert run(code, tmp_path, HYBRID_CHECKPOINT_DIR=str(given)).stdout == f"{given} True\n"


def test_jobs_do_not_load_the_engine(tmp_path: Path) -> None:
    code = "import sys; import hybrid.job; print([m for m in sys.modules if 'pydantic' in m])"
    assert run(code, tmp_path).stdout == "[]\n"
