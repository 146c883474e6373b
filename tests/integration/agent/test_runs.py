"""Runs from the order to the acknowledged end, with a real agent process and real guardians.

All of them on one node, one after the other, as in life.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrid.agent.archive import pack_folder, unpack
from hybrid.domain.job import Progress, StopCause
from hybrid.domain.job_spec import Checkpointing, JobSpec, SecretRef, Stopping
from hybrid.ports.engine import RankPhase
from tests.doubles.node_server import NodeServer, wait_until
from tests.integration.agent.conftest import AgentProcess, python

pytestmark = pytest.mark.integration

UNTIL_STOPPED = """
import os, signal, sys, time
from pathlib import Path
saved = Path(os.environ["HYBRID_CHECKPOINT_DIR"]) / "state"
step = int(saved.read_text()) if saved.exists() else 0
print("begins at", step, "resume", os.environ["HYBRID_RESUME"], flush=True)
def save(*_):
    saved.with_suffix(".tmp").write_text(str(step)); saved.with_suffix(".tmp").rename(saved)
    sys.exit(85)
signal.signal(signal.SIGTERM, save)
said = Path(os.environ["HYBRID_PROGRESS_FILE"])
while True:
    time.sleep(0.02); step += 1
    text = '{"step": %d, "total": 1000, "at": %f}' % (step, time.time())
    said.with_suffix(".tmp").write_text(text); said.with_suffix(".tmp").rename(said)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeServer]:
    server = NodeServer(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, server: NodeServer) -> Iterator[AgentProcess]:
    agent = AgentProcess(tmp_path_factory.mktemp("agent"), server)
    agent.start()
    yield agent
    agent.clean_up()


def test_a_run_prints_ends_is_reported_and_is_forgotten_once_acknowledged(
    server: NodeServer, agent: AgentProcess
) -> None:
    run = server.run(python("print('hello'); print('bye')"))
    ended = server.wait_ended(run)
    assert (ended.exit_code, ended.cause, ended.problem, ended.tail) == (0, None, "", "")
    assert ended.started_at is not None
    assert ended.ended_at is not None
    assert ended.started_at <= ended.ended_at
    assert server.printed(run) == "hello\nbye\n"
    server.engine.acknowledge(run)
    wait_until(lambda: not (agent.state / "runs" / run).exists())
    events = [line["event"] for line in agent.journal() if line["run_id"] == run]
    assert events == ["claimed", "started", "ended"]


def test_the_process_sees_the_job_contract(server: NodeServer, agent: AgentProcess) -> None:
    names = (
        "HYBRID_JOB_ID",
        "HYBRID_RUN_ID",
        "HYBRID_ATTEMPT",
        "HYBRID_RESUME",
        "CUDA_VISIBLE_DEVICES",
        "COLOUR",
        "AWS_SECRET_ACCESS_KEY",
    )
    code = f"import os\nfor n in {names!r}: print(n, os.environ.get(n))"
    run = server.run(python(code, env={"COLOUR": "blue"}), job="j-7", attempt=3, gpus=("GPU-0",))
    server.wait_ended(run)
    assert server.printed(run).splitlines() == [
        "HYBRID_JOB_ID j-7",
        "HYBRID_RUN_ID j-7.3",
        "HYBRID_ATTEMPT 3",
        "HYBRID_RESUME 0",
        "CUDA_VISIBLE_DEVICES GPU-0",
        "COLOUR blue",
        "AWS_SECRET_ACCESS_KEY None",
    ]


def test_a_process_with_a_part_of_a_gpu_is_told_which(
    server: NodeServer, agent: AgentProcess
) -> None:
    code = """
import os
for name in sorted(os.environ):
    if "GPU" in name or "MPS" in name:
        print(name, os.environ[name])
"""
    parts: tuple[tuple[dict[str, float], tuple[float, float | None, int]], ...] = (
        ({"share": 0.5}, (0.5, 39.75, 1)),
        ({"slice_memory": 10}, (0.25, 10.0, 1)),
        ({"share": 0.2}, (0.25, 10.0, 4)),
    )
    told = []
    for gpu, part in parts:
        spec = python(code, resources={"gpu": gpu})
        run = server.run(spec, gpus=("GPU-0",), part=part)
        server.wait_ended(run)
        told.append(server.printed(run).splitlines())
    share, part_of_memory, replica = told
    assert share == [
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE 50",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT 0=40704M",
        "HYBRID_GPU_MEMORY_GIB 39.75",
        "HYBRID_GPU_SHARE 0.5",
    ]
    assert part_of_memory == [
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT 0=10240M",
        "HYBRID_GPU_MEMORY_GIB 10",
        "HYBRID_GPU_SHARE 0.25",
    ]
    assert replica == part_of_memory


def test_the_work_folder_travels_there_and_the_named_outputs_come_back(
    server: NodeServer, agent: AgentProcess, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "main.py").write_text(
        "import pathlib\npathlib.Path('out').mkdir()\n"
        "pathlib.Path('out/result').write_text('42')\npathlib.Path('junk').write_text('x')\n"
    )
    packed = pack_folder(home, tmp_path / "work.tar.gz")
    server.artifacts[packed.digest] = (tmp_path / "work.tar.gz").read_bytes()
    spec = JobSpec(
        command=("python3", "main.py"), workdir=packed.digest, outputs=("out", "never-made")
    )
    ended = server.wait_ended(server.run(spec))
    assert (ended.exit_code, ended.problem) == (0, "")
    archive = tmp_path / "back.tar.gz"
    archive.write_bytes(server.artifacts[ended.outputs])
    unpack(archive, tmp_path / "back")
    assert [str(p.relative_to(tmp_path / "back")) for p in (tmp_path / "back").rglob("*")] == [
        "out",
        "out/result",
    ]
    assert (tmp_path / "back/out/result").read_text() == "42"


def test_a_work_folder_that_nobody_has_is_a_problem_and_nothing_starts(
    server: NodeServer, agent: AgentProcess
) -> None:
    digest = f"sha256:{hashlib.sha256(b'nobody').hexdigest()}"
    ended = server.wait_ended(server.run(JobSpec(command=("true",), workdir=digest)))
    assert (ended.exit_code, ended.started_at) == (None, None)
    assert ended.problem.startswith(f"the work folder {digest} cannot be had: 404")


def test_a_work_folder_that_is_no_archive_is_refused(
    server: NodeServer, agent: AgentProcess
) -> None:
    digest = f"sha256:{hashlib.sha256(b'not an archive').hexdigest()}"
    server.artifacts[digest] = b"not an archive"
    ended = server.wait_ended(server.run(JobSpec(command=("true",), workdir=digest)))
    assert ended.exit_code is None
    assert ended.problem.startswith(f"the work folder {digest} is refused: not a gzip file")


def test_a_failed_run_brings_its_code_and_its_last_fifty_lines(
    server: NodeServer, agent: AgentProcess
) -> None:
    run = server.run(python("import sys\nfor i in range(80): print('line', i)\nsys.exit(3)"))
    ended = server.wait_ended(run)
    assert ended.exit_code == 3
    assert ended.tail.splitlines() == [f"line {i}" for i in range(30, 80)]


def test_a_command_that_does_not_exist_is_a_problem_in_words(
    server: NodeServer, agent: AgentProcess
) -> None:
    ended = server.wait_ended(server.run(JobSpec(command=("no-such-program",))))
    assert (ended.exit_code, ended.problem) == (
        None,
        "cannot start no-such-program: No such file or directory",
    )


def test_a_secret_reaches_the_process_and_no_file(server: NodeServer, agent: AgentProcess) -> None:
    secret = agent.folder / "key"
    secret.write_text("correct horse\n")
    code = (
        "import os, hashlib, time; k = os.environ['KEY']; print(hashlib.sha256(k.encode())"
        ".hexdigest(), flush=True); time.sleep(60)"
    )
    run = server.run(python(code, secrets={"KEY": SecretRef(file=str(secret))}))
    server.wait_running(run)
    digest = hashlib.sha256(b"correct horse").hexdigest()
    wait_until(lambda: server.printed(run) == digest + "\n")
    texts = [p.read_bytes() for p in agent.folder.rglob("*") if p.is_file() and p != secret]
    assert not any(b"correct horse" in text for text in texts)
    server.engine.stop(run, StopCause.CANCEL, 1.0, 1)
    server.wait_ended(run)


def test_progress_is_reported_while_it_runs(server: NodeServer, agent: AgentProcess) -> None:
    run = server.run(python(UNTIL_STOPPED))
    running = server.wait_for(run, lambda r: r.progress is not None and r.progress.step > 5)
    assert running.phase is RankPhase.RUNNING
    assert running.progress is not None
    assert running.progress.total == 1000
    assert running.first_step == 0


def test_a_stopped_job_saves_its_work_and_goes_on_from_there_in_the_next_run(
    server: NodeServer, agent: AgentProcess
) -> None:
    spec = python(UNTIL_STOPPED, checkpoint=Checkpointing(enabled=True, interval=600))
    first = server.run(spec, job="saver")
    server.wait_for(first, lambda r: r.progress is not None and r.progress.step > 10)
    server.engine.stop(first, StopCause.PREEMPT, 20.0, 1)
    ended = server.wait_ended(first)
    assert (ended.exit_code, ended.cause) == (85, StopCause.PREEMPT)
    assert 0 < ended.stop_s < 5
    assert ended.checkpoint is not None
    assert ended.checkpoint.step > 10
    server.engine.acknowledge(first)

    second = server.run(spec, job="saver", attempt=2, checkpoint=ended.checkpoint)
    running = server.wait_running(second)
    assert running.first_step == ended.checkpoint.step
    wait_until(lambda: "begins" in server.printed(second))
    saved = int(server.printed(second).split()[2])
    assert abs(saved - ended.checkpoint.step) <= 1
    assert server.printed(second).endswith("resume 1\n")
    server.engine.stop(second, StopCause.CANCEL, 5.0, 1)
    assert server.wait_ended(second).cause is StopCause.CANCEL


def test_what_a_job_saves_is_committed_while_it_runs(
    server: NodeServer, agent: AgentProcess
) -> None:
    code = """
import os, time
from pathlib import Path
d = Path(os.environ["HYBRID_CHECKPOINT_DIR"])
for step in (7, 14):
    (d / "x.tmp").write_text(str(step)); (d / "x.tmp").rename(d / "state")
    (d / "s.tmp").write_text(str(step)); (d / "s.tmp").rename(d / "STEP")
    time.sleep(2.5)
time.sleep(60)
"""
    run = server.run(python(code, checkpoint=Checkpointing(enabled=True, interval=1)))
    first = server.wait_for(run, lambda r: r.checkpoint is not None)
    assert first.phase is RankPhase.RUNNING
    assert first.checkpoint is not None
    assert first.checkpoint.step == 7
    second = server.wait_for(run, lambda r: r.checkpoint is not None and r.checkpoint.step == 14)
    assert second.checkpoint is not None
    assert second.checkpoint.seq > first.checkpoint.seq


def test_a_job_that_ignores_its_signal_is_killed_after_its_grace(
    server: NodeServer, agent: AgentProcess
) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('on'); time.sleep(60)"
    run = server.run(python(code, stop=Stopping(grace=0.5)))
    wait_until(lambda: server.printed(run) == "on\n")
    server.engine.stop(run, StopCause.DRAIN, 30.0, 1)
    ended = server.wait_ended(run)
    assert (ended.exit_code, ended.cause) == (-9, StopCause.DRAIN)


def test_of_two_causes_the_harder_wins_and_the_grace_only_shrinks(
    server: NodeServer, agent: AgentProcess
) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('on'); time.sleep(60)"
    run = server.run(python(code, stop=Stopping(grace=60)))
    wait_until(lambda: server.printed(run) == "on\n")
    server.engine.stop(run, StopCause.RETURN, 60.0, 1)
    server.wait_for(run, lambda r: r.phase is RankPhase.STOPPING)
    server.engine.stop(run, StopCause.CANCEL, 0.3, 1)
    assert server.wait_ended(run).cause is StopCause.CANCEL


def test_a_job_that_hangs_in_its_stop_is_killed_and_what_it_half_saved_is_not_resumed_from(
    server: NodeServer, agent: AgentProcess
) -> None:
    code = """
import os, signal, time
from pathlib import Path
d = Path(os.environ["HYBRID_CHECKPOINT_DIR"])
def keep(name, text):
    (d / "t.tmp").write_text(text); (d / "t.tmp").rename(d / name)
def hang(*_):
    (d / "state.tmp").write_text("half"); time.sleep(60)
signal.signal(signal.SIGTERM, hang)
keep("state", "7"); keep("STEP", "7")
time.sleep(60)
"""
    saving = Checkpointing(enabled=True, interval=1)
    run = server.run(python(code, checkpoint=saving, stop=Stopping(grace=1)), job="hangs")
    server.wait_for(run, lambda r: r.checkpoint is not None and r.checkpoint.step == 7)
    server.engine.stop(run, StopCause.PREEMPT, 30.0, 1)
    ended = server.wait_ended(run)
    assert (ended.exit_code, ended.cause) == (-9, StopCause.PREEMPT)
    assert ended.checkpoint is not None
    assert ended.checkpoint.step == 7


@pytest.mark.parametrize(
    "garbage",
    [
        'b"\\xff\\x00\\xfe" * 1000',
        """b'{"step": 1, "total": 2, "at": NaN}'""",
        """b'{"step": -5, "total": 2, "at": 1}'""",
        """b'{"step": 1, "total": 2, "at": 1772452800000}'""",
        """b'{"step": 9007199254740993, "total": 9e999, "at": 1}'""",
        'b"x" * (8 << 20)',
    ],
    ids=["binary", "not a number", "negative", "milliseconds", "huge", "megabytes"],
)
def test_garbage_in_the_progress_file_harms_neither_its_run_nor_its_node(
    server: NodeServer, agent: AgentProcess, garbage: str
) -> None:
    code = f"""
import os, time
from pathlib import Path
said = Path(os.environ["HYBRID_PROGRESS_FILE"])
said.write_bytes({garbage})
print("said", flush=True)
time.sleep(2)
said.write_text('{{"step": 3, "total": 4, "at": 5}}')
time.sleep(30)
"""
    run = server.run(python(code))
    wait_until(lambda: server.printed(run) == "said\n")
    said_at = time.time()
    wait_until(lambda: server.only_node().heard_at > said_at, 1.8)
    sane = server.wait_for(run, lambda r: r.progress is not None)
    assert sane.progress == Progress(step=3, total=4, at=5.0)
    server.engine.stop(run, StopCause.CANCEL, 1.0, 1)
    assert server.wait_ended(run).cause is StopCause.CANCEL
