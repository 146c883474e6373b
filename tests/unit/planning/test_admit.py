"""What can never run is told at once, with what to do about it; what may yet run is let in."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from hybrid.domain.ids import PoolName
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.node import Node
from hybrid.domain.offer import Offer
from hybrid.domain.reasons import (
    CannotCheckpoint,
    ClassNotAllowed,
    Contradiction,
    DeadlineInThePast,
    GpuMemoryTooSmall,
    KeptForOthers,
    MayNotLeave,
    NoBudget,
    NoContainerRuntime,
    NoSuchHardware,
    NotAllowedThere,
    Nowhere,
    OverBudget,
    OverJobCost,
    PoolCeiling,
    Reason,
    SwitchedOff,
    TooManyGpusPerNode,
    UnknownGpu,
)
from hybrid.domain.snapshot import Pool
from hybrid.planning.admit import admission, admitted
from hybrid.planning.supply import supply
from policies.loading import parse_policy
from tests.doubles.build import (
    NOW,
    a_burst_pool,
    a_job,
    a_local_pool,
    a_node,
    a_spec,
    an_offer,
    links,
    some_gpus,
)

MONEY = "budgets: [{name: all, limit_usd: 1000}]\n"
RACK = (a_local_pool("rack"),)
A100 = a_node("n1", 4)
T4S = replace(
    a_node("n2", 2, hostname="old-box", links_gbps=links(2, 8.0)),
    gpus=tuple(replace(gpu, memory_gib=14.8) for gpu in some_gpus("n2", 2, "t4")),
)


def asked(
    *nodes: Node,
    pools: tuple[Pool, ...] = RACK,
    offers: tuple[Offer, ...] = (),
    text: str = MONEY,
    unknown: tuple[str, ...] = (),
    **fields: Any,
) -> Reason | None:
    nodes = nodes or (A100, T4S)
    policy = parse_policy(text)
    return admission(
        a_spec(**fields), "red", nodes, pools, offers, policy, NOW, user="ann", unknown=unknown
    )


def gpu(**fields: Any) -> dict[str, Any]:
    count = fields.pop("gpus", 1)
    return {"gpus": count, "gpu": fields}


def test_what_fits_somewhere_is_let_in():
    assert asked() is None
    assert asked(resources=gpu(models=["t4"])) is None
    assert asked(resources=gpu(gpus=4, link="nvlink")) is None
    assert asked(resources={"gpus": 0, "cpus": 64}) is None


def test_an_unknown_gpu_is_told_with_the_nearest_names_and_what_there_is():
    reason = asked(resources=gpu(models=["t4", "h100x"]))
    assert isinstance(reason, UnknownGpu)
    assert reason.name == "h100x"
    assert "h100" in reason.nearest
    assert reason.available == ("a100-sxm4-80gb", "t4")


def test_a_gpu_the_catalogue_does_not_know_is_accepted_where_a_pool_has_it():
    odd = replace(a_node("n3"), gpus=some_gpus("n3", 1, "tpu-9"))
    assert asked(odd, resources=gpu(models=["tpu-9"])) is None


def test_a_gpu_that_nobody_has_is_told_with_what_there_is():
    assert asked(resources=gpu(models=["h100"])) == NoSuchHardware("h100", ("a100-sxm4-80gb", "t4"))


def test_more_gpus_than_any_node_has_are_told_with_the_largest_and_the_gang_that_could():
    reason = asked(resources=gpu(gpus=6))
    assert reason == TooManyGpusPerNode(6, 4, "n1 in pool rack")
    assert "a gang could do it: nodes: 2, gpus: 3" in str(reason)
    assert asked(resources=gpu(gpus=4, models=["t4"])) == TooManyGpusPerNode(
        4, 2, "old-box in pool rack"
    )


def test_memory_above_any_gpu_is_told_with_the_most_there_is():
    assert asked(resources=gpu(memory=100)) == GpuMemoryTooSmall(100, 79)
    assert asked(resources=gpu(memory=80)) is None


def test_a_link_that_none_has_is_told_with_what_they_have():
    reason = asked(T4S, resources=gpu(gpus=2, link="nvlink"))
    assert isinstance(reason, NoSuchHardware)
    assert reason.wanted == "link between GPUs nvlink"


def test_a_cpu_architecture_that_none_has_is_told():
    resources = {"gpus": 1, "architecture": "aarch64"}
    assert asked(resources=resources) == NoSuchHardware("CPU architecture aarch64", ("x86_64",))


def test_a_machine_without_gpus_has_no_gpu():
    assert asked(a_node("n1", 0)) == NoSuchHardware("a GPU", ())


def test_each_place_tells_its_own_reason_when_they_differ():
    reason = asked(
        A100,
        replace(T4S, cpus=2),
        resources={"gpus": 1, "cpus": 8, "gpu": {"min_compute_capability": "9.0"}},
    )
    assert isinstance(reason, Nowhere)
    assert reason.because == (
        "n1 in pool rack: compute capability: wants 9.0, has 8.0",
        "old-box in pool rack: CPU cores: wants 8, has 2",
    )


def test_a_cpu_job_too_large_for_all_is_told_why():
    assert "CPU cores: wants 500, has 64" in str(asked(resources={"gpus": 0, "cpus": 500}))


def test_only_the_first_few_places_tell_their_own_reason():
    nodes = [a_node(f"n{i}", 1, cpus=i + 1) for i in range(9)]
    reason = asked(*nodes, resources={"gpus": 1, "cpus": 500})
    assert isinstance(reason, NoSuchHardware)
    reason = asked(*nodes, resources={"gpus": 0, "cpus": 500})
    assert isinstance(reason, Nowhere)
    assert len(reason.because) == 7
    assert reason.because[-1] == "and 3 more"


def test_places_whose_devices_would_do_are_told_first():
    nodes = [a_node(f"n{i}", 1, cpus=i + 1) for i in range(9)]
    kept = a_local_pool("zoo")
    far = replace(a_node("z", 1, cpus=600), pool=PoolName("zoo"))
    reason = asked(
        *nodes,
        far,
        pools=(*RACK, kept),
        resources={"gpus": 0, "cpus": 500, "memory": 1},
        where={"pools": ["rack"]},
    )
    assert isinstance(reason, Contradiction)
    assert "z in pool zoo: pool zoo is not allowed by the job; n0" in reason.places


def test_an_image_needs_a_container_runtime_somewhere():
    assert asked(image="python:3.12") == NoContainerRuntime("python:3.12")
    assert asked(replace(A100, container_runtimes=("podman",)), image="python:3.12") is None


def test_a_sick_gpu_may_recover():
    sick = replace(A100, gpus=tuple(replace(g, healthy=False) for g in A100.gpus))
    assert asked(sick, resources=gpu(gpus=4)) is None


def test_a_gang_needs_as_many_machines_in_one_pool():
    two = (A100, a_node("n9", 4))
    assert asked(*two, resources={"nodes": 2, "gpus": 4}) is None
    assert asked(*two, resources={"nodes": 3, "gpus": 4}) == NoSuchHardware(
        "3 such machines", ("2 in pool rack",)
    )


def test_machines_of_two_pools_make_no_gang():
    pools = (a_local_pool("rack"), a_local_pool("lab"))
    other = a_node("n9", 4, pool="lab")
    assert isinstance(asked(A100, other, pools=pools, resources={"nodes": 2}), Nowhere)


def test_a_class_that_does_not_exist_or_is_not_the_teams_is_told():
    assert asked(priority="vip") == ClassNotAllowed("vip", ("low", "normal", "high", "urgent"))
    text = "teams: {red: {classes: [low]}}"
    assert asked(priority="high", text=text) == ClassNotAllowed("high", ("low",))


def test_a_deadline_in_the_past_is_told():
    at = datetime.fromtimestamp(NOW - 90, UTC)
    assert asked(deadline=at) == DeadlineInThePast(90)
    assert asked(deadline=datetime.fromtimestamp(NOW + 1, UTC)) is None


def test_a_job_that_was_accepted_outlives_its_class_and_its_deadline():
    there = supply((A100,), RACK, ())
    spec = a_spec(priority="gone", deadline=datetime.fromtimestamp(NOW - 90, UTC))
    policy = parse_policy(MONEY)
    assert admitted(a_job(spec=spec), "red", there, policy, NOW) is None
    wide = a_job(spec=a_spec(resources=gpu(gpus=9)))
    assert isinstance(admitted(wide, "red", there, policy, NOW), TooManyGpusPerNode)


def test_a_pool_no_node_has_joined_yet_refuses_nothing_on_its_account():
    policy = parse_policy("")
    spec = a_spec(resources=gpu(gpus=8, models=["h100"]))
    assert admission(spec, "red", (), RACK, (), policy, NOW) is None
    assert admission(spec, "red", (), (), (), policy, NOW) is None
    typo = a_spec(resources=gpu(models=["h100x"]))
    assert isinstance(admission(typo, "red", (), (), (), policy, NOW), UnknownGpu)


def test_an_engine_that_could_not_be_read_refuses_nothing():
    assert asked(resources=gpu(gpus=6), unknown=("engine:agent",)) is None
    assert isinstance(asked(resources=gpu(gpus=6), unknown=("engine:slurm",)), TooManyGpusPerNode)


def test_a_removed_pool_counts_for_nothing():
    pools = (a_local_pool("rack"), replace(a_local_pool("lab"), removed=True))
    assert asked(pools=pools, where={"pools": ["lab"]}) == NotAllowedThere(
        "pool", "rack", "the job"
    )


def test_an_empty_pool_the_job_does_not_name_is_no_hope():
    pools = (a_local_pool("rack"), a_local_pool("lab"))
    reason = asked(pools=pools, where={"pools": ["attic"]})
    assert isinstance(reason, Nowhere)
    assert reason.because[-1] == "pool lab: pool lab is not allowed by the job"


def test_reserved_cards_are_no_place_for_others():
    text = MONEY + "placement: {reserved: [{models: [a100], teams: [blue]}]}"
    assert asked(A100, text=text) == KeptForOthers("a100-sxm4-80gb", ("team blue",))
    assert asked(text=text) is None


BURST = (a_local_pool("rack"), a_burst_pool("cloud", machine_types=["p5.48xlarge", "g5g.xlarge"]))


def test_a_burst_pool_counts_by_its_machine_types_although_nothing_is_listed():
    plain = {"checkpoint": {"enabled": True}}
    assert asked(pools=BURST, resources=gpu(gpus=8, models=["h100"]), **plain) is None
    assert asked(pools=BURST, resources=gpu(gpus=8, link="nvlink"), **plain) is None
    arm = {"gpus": 1, "architecture": "aarch64"}
    assert asked(pools=BURST, resources=arm, **plain) is None


def in_cloud(text: str = MONEY, pool: dict[str, Any] | None = None, **fields: Any) -> Reason | None:
    """Eight H100s, which only the cloud has, on demand."""
    document = {"machine_types": ["p5.48xlarge"], "markets": ["on_demand"], **(pool or {})}
    pools = (a_local_pool("rack"), a_burst_pool("cloud", **document))
    resources = {"gpus": 8, "gpu": {"models": ["h100"]}, "nodes": fields.pop("nodes", 1)}
    return asked(T4S, pools=pools, text=text, resources=resources, **fields)


def words(reason: Reason | None) -> str:
    if isinstance(reason, Contradiction):
        return reason.places
    assert isinstance(reason, Nowhere)
    return reason.because[-1]


CLOUD = "p5.48xlarge (on_demand) in pool cloud"


def test_hardware_that_only_a_cloud_has_needs_the_way_there_to_be_open():
    assert in_cloud() is None
    local = "old-box in pool rack: GPUs: wants 8, has 2"
    never = in_cloud(where={"burst": "never"})
    assert isinstance(never, Contradiction)
    assert never.paths == ("resources.gpus", "where.burst")
    assert never.places == str(Nowhere((local, f"{CLOUD}: {MayNotLeave('the job')}")))
    off = MONEY + "burst: {enabled: false}"
    assert words(in_cloud(off)) == f"{CLOUD}: {SwitchedOff('burst')}"
    elsewhere = {"regions": ["eu-west-1"]}
    assert words(in_cloud(where=elsewhere)).endswith("region us-east-1 is not allowed by the job")


def test_without_a_budget_that_covers_the_job_the_cloud_is_closed():
    assert words(in_cloud("")) == f"{CLOUD}: {NoBudget('red')}"
    other = "budgets: [{name: b, scope: team, subject: blue, limit_usd: 100}]"
    assert words(in_cloud(other)) == f"{CLOUD}: {NoBudget('red')}"
    own = "budgets: [{name: b, scope: user, subject: ann, limit_usd: 100}]"
    assert in_cloud(own) is None


def test_a_gang_above_the_ceiling_of_the_pool_never_fits_it():
    assert in_cloud(nodes=10) is None
    assert words(in_cloud(nodes=11)) == f"{CLOUD}: {PoolCeiling('cloud', '10 machines')}"


def test_a_spot_pool_is_closed_to_a_job_that_would_lose_its_work():
    spot = {"markets": ["spot"]}
    assert words(in_cloud(pool=spot)).endswith(str(CannotCheckpoint()))
    assert in_cloud(pool=spot, checkpoint={"enabled": True}) is None


def test_a_worst_case_above_the_whole_limit_never_fits_it():
    offer = an_offer(
        machine_type="p5.48xlarge",
        market="on_demand",
        gpus=8,
        gpu_model="h100-sxm5-80gb",
        gpu_memory_gib=79.6,
        links_gbps=links(8, 450.0),
        cpus=192,
        memory_gib=2048,
        price_ceiling_micros_per_hour=36_000_000,
        quota_left=0,
    )
    # 60 s of slack, 1800 s of lease and 120 s of end tail at a cent a second
    needed = 19_800_000
    assert in_cloud("budgets: [{name: b, limit_usd: 19.80}]", offers=(offer,)) is None
    assert words(in_cloud("budgets: [{name: b, limit_usd: 19.79}]", offers=(offer,))).endswith(
        str(OverBudget("b", needed, 19_790_000))
    )
    assert words(in_cloud(offers=(offer,), max_cost=10)).endswith(
        str(OverJobCost(needed, 10_000_000))
    )


def test_a_machine_type_nobody_describes_refuses_nothing_while_the_way_there_is_open():
    odd = {"machine_types": ["x99.huge"]}
    assert in_cloud(pool=odd) is None
    assert in_cloud("", pool=odd) == Nowhere(
        (
            f"what is there: {NoSuchHardware('h100', ('t4',))}",
            f"pool cloud: {NoBudget('red')}",
        )
    )


def test_a_listed_machine_type_need_not_be_in_the_catalogue():
    offer = an_offer(machine_type="x99.huge", market="on_demand")
    reason = in_cloud(pool={"machine_types": ["x99.huge"]}, offers=(offer,))
    assert reason == NoSuchHardware("h100", ("a10g", "t4"))


def test_the_reason_is_a_sentence_for_the_user():
    spec = JobSpec(command=("train",), resources={"gpus": 16})
    reason = admission(spec, "red", (A100, T4S), RACK, (), parse_policy(""), NOW)
    assert str(reason) == (
        "16 GPUs on one node; the largest node has 4 (n1 in pool rack);"
        " a gang could do it: nodes: 4, gpus: 4"
    )


@pytest.mark.parametrize("count", [1, 3])
def test_equal_nodes_are_one_site(count: int):
    nodes = [a_node(f"n{i}", 2) for i in range(count)]
    there = supply(nodes, RACK, ())
    assert len(there.sites) == 1
    assert there.sites[0].most == count
    extra = "" if count == 1 else " and 2 like it"
    assert there.sites[0].label == f"n0{extra} in pool rack"
