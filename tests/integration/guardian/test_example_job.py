"""The example training job under guardians: stopped or not, alone or in a gang, to the bit."""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from pathlib import Path

import pytest

from hybrid.agent.checkpoints import CheckpointStore, CommitRequest
from hybrid.agent.guardian import Ended, GuardianHandle, boottime_s
from hybrid.agent.launch import Contract, Gang, Launch, build_order, read_progress

from .conftest import Node, wait_ended, wait_for

pytestmark = pytest.mark.integration

STEPS = 200
WORK = 768


class Rank:
    """One rank's node: its own work folder, checkpoint directory and run directories."""

    def __init__(self, node: Node, rank: int = 0, nodes: int = 1, port: int = 0) -> None:
        self.node, self.rank, self.nodes, self.port = node, rank, nodes, port
        self.root = node.root / f"rank{rank}"
        self.work = self.root / "work"
        self.work.mkdir(parents=True)
        self.checkpoint = self.root / "checkpoint"
        self.progress = self.root / "contract" / "progress.json"
        self.progress.parent.mkdir()

    def start(self, attempt: int, *extra: str) -> GuardianHandle:
        gang = None
        if self.nodes > 1:
            gang = Gang(
                master_addr="127.0.0.1",
                master_port=self.port,
                node_rank=self.rank,
                nnodes=self.nodes,
            )
        launch = Launch(
            contract=Contract(
                job_id="job-1",
                run_id=f"job-1.{attempt}",
                attempt=attempt,
                resume=attempt > 1,
                checkpoint_dir=self.checkpoint,
                progress_file=self.progress,
                gang=gang,
            ),
            command=(
                *(sys.executable, "-m", "hybrid.demo.jobs.train"),
                *(f"--steps={STEPS}", f"--work={WORK}", "--seed=7", "--checkpoint-every=20"),
                *extra,
            ),
            workdir=self.work,
            rank=self.rank,
        )
        made = build_order(launch, base={"PATH": os.environ["PATH"]})
        handle = GuardianHandle.spawn(
            self.root / f"run{attempt}",
            made.order,
            lease_until_boottime_s=boottime_s() + 60,
        )
        self.node.handles.append(handle)
        return handle

    def has_saved(self) -> bool:
        return (self.checkpoint / "state.npz").exists()

    def step(self) -> int:
        progress = read_progress(self.progress)
        return 0 if progress is None else progress.step


def text(handle: GuardianHandle) -> str:
    return (handle.run_dir / "output.log").read_text()


def weights(handle: GuardianHandle) -> str:
    found = re.search(r"^weights sha256 ([0-9a-f]{64})$", text(handle), re.MULTILINE)
    assert found, text(handle)
    return found[1]


def uninterrupted(node: Node) -> str:
    handle = Rank(Node(node.root / "uninterrupted")).start(1)
    node.handles.append(handle)
    assert wait_ended(handle).exit_code == 0, text(handle)
    return weights(handle)


def test_a_stopped_and_moved_job_ends_with_the_same_weights(node: Node, tmp_path: Path) -> None:
    first = Rank(node)
    handle = first.start(1)
    wait_for(first.has_saved)
    handle.request_stop("preempt")
    ended = wait_ended(handle)
    assert ended.exit_code == 85, text(handle)
    stopped_at = first.step()
    assert f"asked to stop: saved step {stopped_at}" in text(handle)
    store = CheckpointStore.open(str(tmp_path / "store"))
    store.commit(
        CommitRequest(job_id="job-1", run_id="job-1.1", attempt=1, step=stopped_at),
        first.checkpoint,
    )

    elsewhere = Rank(Node(tmp_path / "elsewhere"))
    restored = store.restore("job-1", elsewhere.checkpoint)
    assert restored is not None
    assert restored.step == stopped_at
    again = elsewhere.start(2)
    node.handles.append(again)
    assert wait_ended(again).exit_code == 0, text(again)
    assert f"resumed from step {stopped_at}\n" in text(again)
    assert elsewhere.step() == STEPS
    assert (elsewhere.work / "outputs/weights.npz").is_file()
    assert weights(again) == uninterrupted(node)


def test_a_killed_job_resumes_from_its_last_checkpoint_to_the_same_weights(node: Node) -> None:
    rank = Rank(node)
    handle = rank.start(1)
    wait_for(rank.has_saved)
    handle.request_stop("cancel", 0.0)
    ended = wait_ended(handle)
    assert ended.killed or ended.exit_code == 85
    again = rank.start(2)
    assert wait_ended(again).exit_code == 0, text(again)
    assert re.search(r"^resumed from step \d+$", text(again), re.MULTILINE)
    assert weights(again) == uninterrupted(node)


def test_a_paced_job_takes_its_time_and_ends_with_the_same_weights(node: Node) -> None:
    rank = Rank(node)
    began_s = time.monotonic()
    handle = rank.start(1, "--step-seconds=0.01")
    assert wait_ended(handle).exit_code == 0, text(handle)
    assert time.monotonic() - began_s >= STEPS * 0.01
    assert weights(handle) == uninterrupted(node)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def run_gang(node: Node, name: str, *, stop: bool) -> tuple[list[GuardianHandle], list[Rank]]:
    home = Node(node.root / name)
    ranks = [Rank(home, rank, 3, free_port()) for rank in range(3)]
    for rank in ranks:
        rank.port = ranks[0].port
    handles = [rank.start(1) for rank in reversed(ranks)][::-1]
    node.handles += handles
    if stop:
        wait_for(lambda: all(rank.has_saved() for rank in ranks))
        handles[2].request_stop("interruption")  # one is told; all stop at the same step
        endings: list[Ended] = [wait_ended(handle) for handle in handles]
        assert [ended.exit_code for ended in endings] == [85, 85, 85], text(handles[0])
        assert len({rank.step() for rank in ranks}) == 1
        handles = [rank.start(2) for rank in ranks]
        node.handles += handles
    for handle in handles:
        assert wait_ended(handle).exit_code == 0, text(handle)
    return handles, ranks


def test_a_stopped_gang_stops_at_one_step_and_ends_with_the_same_weights(node: Node) -> None:
    stopped, _ = run_gang(node, "stopped", stop=True)
    plain, _ = run_gang(node, "plain", stop=False)
    digests = {weights(handle) for handle in (*stopped, *plain)}
    assert len(digests) == 1
    assert digests != {uninterrupted(node)}  # three batches a step are not one


def test_a_gang_that_loses_a_rank_saves_and_asks_to_be_run_again(node: Node) -> None:
    home = Node(node.root / "gang")
    ranks = [Rank(home, rank, 2) for rank in range(2)]
    port = free_port()
    for rank in ranks:
        rank.port = port
    handles = [rank.start(1) for rank in ranks]
    node.handles += handles
    wait_for(lambda: all(rank.has_saved() for rank in ranks))
    handles[1].request_stop("cancel", 0.0)
    assert wait_ended(handles[0]).exit_code == 85, text(handles[0])


def test_ranks_at_different_steps_do_not_train_together(node: Node) -> None:
    home = Node(node.root / "gang")
    alone = Rank(home, 0)
    handle = alone.start(1)
    node.handles.append(handle)
    wait_for(alone.has_saved)
    handle.request_stop("preempt")
    wait_ended(handle)
    ranks = [alone, Rank(home, 1)]
    port = free_port()
    for rank in ranks:
        rank.nodes, rank.port = 2, port
    handles = [rank.start(2) for rank in ranks]
    node.handles += handles
    assert [wait_ended(h).exit_code for h in handles] == [1, 1]
    assert "the gang did not meet: rank 1 stands at step 0" in text(handles[0])


@pytest.mark.parametrize("words", [("--steps=0",), ("--nonsense",)])
def test_bad_arguments_are_refused(node: Node, words: tuple[str, ...]) -> None:
    assert wait_ended(Rank(node).start(1, *words)).exit_code == 2
