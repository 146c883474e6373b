"""Emptying nodes and owned pools."""

from __future__ import annotations

import pytest

from hybrid.domain.node import NodeState
from hybrid.services.draining import Draining
from hybrid.services.errors import Conflict, NotFound
from hybrid.services.nodes import Nodes
from tests.doubles.build import NOW, a_burst_pool, a_job, a_local_pool, a_node, a_run
from tests.unit.services.conftest import Place


@pytest.fixture
def draining(place: Place) -> Draining:
    nodes = Nodes(place.store, place.live, place.clock, place.poke)
    return Draining(place.store, place.live, nodes, place.clock, place.poke)


def test_a_node_that_is_drained_takes_nothing_and_has_a_time_to_be_empty(
    draining: Draining, place: Place
) -> None:
    node = a_node()
    place.put(a_local_pool(), node, a_job(), a_run())
    found = draining.drain(node.id, within_s=1800, by="olga", why="new fans")
    assert (found.by, found.runs_left, found.empty) == (NOW + 1800, 1, False)
    kept = place.store.node(node.id)
    assert kept is not None
    assert (kept.state, kept.drain_by) == (NodeState.CORDONED, NOW + 1800)
    assert kept.cordon_cause == "emptied by olga within 30m: new fans"
    assert [e.what for _, e in place.store.events() if e.kind == "node"][-1] == "draining"
    assert place.poke.count == 1


def test_a_newer_time_counts(draining: Draining, place: Place) -> None:
    place.put(a_local_pool(), a_node())
    draining.drain(a_node().id, within_s=1800, by="olga")
    assert draining.drain(a_node().id, within_s=60, by="olga").by == NOW + 60


def test_an_owned_pool_is_drained_node_by_node(draining: Draining, place: Place) -> None:
    pool = a_local_pool()
    place.put(pool, a_node(), a_node("n-2"))
    found = draining.drain(pool.name, within_s=0, by="olga")
    assert len(found.nodes) == 2
    assert found.empty
    assert {use.node.state for use in found.nodes} == {NodeState.CORDONED}
    again = draining.undrain(pool.name, by="olga")
    assert (again.by, again.empty) == (None, False)
    assert {use.node.state for use in again.nodes} == {NodeState.READY}
    assert {use.node.drain_by for use in again.nodes} == {None}


def test_undrain_leaves_alone_what_was_only_cordoned(draining: Draining, place: Place) -> None:
    place.put(a_local_pool(), a_node())
    draining.nodes.cordon(a_node().id, by="olga")
    draining.undrain(a_node().id, by="olga")
    assert draining.nodes.get(a_node().id).node.state is NodeState.CORDONED


def test_a_clouds_pool_is_not_drained_but_told_how(draining: Draining, place: Place) -> None:
    pool = a_burst_pool()
    place.put(pool)
    with pytest.raises(Conflict, match=r"ceilings\.machines"):
        draining.drain(pool.name, within_s=60, by="olga")


def test_an_unknown_name_and_a_lost_node_are_refused(draining: Draining, place: Place) -> None:
    with pytest.raises(NotFound, match="neither a node nor a pool"):
        draining.drain("nothing", within_s=60, by="olga")
    place.put(a_local_pool(), a_node(state=NodeState.LOST))
    with pytest.raises(Conflict, match="is lost"):
        draining.drain(a_node().id, within_s=60, by="olga")
