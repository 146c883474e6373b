"""The PyTorch example under real guardians: stopped, killed and moved, to the same weights.

Run by ``make test-examples``, which names the Python that has PyTorch in HYBRID_EXAMPLES_PYTHON.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrid.agent.checkpoints import CheckpointStore, CommitRequest
from hybrid.agent.guardian import Ended, GuardianHandle, boottime_s
from hybrid.agent.launch import Contract, Launch, build_order, read_progress
from tests.integration.guardian.conftest import Node, ended_with_it, wait_ended, wait_for

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
STEPS = 1500
LOADING_S = 90.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with ended_with_it(Node(tmp_path)) as node:
        yield node


class Place:
    """A node's folders for the job."""

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.root = node.root / name
        self.root.mkdir()
        self.checkpoint = self.root / "checkpoint"
        self.progress = self.root / "progress.json"

    def start(self, attempt: int) -> GuardianHandle:
        launch = Launch(
            contract=Contract(
                job_id="job-1",
                run_id=f"job-1.{attempt}",
                attempt=attempt,
                resume=attempt > 1,
                checkpoint_dir=self.checkpoint,
                progress_file=self.progress,
            ),
            command=(
                *(os.environ["HYBRID_EXAMPLES_PYTHON"], str(HERE / "train.py")),
                *(f"--steps={STEPS}", "--seed=7", "--checkpoint-every=200"),
            ),
            workdir=self.root,
            env={"PYTHONPATH": str(ROOT)},  # hybrid.job needs no more than this
        )
        handle = GuardianHandle.spawn(
            self.root / f"run{attempt}",
            build_order(launch, base={"PATH": os.environ["PATH"]}).order,
            lease_until_boottime_s=boottime_s() + 120,
        )
        self.node.handles.append(handle)
        return handle

    def wait_for_a_save(self, handle: GuardianHandle) -> None:
        """PyTorch takes long to load."""
        wait_for(lambda: self.has_saved or handle.status().ended is not None, LOADING_S)
        assert self.has_saved, said(handle)

    @property
    def has_saved(self) -> bool:
        return (self.checkpoint / "state.pt").exists()

    @property
    def step(self) -> int:
        progress = read_progress(self.progress)
        return 0 if progress is None else progress.step


def said(handle: GuardianHandle) -> str:
    return (handle.run_dir / "output.log").read_text()


def ended(handle: GuardianHandle) -> Ended:
    wait_for(lambda: handle.status().ended is not None, LOADING_S)
    return wait_ended(handle)


def weights(handle: GuardianHandle) -> str:
    assert ended(handle).exit_code == 0, said(handle)
    found = re.search(r"^weights sha256 ([0-9a-f]{64})$", said(handle), re.MULTILINE)
    assert found, said(handle)
    return found[1]


def test_a_stopped_and_moved_training_ends_with_the_same_weights(
    node: Node, tmp_path: Path
) -> None:
    first, elsewhere = Place(node, "first"), Place(node, "elsewhere")
    handle = first.start(1)
    first.wait_for_a_save(handle)
    handle.request_stop("interruption")
    assert ended(handle).exit_code == 85, said(handle)
    assert 0 < first.step < STEPS
    store = CheckpointStore.open(str(tmp_path / "store"))
    request = CommitRequest(job_id="job-1", run_id="job-1.1", attempt=1, step=first.step)
    store.commit(request, first.checkpoint)
    restored = store.restore("job-1", elsewhere.checkpoint)
    assert restored is not None
    again = elsewhere.start(2)
    moved = weights(again)
    assert f"resumed from step {first.step}\n" in said(again)
    assert moved == weights(Place(node, "uninterrupted").start(1))


def test_a_killed_training_resumes_from_its_last_checkpoint_to_the_same_weights(
    node: Node,
) -> None:
    place = Place(node, "place")
    handle = place.start(1)
    place.wait_for_a_save(handle)
    handle.request_stop("cancel", 0.0)
    end = ended(handle)
    assert end.killed or end.exit_code == 85
    again = place.start(2)
    resumed = weights(again)
    assert re.search(r"^resumed from step \d+$", said(again), re.MULTILINE)
    assert resumed == weights(Place(node, "uninterrupted").start(1))
