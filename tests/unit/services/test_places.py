"""Pools, nodes, claims and offers."""

from __future__ import annotations

import pytest

from hybrid.domain.breaker import Breaker
from hybrid.domain.claim import ClaimState
from hybrid.domain.ids import ClaimId, NodeId, PoolName
from hybrid.domain.job import JobState
from hybrid.domain.job_spec import Market
from hybrid.domain.learned import Estimate, Learned
from hybrid.domain.node import NodeState
from hybrid.domain.pool_spec import POOL_SPEC, BurstPool, LocalPool
from hybrid.ports.observation import Known, Observation, Unknown
from hybrid.services.access import Principal
from hybrid.services.claims import Claims
from hybrid.services.errors import Conflict, NotFound, Refused, Stale
from hybrid.services.nodes import Nodes
from hybrid.services.offers import Offered
from hybrid.services.pools import Pools
from tests.doubles.build import (
    NOW,
    a_burst_pool,
    a_claim,
    a_job,
    a_local_pool,
    a_node,
    a_run,
    an_offer,
)
from tests.unit.services.conftest import Place

RACK = PoolName("rack")
CLOUD = PoolName("cloud")


@pytest.fixture
def pools(place: Place) -> Pools:
    return Pools(place.store, place.live, place.clock, place.poke, ("aws",), ("agent",))


@pytest.fixture
def nodes(place: Place) -> Nodes:
    return Nodes(place.store, place.live, place.clock, place.poke)


def rack(**fields: object) -> LocalPool | BurstPool:
    return POOL_SPEC.validate_python({"kind": "local", "name": "rack", **fields})


def test_a_pool_is_made_changed_and_removed(pools: Pools, place: Place) -> None:
    use, new = pools.apply(RACK, rack(), over=None, by="olga")
    assert (new, use.pool.version) == (True, 1)
    use, new = pools.apply(RACK, rack(description="cold"), over=1, by="olga")
    assert (new, use.pool.version, use.pool.spec.description) == (False, 2, "cold")
    pools.remove(RACK, over=2, by="olga")
    assert pools.listing() == ()
    with pytest.raises(NotFound):
        pools.get(RACK)
    assert [e.what for _, e in place.store.events()] == ["applied", "applied", "removed"]
    assert place.poke.count == 3


def test_a_pool_that_was_removed_can_be_made_again(pools: Pools) -> None:
    pools.apply(RACK, rack(), over=None, by="olga")
    pools.remove(RACK, over=None, by="olga")
    use, new = pools.apply(RACK, rack(), over=0, by="olga")
    assert new
    assert [each.pool.name for each in pools.listing()] == ["rack"]
    assert use.pool.spec == rack()


def test_applying_the_same_document_changes_nothing(pools: Pools, place: Place) -> None:
    pools.apply(RACK, rack(), over=None, by="olga")
    use, new = pools.apply(RACK, rack(), over=None, by="olga")
    assert (new, use.pool.version, place.poke.count) == (False, 1, 1)


def test_writing_over_another_version_is_stale(pools: Pools) -> None:
    with pytest.raises(Stale, match="does not exist, not at version 3"):
        pools.apply(RACK, rack(), over=3, by="olga")
    pools.apply(RACK, rack(), over=0, by="olga")
    with pytest.raises(Stale, match="is at version 1, not at version 0"):
        pools.apply(RACK, rack(description="x"), over=0, by="olga")
    with pytest.raises(Stale):
        pools.remove(RACK, over=2, by="olga")


def test_a_document_for_another_name_provider_or_engine_is_refused(pools: Pools) -> None:
    with pytest.raises(Refused) as caught:
        pools.apply(CLOUD, rack(), over=None, by="olga")
    assert caught.value.code == "wrong_name"
    burst = a_burst_pool("cloud", provider="awz").spec
    with pytest.raises(Refused) as caught:
        pools.apply(CLOUD, burst, over=None, by="olga")
    assert caught.value.code == "unknown_provider"
    assert caught.value.errors[0].hint == "did you mean aws?"
    with pytest.raises(Refused) as caught:
        pools.apply(RACK, rack(engine="slurm"), over=None, by="olga")
    assert caught.value.code == "unknown_engine"
    assert caught.value.errors[0].hint == "this server has: agent"


def test_a_pool_in_use_is_neither_removed_nor_turned_into_another(
    pools: Pools, place: Place
) -> None:
    place.put(a_local_pool(), a_node())
    with pytest.raises(Conflict) as caught:
        pools.remove(RACK, over=None, by="olga")
    assert caught.value.detail == (
        "pool rack has 1 node(s), 0 machine(s) and 0 run(s): let them end first"
    )
    burst = a_burst_pool("rack").spec
    with pytest.raises(Conflict) as caught:
        pools.apply(RACK, burst, over=None, by="olga")
    assert caught.value.code == "pool_in_use"
    use, _ = pools.apply(RACK, rack(description="still mine"), over=None, by="olga")
    assert (use.nodes, use.gpus, use.used) == (1, 1, True)


def test_a_pool_with_another_image_forgets_that_its_machines_never_joined(
    pools: Pools, place: Place
) -> None:
    scopes = ("boot:cloud", "boot:cloud/g5.xlarge", "boot:cloudy", "offer:x")
    place.put(a_burst_pool(), *(Breaker.opened(scope, "said", at=NOW) for scope in scopes))

    def left() -> set[str]:
        return set(place.store.load(now=NOW).breakers)

    spec = a_burst_pool().spec
    pools.apply(CLOUD, spec.model_copy(update={"description": "same image"}), over=1, by="olga")
    assert left() == set(scopes)
    template = {"image": "ami-2"}
    pools.apply(CLOUD, a_burst_pool(template=template).spec, over=2, by="olga")
    assert left() == {"boot:cloudy", "offer:x"}


def test_a_burst_pool_with_a_live_claim_keeps_its_region(pools: Pools, place: Place) -> None:
    place.put(a_burst_pool("cloud"), a_job(), a_claim("c1", node_id=None))
    moved = a_burst_pool("cloud", region="eu-west-1").spec
    with pytest.raises(Conflict):
        pools.apply(CLOUD, moved, over=None, by="olga")
    assert pools.get(CLOUD).machines == 1


# --- nodes -------------------------------------------------------------------------------------


def test_a_node_is_cordoned_and_uncordoned_with_words(nodes: Nodes, place: Place) -> None:
    place.put(a_local_pool(), a_node())
    use = nodes.cordon(NodeId("n1"), by="olga", why="new fans")
    assert (use.node.state, use.node.cordon_cause) == (
        NodeState.CORDONED,
        "cordoned by olga: new fans",
    )
    nodes.cordon(NodeId("n1"), by="olga")
    assert place.poke.count == 1
    use = nodes.uncordon(NodeId("n1"), by="olga")
    assert (use.node.state, use.node.cordon_cause) == (NodeState.READY, "")
    assert [e.what for _, e in place.store.events()] == ["cordoned", "uncordoned"]


def test_a_lost_node_is_no_business_of_a_cordon(nodes: Nodes, place: Place) -> None:
    place.put(a_local_pool(), a_node(state=NodeState.LOST))
    with pytest.raises(Conflict) as caught:
        nodes.cordon(NodeId("n1"), by="olga")
    assert caught.value.code == "node_lost"
    with pytest.raises(NotFound):
        nodes.cordon(NodeId("n2"), by="olga")


def test_a_listing_says_who_holds_what(nodes: Nodes, place: Place) -> None:
    place.put(
        a_local_pool(),
        a_node("n1"),
        a_node("n2"),
        a_job("j1", JobState.RUNNING, attempts=1),
        a_run("j1"),
    )
    assert [(use.node.id, [run.id for run in use.runs]) for use in nodes.listing()] == [
        ("n1", ["j1.1"]),
        ("n2", []),
    ]
    assert [run.id for run in nodes.get(NodeId("n1")).runs] == ["j1.1"]


# --- claims and offers ---------------------------------------------------------------------------


def test_claims_of_other_teams_do_not_exist(
    place: Place, ann: Principal, bob: Principal, admin: Principal
) -> None:
    place.put(
        a_burst_pool("cloud"),
        a_job(),
        a_claim("c1", ClaimState.BOOTING, node_id=None),
        a_claim("c2", ClaimState.BOOTING, team="blue", node_id=None, machine_id=None),
    )
    claims = Claims(place.store)
    assert [claim.id for claim in claims.listing(ann)] == ["c1"]
    assert [claim.id for claim in claims.listing(bob)] == ["c2"]
    assert {claim.id for claim in claims.listing(admin)} == {"c1", "c2"}
    assert claims.listing(admin, states=[ClaimState.GONE]) == ()
    assert claims.get(ann, ClaimId("c1")).team == "red"
    with pytest.raises(NotFound):
        claims.get(bob, ClaimId("c1"))


class _Observer:
    def __init__(self) -> None:
        self.ignored_offers = {"aws": (("cloud/p9", "no such type"),)}


def test_offers_are_those_last_seen_with_what_is_ignored_and_unknown() -> None:
    spot, dear = an_offer(), an_offer(market=Market.ON_DEMAND)
    observation = Observation(
        at=NOW,
        heard_since=NOW,
        offers={"aws": Known((spot, dear), NOW), "gcp": Unknown("timed out", NOW)},
    )
    seen = Offered(lambda: observation, _Observer()).seen()
    assert [offer.market for offer in seen.usable] == ["on_demand", "spot"]
    assert seen.ignored == (("cloud/p9", "no such type"),)
    assert seen.unknown == (("gcp", "timed out"),)


def test_an_offer_tells_the_breaker_before_it_that_is_open_longest() -> None:
    spot, dear = an_offer(), an_offer(market=Market.ON_DEMAND)
    observation = Observation(at=NOW, heard_since=NOW, offers={"aws": Known((spot, dear), NOW)})
    zone = Breaker.opened("zone:aws/us-east-1a", "no capacity", at=NOW)
    own = Breaker.opened(f"offer:{spot.id}", "sold out", at=NOW + 100)
    elsewhere = Breaker.opened("zone:aws/us-east-1b", "no capacity", at=NOW + 500)
    breakers = {each.scope: each for each in (own, zone, elsewhere)}
    seen = Offered(lambda: observation, _Observer(), lambda: breakers).seen()
    assert seen.closed == {spot.id: own, dear.id: zone}
    assert Offered(lambda: observation, _Observer()).seen().closed == {}


def test_an_offer_tells_how_long_machines_of_its_pool_took_to_join() -> None:
    spot = an_offer()
    observation = Observation(at=NOW, heard_since=NOW, offers={"aws": Known((spot,), NOW)})
    learned = Learned(boot_s={spot.pool: Estimate(47.0, 3)})
    seen = Offered(lambda: observation, _Observer(), dict, lambda: learned).seen()
    assert [offer.boot_s for offer in seen.usable] == [47.0]
    assert Offered(lambda: observation, _Observer()).seen().usable == (spot,)


def test_before_the_first_look_offers_are_unknown_and_not_none() -> None:
    seen = Offered(lambda: None, _Observer()).seen()
    assert (seen.usable, seen.unknown) == ((), (("offers", "this server has not looked yet"),))


@pytest.mark.parametrize(
    ("url", "warned"),
    [("file:///srv/checkpoints", True), ("", True), ("s3://bucket/x", False), ("gs://b", False)],
)
def test_a_clouds_pool_is_warned_of_checkpoints_in_a_folder_of_the_server(
    place: Place, url: str, warned: bool
) -> None:
    pools = Pools(
        place.store, place.live, place.clock, place.poke, ("aws",), ("agent",), checkpoint_url=url
    )
    use, _ = pools.apply(CLOUD, a_burst_pool().spec, over=None, by="olga")
    assert bool(use.warnings) == warned
    assert all("set checkpoint_url to a bucket" in words for words in use.warnings)
    assert pools.apply(RACK, rack(), over=None, by="olga")[0].warnings == ()
