"""A small installation: one GPU at home, one cloud, a store in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hybrid.simulation.drive import Control
from hybrid.simulation.memory_store import MemoryStore
from tests.doubles.sim import CLOUD, POLICY, a_world


@pytest.fixture
def control() -> Iterator[Control]:
    """A control plane whose pools and policy are written, and whose world has stood for a while."""
    made = Control(MemoryStore(), a_world())
    made.apply_policy(POLICY)
    made.apply_pool({"kind": "local", "name": "rack"})
    made.apply_pool(CLOUD)
    made.world.add_node("rack", "n1", "a10g", 1, links="none")
    yield made
    made.loop.stop()
