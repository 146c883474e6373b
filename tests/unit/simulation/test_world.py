"""The made-up cloud and its machines: what they do without anybody's telling."""

from __future__ import annotations

import pytest

from hybrid.domain.claim import ClaimState
from hybrid.domain.ids import NodeId
from hybrid.domain.job_spec import Market
from hybrid.ports.capacity import BootInfo, Machine, MachineState
from hybrid.ports.errors import CapacityUnavailable, OutcomeUnknown, QuotaExceeded
from hybrid.simulation.clock import SimClock
from hybrid.simulation.cloud import SimCloud
from hybrid.simulation.world import SimWorld
from tests.doubles.build import NOW, a_burst_pool, a_claim, an_offer
from tests.doubles.sim import a_world

POOL = a_burst_pool(lease={"duration": "10m"}, boot={"expected": "60s"})
BOOT = BootInfo(installation="i", server_url="http://s", checkpoint_url="file:///c")


@pytest.fixture
def world() -> SimWorld:
    return a_world()


def launch(world: SimWorld, claim: str = "c1") -> Machine:
    wanted = a_claim(claim, ClaimState.REQUESTED, offer=an_offer(boot_s=60.0))
    cloud = world.clouds["aws"]
    return cloud.launch(cloud.prepare(wanted, POOL.spec, BOOT), "join")  # type: ignore[arg-type]


def test_a_machine_boots_into_a_node_that_names_its_claim(world: SimWorld) -> None:
    machine = launch(world)
    world.advance(55)
    assert world.engine.inventory() == ()
    world.advance(5)
    (node,) = world.engine.inventory()
    assert (node.claim_id, node.machine_id) == ("c1", machine.id)
    assert [gpu.model for gpu in node.gpus] == ["a10g"]


def test_a_machine_whose_image_is_broken_never_joins(world: SimWorld) -> None:
    world.broken_boots.add("g5.xlarge")
    launch(world)
    world.advance(300)
    assert world.engine.inventory() == ()
    assert len(world.clouds["aws"].running) == 1


def test_a_machine_ends_itself_when_nobody_renews_its_lease(world: SimWorld) -> None:
    machine = launch(world)
    world.advance(600)
    assert len(world.clouds["aws"].running) == 1
    world.advance(5)
    ended = world.clouds["aws"].machines[machine.id]
    assert (ended.state, ended.end_reason) == (MachineState.ENDED, "its lease was over")
    assert not ended.interrupted
    assert world.engine.nodes[NodeId(f"n-{machine.id}")].dead


def test_a_lease_that_was_renewed_lasts_until_then(world: SimWorld) -> None:
    machine = launch(world)
    world.advance(300)
    world.engine.extend_lease(world.node_of(machine.id), NOW + 900, 1)
    world.advance(595)
    assert len(world.clouds["aws"].running) == 1
    world.advance(5)
    assert world.clouds["aws"].running == ()


def test_a_machine_is_taken_when_its_notice_has_run_out(world: SimWorld) -> None:
    cloud, machine = world.clouds["aws"], launch(world)
    world.advance(100)
    cloud.announce(machine.id, 30)
    assert [notice.at for notice in cloud.notices()] == [NOW + 130]
    world.advance(30)
    assert cloud.machines[machine.id].interrupted
    assert cloud.notices() == ()


def test_a_repeated_request_finds_the_machine_it_made(world: SimWorld) -> None:
    cloud = world.clouds["aws"]
    cloud.trouble.lose = 1
    with pytest.raises(OutcomeUnknown):
        launch(world)
    cloud.trouble.empty.add(("us-east-1a", "g5.xlarge", Market.SPOT))
    assert launch(world).claim_id == "c1"  # though there would be no other now
    assert cloud.launches == 1


def test_what_is_not_to_be_had_is_refused_under_the_scope_of_its_breaker(world: SimWorld) -> None:
    cloud = world.clouds["aws"]
    cloud.trouble.empty.add(("us-east-1a", "g5.xlarge", Market.SPOT))
    with pytest.raises(CapacityUnavailable) as empty:
        launch(world)
    cloud.trouble.empty.clear()
    cloud.trouble.quota = 0
    with pytest.raises(QuotaExceeded) as quota:
        launch(world)
    assert empty.value.scope == "offer:cloud/us-east-1a/g5.xlarge/spot"
    assert quota.value.scope == "quota:aws/us-east-1/g5.xlarge/spot"
    assert cloud.running == ()


def test_a_new_machine_may_be_listed_late(world: SimWorld) -> None:
    cloud = world.clouds["aws"]
    cloud.trouble.listing_lag_s = 30.0
    machine = launch(world)
    assert cloud.list_machines() == ()
    world.advance(30)
    assert [listed.id for listed in cloud.list_machines()] == [machine.id]


@pytest.mark.parametrize(("lived_s", "billed_s"), [(0, 60), (60, 60), (90, 90)])
def test_the_bill_counts_whole_seconds_and_a_minute_at_least(
    world: SimWorld, lived_s: int, billed_s: int
) -> None:
    cloud, machine = world.clouds["aws"], launch(world)
    world.advance(lived_s)
    cloud.terminate(machine.id)
    world.advance(1000)
    assert cloud.bill_micros() == -(-1_000_000 * billed_s // 3600)


def test_a_cloud_that_is_deaf_does_nothing(world: SimWorld) -> None:
    cloud, machine = world.clouds["aws"], launch(world)
    cloud.trouble.deaf = True
    for call in (cloud.list_machines, lambda: cloud.terminate(machine.id), lambda: launch(world)):
        with pytest.raises(OutcomeUnknown):
            call()
    assert len(cloud.running) == 1


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        SimClock(NOW).advance(-1)


def test_a_pool_without_a_price_is_ignored_with_the_reason() -> None:
    cloud = SimCloud("aws", SimClock(NOW), {})
    offers = cloud.offers([POOL.spec])  # type: ignore[list-item]
    assert offers.usable == ()
    assert [why for _, why in offers.ignored] == ["no price", "no price"]
