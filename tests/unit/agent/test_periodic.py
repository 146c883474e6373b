"""What a run's keeper says of its saves while they are on their way."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hybrid.agent import periodic
from hybrid.agent.checkpoints import CheckpointStore
from hybrid.agent.config import AgentConfig
from hybrid.agent.periodic import CheckpointKeeper
from hybrid.agent.protocol import RunDocument
from hybrid.agent.run_folder import RunFolder
from hybrid.agent.saving import Saver
from hybrid.domain.job_spec import JobSpec
from tests.doubles.node_server import wait_until
from tests.unit.agent_lower.memory_objects import MemoryObjects


class SlowStore(CheckpointKeeper):
    """A keeper whose store takes no object before it is let."""

    def __init__(self, folder: RunFolder, document: RunDocument, config: AgentConfig) -> None:
        super().__init__(folder, document, config, lambda: None)
        self.let = threading.Event()
        objects = MemoryObjects()
        objects.fail = lambda operation, _: None if operation != "put" else self._wait()
        self._slow = Saver(CheckpointStore(objects), document, folder.path / "stamps.json")

    def _wait(self) -> None:
        assert self.let.wait(10)

    def saver(self) -> Saver:
        return self._slow


def test_a_save_that_takes_long_is_told_of_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(periodic, "SLOW_S", 0.05)
    spec = JobSpec(command=("x",), checkpoint={"enabled": True})
    document = RunDocument(
        run_id="j.1", job_id="j", attempt=1, rank=0, nodes=1, spec=spec, master_port=20_000
    )
    folder = RunFolder.of(tmp_path, "j.1", 0)
    folder.create(document)
    folder.checkpoint.mkdir()
    (folder.checkpoint / "state").write_text("7")
    keeper = SlowStore(folder, document, AgentConfig(server="http://s", pool="rack"))
    saving = threading.Thread(target=keeper.save_last, args=(lambda _: None, lambda: False))
    saving.start()
    try:
        wait_until(lambda: keeper.problem != "")
        assert keeper.problem.startswith("the checkpoint store is slow: ")
        assert keeper.last is None
    finally:
        keeper.let.set()
        saving.join()
    assert keeper.problem == ""
    assert keeper.last is not None
