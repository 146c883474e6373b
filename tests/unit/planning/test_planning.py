"""Rules of the planner that scenarios do not show: long queues, shares, gangs, quotas, quotes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hybrid.domain.ids import JobId, NodeId
from hybrid.domain.plan import (
    CordonNode,
    Decision,
    EndClaim,
    FailJob,
    OpenClaim,
    Place,
    Plan,
    RenewLease,
    Stop,
    Verdict,
)
from hybrid.domain.snapshot import Snapshot
from hybrid.planning.lint import lint
from hybrid.planning.planner import plan
from hybrid.planning.quote import quote
from policies.document import PolicyDocument
from tests.doubles.apply_plan import apply_plan
from tests.scenarios.world import build

CLOUD: dict[str, Any] = {
    "pools": {
        "home": {},
        "cloud": {"kind": "burst", "ceilings": {"machines": 50, "usd_per_hour": 900}},
    },
    "offers": {"od": {"pool": "cloud", "type": "m", "price": 4}},
    "policy": {"budgets": [{"name": "all", "limit_usd": 1000}]},
}


SWITCHED = {"links": "nvswitch"}
BOOTING = {"state": "booting", "asked": "-1m"}


def planned(world: dict[str, Any]) -> tuple[Snapshot, PolicyDocument, Plan]:
    """The plan of a world, clean and stable."""
    snapshot, policy = build(world)
    made = plan(snapshot, policy, 1)
    assert lint(snapshot, made) == ()
    if made.complete:
        assert plan(apply_plan(snapshot, made), policy, 1).actions == ()
    return snapshot, policy, made


def placements(made: Plan) -> dict[str, tuple[str, ...]]:
    """Which nodes each placed job gets."""
    return {
        str(a.run.job_id): tuple(str(n) for n in a.run.node_ids)
        for a in made.actions
        if isinstance(a, Place)
    }


def decision(made: Plan, job: str) -> Decision:
    return next(d for d in made.decisions if d.job_id == job)


# --- long queues --------------------------------------------------------------------------------


def long_queue(budget: int = 200_000) -> tuple[Snapshot, PolicyDocument]:
    world = {
        **CLOUD,
        "nodes": {f"n{i}": {"gpus": 2} for i in range(4)},
        "jobs": {
            "a": {"run": "2h", "value": 3, "count": 300},
            "b": {"run": "1h", "value": 1, "gpus": 2, "count": 150, "where": {"burst": "never"}},
        },
    }
    snapshot, policy = build(world)
    return replace(snapshot, evaluation_budget=budget), policy


def test_a_long_queue_fills_home_and_then_the_cloud_up_to_its_ceiling() -> None:
    snapshot, policy = long_queue()
    made = plan(snapshot, policy, 1)
    assert lint(snapshot, made) == ()
    asked = [a for a in made.actions if isinstance(a, OpenClaim)]
    gpus = sum(len(s.gpu_ids) for a in made.actions if isinstance(a, Place) for s in a.run.slots)
    assert (len(asked), gpus) == (50, 8)
    assert plan(apply_plan(snapshot, made), policy, 1).actions == ()


def test_a_plan_says_when_its_evaluation_budget_ran_out_and_is_valid_all_the_same() -> None:
    snapshot, policy = long_queue(budget=300)
    made = plan(snapshot, policy, 1)
    assert not made.complete
    assert made.evaluations > 300
    assert lint(snapshot, made) == ()
    assert any(isinstance(action, OpenClaim) for action in made.actions)


def test_jobs_of_one_class_share_their_alternatives() -> None:
    snapshot, policy = long_queue()
    made = plan(snapshot, policy, 1)
    waiting = [d for d in made.decisions if d.verdict is Verdict.WAIT and d.job_id.startswith("a-")]
    last = [d.alternatives[-1] for d in waiting]
    assert len({id(alternative) for alternative in last}) == 1


# --- shares, gangs, slots -----------------------------------------------------------------------


def test_shares_of_one_gpu_fill_it_before_they_open_another() -> None:
    _, _, made = planned(
        {"nodes": {"n1": {"gpus": 2}}, "jobs": {"half": {"share": 0.5, "count": 3, "run": "1h"}}}
    )
    devices = [a.run.slots[0].gpu_ids[0] for a in made.actions if isinstance(a, Place)]
    assert sorted(devices) == ["GPU-n1-0", "GPU-n1-0", "GPU-n1-1"]


def test_a_share_goes_where_a_running_share_leaves_the_tightest_room() -> None:
    _, _, made = planned(
        {
            "nodes": {"n1": {"gpus": 3}},
            "jobs": {
                "small": {"share": 0.2, "at": "n1:0", "run": "3h"},
                "large": {"share": 0.6, "at": "n1:1", "run": "3h"},
                "next": {"share": 0.4, "run": "1h"},
            },
        }
    )
    run = next(a.run for a in made.actions if isinstance(a, Place))
    assert (run.slots[0].gpu_ids, run.slots[0].share) == (("GPU-n1-1",), 0.4)


def test_a_share_that_outlasts_its_device_waits_if_that_is_promised_to_another() -> None:
    _, _, made = planned(
        {
            "nodes": {"n1": {"gpus": 1}},
            "jobs": {
                "runs": {"share": 0.5, "at": "n1:0", "run": "1h", "started": "-30m"},
                "whole": {"run": "1h", "priority": "high"},
                "short": {"share": 0.5, "run": "20m"},
                "long": {"share": 0.5, "run": "5h"},
            },
        }
    )
    assert placements(made) == {"short": ("n1",)}


def test_a_gang_waits_for_the_first_instant_at_which_enough_nodes_are_free_together() -> None:
    _, _, made = planned(
        {
            "nodes": {f"n{i}": {"gpus": 1} for i in range(3)},
            "jobs": {
                "x": {"run": "1h", "at": "n0", "started": "0s"},
                "y": {"run": "2h", "at": "n1", "started": "0s"},
                "z": {"run": "3h", "at": "n2", "started": "0s"},
                "pair": {"nodes": 2, "run": "1h", "value": 1},
                "other": {"nodes": 2, "run": "1h", "value": 1, "submitted": "-1s"},
            },
        }
    )
    snapshot_now = made.at
    home = next(a for a in decision(made, "pair").alternatives if a.option == "pool:home")
    assert home.finish_at == pytest.approx(snapshot_now + 3 * 3600)
    behind = next(a for a in decision(made, "other").alternatives if a.option == "pool:home")
    assert behind.finish_at == pytest.approx(snapshot_now + 4 * 3600)


def test_a_gang_prefers_a_block_when_no_rack_has_room() -> None:
    _, _, made = planned(
        {
            "nodes": {
                "a": {"rack": "r1", "block": "x"},
                "b": {"rack": "r2", "block": "y"},
                "c": {"rack": "r3", "block": "y"},
            },
            "jobs": {"gang": {"nodes": 2, "run": "1h"}},
        }
    )
    assert placements(made) == {"gang": ("b", "c")}


def test_machines_of_a_gang_that_are_all_ready_get_it() -> None:
    _, _, made = planned(
        {
            **CLOUD,
            "nodes": {},
            "claims": {
                f"c{i}": {"offer": "od", "job": "gang", "gang": "g", "idle": "1s"} for i in (1, 2)
            },
            "jobs": {"gang": {"nodes": 2, "run": "1h", "claims_opened": 2}},
        }
    )
    assert placements(made) == {"gang": ("n-c1", "n-c2")}


def test_a_gang_waits_while_one_of_its_machines_boots() -> None:
    _, _, made = planned(
        {
            **CLOUD,
            "nodes": {},
            "claims": {
                "c1": {"offer": "od", "job": "gang", "gang": "g", "idle": "1s"},
                "c2": {"offer": "od", "job": "gang", "gang": "g", **BOOTING},
            },
            "jobs": {"gang": {"nodes": 2, "run": "1h", "claims_opened": 2}},
        }
    )
    assert made.actions == ()
    assert decision(made, "gang").verdict is Verdict.BURST


def test_what_is_left_of_a_gang_that_lost_a_machine_ends_and_it_is_asked_for_anew() -> None:
    _, _, made = planned(
        {
            **CLOUD,
            "nodes": {},
            "claims": {"c1": {"offer": "od", "job": "gang", "gang": "g", **BOOTING}},
            "jobs": {"gang": {"nodes": 2, "run": "1h", "claims_opened": 2}},
        }
    )
    assert [a.claim_id for a in made.actions if isinstance(a, EndClaim)] == ["c1"]
    opened = [a.claim for a in made.actions if isinstance(a, OpenClaim)]
    assert [claim.id for claim in opened] == ["c-gang-1-0-2", "c-gang-1-1-2"]
    assert len({claim.gang for claim in opened}) == 1


def test_a_cpu_job_takes_no_gpu_and_a_node_without_any_first() -> None:
    _, _, made = planned(
        {"nodes": {"big": {"gpus": 4}, "small": {"gpus": 0}}, "jobs": {"cpu": {"gpus": 0}}}
    )
    run = next(a.run for a in made.actions if isinstance(a, Place))
    assert (run.node_ids, run.slots[0].gpu_ids, run.gpu_model) == (("small",), (), "")


def test_cores_can_be_what_a_job_waits_for() -> None:
    _, _, made = planned(
        {
            "nodes": {"n1": {"gpus": 4, "cpus": 4}},
            "jobs": {"x": {"at": "n1:0", "cpus": 3, "run": "1h"}, "y": {"cpus": 2, "run": "1h"}},
        }
    )
    assert decision(made, "y").verdict is Verdict.WAIT


def test_a_job_waits_for_a_faster_gpu_if_that_is_cheaper_than_a_slow_one_now() -> None:
    world: dict[str, Any] = {
        "nodes": {"slow": {"model": "t4"}, "fast": {"model": "h100-sxm5-80gb"}},
        "jobs": {
            "x": {"at": "fast", "run": "1h", "started": "-55m"},
            "y": {"run": "2h", "value": 5},
        },
    }
    _, _, made = planned(world)
    assert placements(made) == {}
    world["jobs"]["x"]["started"] = "0s"
    world["jobs"]["x"]["run"] = "90h"
    world["jobs"]["x"]["walltime"] = "100h"
    _, _, made = planned(world)
    assert placements(made) == {"y": ("slow",)}


def test_packing_fills_the_fullest_node_and_spreading_the_emptiest() -> None:
    world: dict[str, Any] = {
        "nodes": {"a": {"gpus": 2}, "b": {"gpus": 2}},
        "jobs": {"x": {"at": "b:0", "run": "5h"}, "y": {"run": "1h"}},
    }
    _, _, made = planned(world)
    assert placements(made) == {"y": ("b",)}


# --- clouds -------------------------------------------------------------------------------------


def waiting_world(**offer: Any) -> dict[str, Any]:
    return {
        **CLOUD,
        "nodes": {"n1": {"gpus": 1}},
        "offers": {"od": {"pool": "cloud", "type": "m", "price": 4, **offer}},
        "jobs": {
            "x": {"run": "9h", "at": "n1"},
            "y": {"run": "1h", "value": 9, "count": 2},
        },
    }


def test_a_quota_counts_machines_asked_for_since_it_was_listed() -> None:
    world = waiting_world(quota=1)
    _, _, made = planned(world)
    assert len([a for a in made.actions if isinstance(a, OpenClaim)]) == 1
    world["claims"] = {"c1": {"offer": "od", "state": "requested", "job": "y-1", "asked": "-1s"}}
    _, _, made = planned(world)
    assert [a for a in made.actions if isinstance(a, OpenClaim)] == []


def test_zones_at_one_price_are_one_class_and_the_next_is_asked_when_the_first_is_full() -> None:
    world = waiting_world(quota=1)
    world["pools"] = {
        "home": {},
        "cloud": {"kind": "burst", "zones": [{"name": "us-east-1a"}, {"name": "us-east-1b"}]},
    }
    world["offers"]["b"] = {"pool": "cloud", "type": "m", "price": 4, "zone": "us-east-1b"}
    _, _, made = planned(world)
    asked = sorted(a.claim.offer.zone for a in made.actions if isinstance(a, OpenClaim))
    assert asked == ["us-east-1a", "us-east-1b"]


@pytest.mark.parametrize(
    ("scope", "closed"),
    [
        ("provider:aws", True),
        ("account:aws", True),
        ("zone:aws/us-east-1a", True),
        ("zone:aws/us-east-1b", False),
        ("offer:cloud/us-east-1a/p4d.24xlarge/on_demand", True),
        ("quota:aws/us-east-1/P/on_demand", True),
        ("quota:aws/us-east-1/*/*", True),
        ("quota:aws/us-east-1/P/spot", False),
        ("quota:aws/us-east-1/G and VT/on_demand", False),
        ("quota:aws/us-west-2/P/on_demand", False),
        ("quota:gone", False),
    ],
)
def test_a_breaker_closes_what_its_scope_covers(scope: str, closed: bool) -> None:
    world = waiting_world(type="p4d.24xlarge", family="P")
    world["breakers"] = {scope: {"for": "20s"}}
    _, _, made = planned(world)
    assert (decision(made, "y-1").verdict is Verdict.WAIT) == closed


def test_a_probe_under_way_keeps_a_half_open_breaker_closed_to_others() -> None:
    world = waiting_world()
    world["breakers"] = {"provider:aws": {"for": "-5s"}}
    world["claims"] = {"c1": {"offer": "od", "state": "requested", "job": "y-1", "asked": "-1s"}}
    _, _, made = planned(world)
    assert [a for a in made.actions if isinstance(a, OpenClaim)] == []


def test_a_gang_is_no_probe() -> None:
    world = waiting_world()
    world["breakers"] = {"provider:aws": {"for": "-5s"}}
    world["jobs"]["y"] = {"run": "1h", "value": 9, "nodes": 2}
    _, _, made = planned(world)
    assert [a for a in made.actions if isinstance(a, OpenClaim)] == []


def test_an_offer_without_a_sensible_price_is_not_taken() -> None:
    snapshot, policy = build(waiting_world())
    for price in (0, -1):
        offers = tuple(replace(o, price_micros_per_hour=price) for o in snapshot.offers)
        made = plan(replace(snapshot, offers=offers), policy, 1)
        assert not any(isinstance(action, OpenClaim) for action in made.actions)


def test_boot_times_that_were_measured_count() -> None:
    world = waiting_world()
    world["learned"] = {"boot": {"cloud": "20h"}}
    _, _, made = planned(world)
    assert decision(made, "y-1").verdict is Verdict.WAIT


def test_a_job_that_fits_nowhere_at_home_bursts_even_if_nothing_hurries() -> None:
    world = waiting_world()
    world["jobs"] = {"big": {"run": "1h", "value": 0, "models": ["h100"]}}
    world["offers"]["od"]["model"] = "h100-sxm5-80gb"
    _, _, made = planned(world)
    assert decision(made, "big").verdict is Verdict.BURST


def test_a_job_that_fits_nowhere_now_says_what_keeps_it_from_the_cloud() -> None:
    world = waiting_world()
    world["jobs"] = {"big": {"run": "1h", "models": ["h100"]}}
    world["offers"]["od"]["model"] = "h100-sxm5-80gb"
    world["charged"] = {"all": 999}
    _, _, made = planned(world)
    told = decision(made, "big")
    assert (told.verdict, told.reason and told.reason.code) == (Verdict.WAIT, "over_budget")


def test_a_machine_of_another_teams_budget_is_not_used() -> None:
    world = waiting_world()
    world["jobs"]["y"].update(count=1, value=1, team="ops", where={"markets": ["spot"]})
    world["claims"] = {"c1": {"offer": "od", "idle": "1s", "team": "ml"}}
    _, _, made = planned(world)
    assert placements(made) == {}


def test_machines_of_a_removed_pool_end_when_idle_and_nothing_new_is_asked_of_it() -> None:
    snapshot, policy = build({**waiting_world(), "claims": {"c1": {"offer": "od", "idle": "1s"}}})
    pools = {n: replace(p, removed=n == "cloud") for n, p in snapshot.pools.items()}
    made = plan(replace(snapshot, pools=pools), policy, 1)
    assert [type(action) for action in made.actions] == [EndClaim]
    assert decision(made, "y-1").verdict is Verdict.WAIT


def test_an_idle_machine_ends_when_its_lease_does() -> None:
    world = {**CLOUD, "nodes": {}, "claims": {"c1": {"offer": "od", "idle": "1s", "lease": "2m"}}}
    _, _, made = planned(world)
    assert [a.words for a in made.actions if isinstance(a, EndClaim)] == [
        "idle at the end of its lease"
    ]


def test_an_idle_machine_is_paid_for_before_it_is_given_to_a_job() -> None:
    world = waiting_world()
    world["claims"] = {"c1": {"offer": "od", "idle": "1s", "lease": "3m"}}
    world["jobs"]["y"]["count"] = 1
    _, _, made = planned(world)
    assert [type(action) for action in made.actions] == [RenewLease, Place]


# --- preemption ---------------------------------------------------------------------------------


def preempting_world() -> dict[str, Any]:
    return {
        "nodes": {"n1": {"gpus": 2}, "n2": {"gpus": 2}},
        "policy": {"preemption": {"min_run": "1m"}},
        "jobs": {
            "old": {"run": "9h", "at": "n1:0", "started": "-5h"},
            "young": {"run": "9h", "at": "n1:1", "started": "-10m"},
            "wide": {"run": "9h", "gpus": 2, "at": "n2:0+1", "started": "-20m"},
        },
    }


def test_the_victim_is_the_one_that_loses_least() -> None:
    world = preempting_world()
    world["jobs"]["u"] = {"run": "30m", "priority": "urgent"}
    _, _, made = planned(world)
    assert [a.run_id for a in made.actions if isinstance(a, Stop)] == ["young.1"]


def test_victims_that_turn_out_needless_are_spared() -> None:
    world = preempting_world()
    world["jobs"]["u"] = {"run": "30m", "priority": "urgent", "gpus": 2}
    _, _, made = planned(world)
    assert [a.run_id for a in made.actions if isinstance(a, Stop)] == ["wide.1"]


def test_a_gang_takes_as_many_nodes_as_it_needs() -> None:
    world = preempting_world()
    world["jobs"]["u"] = {"run": "30m", "priority": "urgent", "gpus": 2, "nodes": 2, "value": 900}
    _, _, made = planned(world)
    stopped = [a.run_id for a in made.actions if isinstance(a, Stop)]
    assert sorted(stopped) == ["old.1", "wide.1", "young.1"]
    assert len([b for b in made.bundles if b.id == "preempt:u"]) == 1


def test_nobody_is_stopped_for_a_class_that_does_not_preempt() -> None:
    world = preempting_world()
    world["jobs"]["u"] = {"run": "30m", "priority": "high", "value": 500}
    _, _, made = planned(world)
    assert made.actions == ()


def test_nobody_is_stopped_where_preemption_is_switched_off() -> None:
    world = preempting_world()
    world["policy"] = {"preemption": {"enabled": False}}
    world["jobs"]["u"] = {"run": "30m", "priority": "urgent"}
    _, _, made = planned(world)
    assert made.actions == ()


def test_waiting_a_minute_is_cheaper_than_stopping_anybody() -> None:
    world = preempting_world()
    world["jobs"]["old"]["progress"] = [300, 301]
    world["jobs"]["u"] = {"run": "30m", "priority": "urgent"}
    _, _, made = planned(world)
    assert made.actions == ()


# --- quotes and refusals ------------------------------------------------------------------------


def test_a_quote_is_what_the_plan_would_decide_and_changes_nothing() -> None:
    snapshot, policy = build(waiting_world())
    job = replace(snapshot.jobs[JobId("y-1")], id=JobId("hypothetical"))
    before = plan(snapshot, policy, 1)
    told = quote(snapshot, policy, 1, job)
    assert (told.job_id, told.verdict) == ("hypothetical", Verdict.BURST)
    assert told.alternatives
    assert plan(snapshot, policy, 1) == before


def test_a_job_on_unknown_ground_waits_instead_of_being_refused() -> None:
    _, _, made = planned({"nodes": {}, "jobs": {"x": {"run": "1h"}}})
    assert not any(isinstance(a, FailJob | CordonNode) for a in made.actions)
    assert decision(made, "x").verdict is Verdict.WAIT


def test_a_job_goes_back_to_a_node_it_failed_on_only_if_no_other_fits() -> None:
    _, _, made = planned(
        {"nodes": {"n1": {"gpus": 1}}, "jobs": {"x": {"run": "1h", "avoid": ["n1"]}}}
    )
    assert placements(made) == {"x": (NodeId("n1"),)}


def test_a_job_known_to_need_more_than_its_walltime_there_does_not_start_there() -> None:
    _, _, made = planned(
        {
            "nodes": {"slow": {"model": "t4"}, "fast": {"model": "a100-sxm4-80gb"}},
            "jobs": {
                "x": {"at": "fast", "run": "1h"},
                "y": {"run": "1h", "walltime": "90m"},
            },
        }
    )
    assert placements(made) == {}
    assert decision(made, "y").verdict is Verdict.WAIT


# --- second thoughts ----------------------------------------------------------------------------


def test_an_urgent_job_that_finds_the_cloud_full_takes_a_place_after_all() -> None:
    world = preempting_world()
    world.update(
        pools={
            "home": {},
            "cloud": {"kind": "burst", "ceilings": {"machines": 1, "usd_per_hour": 9}},
        },
        offers={"od": {"pool": "cloud", "type": "m", "price": 0.5}},
    )
    world["policy"] = {**world["policy"], **CLOUD["policy"]}
    world["jobs"]["u"] = {"run": "30m", "priority": "urgent", "count": 2}
    _, _, made = planned(world)
    assert len([a for a in made.actions if isinstance(a, OpenClaim)]) == 1
    assert [a.run_id for a in made.actions if isinstance(a, Stop)] == ["young.1"]


def test_a_job_is_placed_at_home_when_others_leave_a_slot_that_nobody_else_wants() -> None:
    world = {
        **CLOUD,
        "nodes": {"n1": {"gpus": 4, "links": "nvswitch"}},
        "jobs": {
            "wide": {"run": "6h", "gpus": 4, "value": 50, "submitted": "-9m"},
            "x": {"run": "1h", "at": "n1:0+1", "gpus": 2, "started": "-1m"},
            "small": {"run": "5h", "value": 9, "count": 2, "submitted": "-1m"},
        },
        "offers": {"od": {"pool": "cloud", "type": "m", "gpus": 4, "price": 6, **SWITCHED}},
    }
    _, _, made = planned(world)
    asked = {a.claim.job_id for a in made.actions if isinstance(a, OpenClaim)}
    assert asked == {"wide"}
    assert set(placements(made)) == {"small-1", "small-2"}


def test_nobody_waits_for_a_slot_that_was_found_for_him_and_went_to_another() -> None:
    world = {
        **CLOUD,
        "policy": {
            **CLOUD["policy"],
            "scheduling": {"strategy": "shortest_predicted", "improve": False},
            "burst": {"enabled": True},
        },
        "nodes": {"n1": {"gpus": 4, **SWITCHED}},
        "jobs": {
            "long": {"run": "6h", "value": 8, "submitted": "-2m"},
            "short": {"run": "3h", "gpus": 2, "value": 8, "submitted": "-1m"},
            "wide": {"run": "2h", "gpus": 4, "value": 8, "submitted": "-3m"},
            "x": {"run": "3h", "at": "n1:0+1", "gpus": 2, "started": "-1m"},
        },
        "offers": {
            f"od{gpus}": {
                "pool": "cloud", "type": f"m{gpus}", "gpus": gpus, "price": 2.5 * gpus, **SWITCHED
            }
            for gpus in (1, 2, 4)
        },
    }  # fmt: skip
    _, _, made = planned(world)
    asked = {a.claim.job_id for a in made.actions if isinstance(a, OpenClaim)}
    # three hours of waiting would cost "long" $24, six hours of a machine $15
    assert asked == {"wide", "long"}
    assert set(placements(made)) == {"short"}


def test_a_ready_machine_is_declined_for_a_free_slot_at_home_and_serves_another() -> None:
    _, _, made = planned(
        {
            **CLOUD,
            "nodes": {"n1": {"gpus": 1, "model": "t4"}},
            "claims": {"c1": {"offer": "od", "job": "mine", "idle": "4m55s"}},
            "jobs": {
                "mine": {"run": "1h", "value": 0.1, "claims_opened": 1},
                "other": {"run": "1h", "value": 9, "models": ["a100"], "submitted": "-1s"},
            },
        }
    )
    assert placements(made) == {"mine": ("n1",), "other": ("n-c1",)}


def test_a_machine_whose_lease_cannot_be_renewed_gets_no_new_run() -> None:
    world = waiting_world()
    world["policy"] = {"budgets": [{"name": "all", "limit_usd": 2}]}
    claim = {"offer": "od", "job": "y", "idle": "1s", "lease": "3m", "held": 1.9}
    world["claims"] = {"c1": claim}
    world["jobs"]["y"]["count"] = 1
    _, _, made = planned(world)
    assert placements(made) == {}


def test_a_job_whose_checkpoint_does_not_restore_elsewhere_begins_anew_there() -> None:
    saved = {"at": "-1m", "work": "50m"}
    world: dict[str, Any] = {
        "nodes": {"n1": {"model": "l40s"}},
        "jobs": {"x": {"run": "1h", "saves": {"portable": False}, "saved": saved}},
    }
    _, _, made = planned(world)
    anew = decision(made, "x").alternatives[0].finish_at
    world["jobs"]["x"]["saves"] = {"portable": True}
    _, _, made = planned(world)
    resumed = decision(made, "x").alternatives[0].finish_at
    assert anew is not None
    assert resumed is not None
    assert (anew - made.at) == pytest.approx(6 * (resumed - made.at))


def test_no_job_is_sent_where_its_links_would_be_too_slow() -> None:
    world = waiting_world(gpus=2, links="pcie")
    world["jobs"]["y"] = {"run": "1h", "value": 90, "gpus": 2, "link": "nvlink"}
    world["nodes"]["n2"] = {"gpus": 4, "links": "nvlink-pairs"}
    world["jobs"]["z"] = {"run": "9h", "gpus": 4, "at": "n2"}
    _, _, made = planned(world)
    refused = [a.refused for a in decision(made, "y").alternatives if a.refused is not None]
    assert [str(r) for r in refused] == ["link between GPUs: wants nvlink, has 0 GB/s"]


def test_mixed_boxes_give_one_model_to_one_job() -> None:
    snapshot, policy = build(
        {"nodes": {"n1": {"gpus": 4}}, "jobs": {"x": {"gpus": 2}, "y": {"gpus": 3}}}
    )
    node = snapshot.nodes[NodeId("n1")]
    gpus = tuple(replace(g, model="t4") if g.index < 2 else g for g in node.gpus)
    made = plan(replace(snapshot, nodes={node.id: replace(node, gpus=gpus)}), policy, 1)
    run = next(a.run for a in made.actions if isinstance(a, Place))
    assert (run.job_id, run.gpu_model) == ("x", "a100-sxm4-80gb")
    told = [d for d in made.decisions if d.job_id == "y"]
    assert "y" not in placements(made)
    assert told[0].verdict in (Verdict.REFUSE, Verdict.WAIT)


def test_a_mig_slice_serves_only_jobs_that_ask_for_it() -> None:
    snapshot, policy = build({"nodes": {"n1": {"gpus": 2}}, "jobs": {"x": {}, "y": {}}})
    node = snapshot.nodes[NodeId("n1")]
    gpus = tuple(
        replace(g, id=f"MIG-{g.index}", model="a100-sxm4-80gb:1g.10gb") if g.index else g
        for g in node.gpus
    )
    job = snapshot.jobs[JobId("y")]
    resources = job.spec.resources.model_copy(
        update={"gpu": job.spec.resources.gpu.model_copy(update={"mig_profile": "1g.10gb"})}
    )
    sliced = replace(job, spec=job.spec.model_copy(update={"resources": resources}))
    made = plan(
        replace(
            snapshot,
            nodes={node.id: replace(node, gpus=gpus)},
            jobs={**snapshot.jobs, job.id: sliced},
        ),
        policy,
        1,
    )
    given = {a.run.job_id: a.run.slots[0].gpu_ids for a in made.actions if isinstance(a, Place)}
    assert given == {"x": ("GPU-n1-0",), "y": ("MIG-1",)}


def test_compute_capability_and_memory_are_hard_filters() -> None:
    snapshot, policy = build({"nodes": {"n1": {"model": "t4"}}, "jobs": {"x": {}}})
    job = snapshot.jobs[JobId("x")]
    for change in ({"min_compute_capability": "8.0"}, {"memory": 40.0}):
        gpu = job.spec.resources.gpu.model_copy(update=change)
        spec = job.spec.model_copy(
            update={"resources": job.spec.resources.model_copy(update={"gpu": gpu})}
        )
        world = replace(snapshot, jobs={job.id: replace(job, spec=spec)})
        assert [type(a) for a in plan(world, policy, 1).actions] == [FailJob]


def test_a_job_on_slower_links_than_the_best_of_the_machine_is_expected_to_take_longer() -> None:
    world: dict[str, Any] = {
        "nodes": {"n1": {"gpus": 4, "links": "nvlink-pairs"}},
        "jobs": {"x": {"run": "1h", "gpus": 2}},
    }
    _, _, made = planned(world)
    near = next(a.run for a in made.actions if isinstance(a, Place))
    world["jobs"]["left"] = {"at": "n1:1", "run": "9h"}
    world["jobs"]["right"] = {"at": "n1:3", "run": "9h"}
    _, _, made = planned(world)
    across = next(a.run for a in made.actions if isinstance(a, Place))
    assert (near.slots[0].gpu_ids, across.slots[0].gpu_ids) == (
        ("GPU-n1-0", "GPU-n1-1"),
        ("GPU-n1-0", "GPU-n1-2"),
    )
    assert across.speed < near.speed
    assert across.expected_end_at is not None
    assert near.expected_end_at is not None
    assert across.expected_end_at > near.expected_end_at


def test_a_gang_passes_over_an_instant_at_which_one_of_its_nodes_is_promised_to_another() -> None:
    _, _, made = planned(
        {
            "nodes": {f"n{i}": {"gpus": 1} for i in range(2)},
            "jobs": {
                "x": {"run": "1h", "at": "n0", "started": "0s"},
                "y": {"run": "3h", "at": "n1", "started": "0s"},
                # starts on n0 in an hour, and is there until hour four
                "first": {"run": "3h", "priority": "high"},
                "gang": {"run": "1h", "nodes": 2},
                "late": {"run": "30m", "nodes": 2, "submitted": "-1s"},
            },
            "policy": {"scheduling": {"improve": False}},
        }
    )
    ends = {
        str(d.job_id): round((d.alternatives[0].finish_at or 0) - made.at) / 3600
        for d in made.decisions
        if d.verdict is Verdict.WAIT
    }
    assert ends == {"first": 4.0, "gang": 5.0, "late": 5.5}


def shared_quota(**fields: int) -> dict[str, Any]:
    return {"limit": 16, "per": 4, "name": "G and VT on-demand in us-east-1", **fields}


def test_a_quota_is_shared_by_the_machine_types_and_zones_that_count_against_it() -> None:
    world = waiting_world(quota=shared_quota(used=12))
    world["offers"]["other"] = {
        "pool": "cloud",
        "type": "n",
        "price": 5,
        "quota": shared_quota(used=12, per=8),
    }
    _, _, made = planned(world)
    assert [a.claim.offer.machine_type for a in made.actions if isinstance(a, OpenClaim)] == ["m"]
    waiting = next(j for j in ("y-1", "y-2") if decision(made, j).verdict is Verdict.WAIT)
    said = [str(a.refused) for a in decision(made, waiting).alternatives if a.refused]
    assert "quota 16 of 16 vCPU for G and VT on-demand in us-east-1" in said


def test_a_machine_asked_for_since_a_shared_quota_was_read_counts_against_it() -> None:
    world = waiting_world(quota=shared_quota(used=12))
    world["claims"] = {"c1": {"offer": "od", "state": "requested", "job": "y-1", "asked": "-1s"}}
    _, _, made = planned(world)
    assert [a for a in made.actions if isinstance(a, OpenClaim)] == []


def a_run_in_a_cloud(**more: Any) -> dict[str, Any]:
    """A run that would come home to a free GPU."""
    saved = {"at": "-2m", "work": "48m", "took": "10s"}
    return {
        **CLOUD,
        "nodes": {"n1": {"gpus": 1}},
        "claims": {"c1": {"offer": "od", "job": "away", "asked": "-1h"}},
        "jobs": {
            "away": {"run": "6h", "at": "n-c1", "started": "-50m", "saves": True, "saved": saved}
            | more
        },
    }


@pytest.mark.parametrize(("failed_in", "comes"), [(["home"], True), (["home", "home"], False)])
def test_a_job_does_not_come_home_to_a_pool_in_which_it_has_failed_too_often(
    failed_in: list[str], comes: bool
) -> None:
    _, _, made = planned(a_run_in_a_cloud(failed_in=failed_in))
    assert [isinstance(action, Stop) for action in made.actions] == [True] * comes


def test_a_node_that_is_emptied_stops_a_run_whose_work_is_not_safe_as_late_as_it_can() -> None:
    saved = {"at": "-2m", "work": "48m", "took": "10s"}
    job = {"run": "6h", "at": "n1", "started": "-50m", "saves": True, "saved": saved}
    world = {"nodes": {"n1": {"gpus": 1, "drain_in": "1h"}}, "jobs": {"x": job}}
    _, _, made = planned(world)
    assert [type(action) for action in made.actions] == [Stop]
    _, _, made = planned({**world, "jobs": {"x": {**job, "not_safe": "the store is full"}}})
    assert made.actions == ()
    assert "not moved while its work is not safe: the store is full" in decision(made, "x").sentence


@pytest.mark.parametrize(
    ("portable", "saved_on", "resumes"),
    [(True, "a100-sxm4-80gb", True), (False, "a100-sxm4-80gb", False), (False, "l40s", True)],
)
def test_a_checkpoint_is_resumed_on_another_gpu_model_only_if_the_job_says_that_it_restores_there(
    portable: bool, saved_on: str, resumes: bool
) -> None:
    job = {"run": "1h", "saves": {"portable": portable}, "saved": {"work": "10m"}}
    world = {"nodes": {"n1": {"gpus": 1, "model": "l40s"}}, "jobs": {"x": job}}
    snapshot, policy = build(world)
    x = snapshot.jobs[JobId("x")]
    assert x.checkpoint is not None
    there = replace(x, checkpoint=replace(x.checkpoint, gpu_model=saved_on))
    made = plan(replace(snapshot, jobs={x.id: there}), policy, 1)
    (run,) = [action.run for action in made.actions if isinstance(action, Place)]
    assert run.resume_seq == (1 if resumes else None)


def test_a_job_that_has_failed_too_often_at_home_stays_there_while_no_cloud_is_open_to_it() -> None:
    job = {"run": "1h", "failed_in": ["home", "home"]}
    world = {**CLOUD, "nodes": {"n1": {"gpus": 1}}, "jobs": {"x": job}}
    _, _, made = planned(world)
    assert [type(action) for action in made.actions] == [OpenClaim]
    _, _, made = planned({**world, "jobs": {"x": {**job, "where": {"burst": "never"}}}})
    assert placements(made) == {"x": (NodeId("n1"),)}
