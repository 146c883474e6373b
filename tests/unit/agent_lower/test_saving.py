"""Going on from a checkpoint: from the one that was asked for, and a gang from one step or none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hybrid.agent.checkpoints import CheckpointStore, CorruptCheckpoint, PartSpoilt
from hybrid.agent.checkpoints.objects import ObjectMissing
from hybrid.agent.protocol import Resume, RunDocument
from hybrid.agent.saving import Saver
from hybrid.domain.job_spec import JobSpec

from .memory_objects import MemoryObjects


class Node:
    """One rank's way to a store of its own making over objects that all share."""

    def __init__(self, objects: MemoryObjects, folder: Path, rank: int = 0, nodes: int = 1) -> None:
        self.objects, self.folder, self.rank, self.nodes = objects, folder, rank, nodes

    def saver(self, late_s: float = 0.0) -> Saver:
        """As a new agent would have it: it remembers nothing."""
        document = RunDocument(
            run_id="j.2",
            job_id="j",
            attempt=2,
            rank=self.rank,
            nodes=self.nodes,
            spec=JobSpec(command=(sys.executable,)),
            master_port=20_000,
        )
        stamps = self.folder / f"stamps-{self.rank}"
        return Saver(CheckpointStore(self.objects), document, stamps, late_s=late_s)

    def save(self, step: int) -> Resume:
        """Commit a step; what a next run is told to go on from."""
        work = self.folder / f"work-{self.rank}"
        work.mkdir(exist_ok=True)
        (work / "state").write_text(f"{self.rank} at {step}")
        done = self.saver().commit(work, step)
        return Resume(seq=done.seq, step=done.step)

    def resume(self, resume: Resume, late_s: float = 0.0) -> str:
        """What a new run finds."""
        out = self.folder / f"out-{self.rank}"
        step = self.saver(late_s).restore(out, resume)
        found = (out / "state").read_text()
        assert found == f"{self.rank} at {step}"
        return found


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def node(objects: MemoryObjects, tmp_path: Path) -> Node:
    return Node(objects, tmp_path)


@pytest.fixture
def ranks(objects: MemoryObjects, tmp_path: Path) -> tuple[Node, Node]:
    return Node(objects, tmp_path, 0, 2), Node(objects, tmp_path, 1, 2)


def test_a_checkpoint_is_found_by_its_name_though_no_listing_shows_it_yet(
    objects: MemoryObjects, node: Node
) -> None:
    node.save(10)
    resume = node.save(20)
    objects.shows = lambda key: "200002" not in key
    assert node.resume(resume) == "0 at 20"


def test_a_checkpoint_that_is_seen_late_is_waited_for(objects: MemoryObjects, node: Node) -> None:
    node.save(10)
    resume = node.save(20)
    unseen = [3]

    def late(operation: str, key: str) -> Exception | None:
        if operation == "get" and "200002" in key and unseen[0]:
            unseen[0] -= 1
            return ObjectMissing(key)
        return None

    objects.fail = late
    assert node.resume(resume, late_s=30.0) == "0 at 20"
    assert unseen == [0]


def test_a_checkpoint_that_never_comes_is_replaced_by_the_one_before(
    objects: MemoryObjects, node: Node
) -> None:
    node.save(10)
    resume = node.save(20)
    (gone,) = [key for key in objects.keys("manifests/") if "200002" in key]
    del objects.data[gone]
    assert node.resume(resume) == "0 at 10"


def test_a_late_listing_makes_no_checkpoint_overwrite_another(
    objects: MemoryObjects, node: Node, tmp_path: Path
) -> None:
    saver = node.saver()
    (tmp_path / "w").mkdir()
    objects.shows = lambda key: False
    seqs = []
    for step in (10, 20):
        (tmp_path / "w" / "state").write_text(str(step))
        seqs.append(saver.commit(tmp_path / "w", step).seq)
    assert seqs == [200_001, 200_002]


# --- gangs ------------------------------------------------------------------------------------


def test_a_gang_goes_on_from_a_step_that_is_there_late_for_one_rank(
    objects: MemoryObjects, ranks: tuple[Node, Node]
) -> None:
    for step in (10, 20):
        resume, _ = (rank.save(step) for rank in ranks)
    looks = [2]

    def shows(key: str) -> bool:
        if key.startswith("manifests/") and looks[0]:
            looks[0] -= 1
            return False
        return True

    objects.shows = shows
    assert [rank.resume(resume, late_s=30.0) for rank in ranks] == ["0 at 20", "1 at 20"]


def _saved_twice(objects: MemoryObjects, ranks: tuple[Node, Node]) -> tuple[Resume, str]:
    """Steps 10 and 20 of both ranks: where to go on from, and the second rank's chunk of 20."""
    for rank in ranks:
        rank.save(10)
    resume = ranks[0].save(20)
    before = set(objects.keys("chunks/"))
    ranks[1].save(20)
    (chunk,) = set(objects.keys("chunks/")) - before
    return resume, chunk


def test_all_ranks_pass_over_a_step_of_which_one_part_is_not_whole(
    objects: MemoryObjects, ranks: tuple[Node, Node]
) -> None:
    resume, chunk = _saved_twice(objects, ranks)
    del objects.data[chunk]
    assert [rank.resume(resume) for rank in ranks] == ["0 at 10", "1 at 10"]


def test_a_rank_whose_part_proves_bad_does_not_begin_and_the_next_run_agrees_on_the_step_before(
    objects: MemoryObjects, ranks: tuple[Node, Node]
) -> None:
    resume, chunk = _saved_twice(objects, ranks)
    data, at = objects.data[chunk]
    objects.data[chunk] = (bytes(byte ^ 1 for byte in data), at)
    with pytest.raises(PartSpoilt, match="step 20 is withdrawn"):
        ranks[1].resume(resume)
    assert [rank.resume(resume) for rank in ranks] == ["0 at 10", "1 at 10"]


def test_a_gang_without_any_common_step_does_not_begin(ranks: tuple[Node, Node]) -> None:
    resume = ranks[0].save(10)
    ranks[1].save(20)
    for rank in ranks:
        with pytest.raises(CorruptCheckpoint):
            rank.resume(resume)
