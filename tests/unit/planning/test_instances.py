"""A job that asks for a MIG profile gets the free instance that leaves the most of its GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid.domain.node import MigInstance
from hybrid.domain.plan import Place, Plan
from hybrid.domain.snapshot import Snapshot
from hybrid.hardware import MigPlacement
from hybrid.hardware.mig import A100_80
from hybrid.planning.lint import lint
from hybrid.planning.planner import plan
from hybrid.planning.workspace import Workspace
from policies.document import PolicyDocument
from tests.doubles.apply_plan import apply_plan
from tests.scenarios.world import build


def planned(world: dict[str, Any]) -> Plan:
    snapshot, policy = build(world)
    return checked(snapshot, policy)


def checked(snapshot: Snapshot, policy: PolicyDocument) -> Plan:
    made = plan(snapshot, policy, 1)
    assert lint(snapshot, made) == ()
    assert plan(apply_plan(snapshot, made), policy, 1).actions == ()
    return made


def given_to(made: Plan) -> dict[str, str]:
    """Which instance each placed job gets."""
    return {
        str(a.run.job_id): a.run.slots[0].gpu_ids[0].removeprefix("MIG-")
        for a in made.actions
        if isinstance(a, Place)
    }


HALVES = {"3g.40gb": [0, 4]}
SMALL = {"1g.10gb": [0, 1, 2, 3, 4, 5, 6]}


def test_the_gpu_that_is_in_use_is_filled_before_a_free_one() -> None:
    jobs = {
        "runs": {"mig_profile": "3g.40gb", "at": "n1:2", "run": "9h"},
        "half": {"mig_profile": "3g.40gb", "run": "1h"},
    }
    assert given_to(planned({"nodes": {"n1": {"mig": [HALVES, HALVES]}}, "jobs": jobs})) == {
        "half": "n1-1.4"
    }


def test_that_holds_between_machines_too() -> None:
    jobs = {
        "runs": {"mig_profile": "3g.40gb", "at": "n2:0", "run": "9h"},
        "half": {"mig_profile": "3g.40gb", "run": "1h"},
    }
    nodes = {"n1": {"mig": [HALVES]}, "n2": {"mig": [HALVES]}}
    assert given_to(planned({"nodes": nodes, "jobs": jobs})) == {"half": "n2-0.4"}


def test_a_small_job_goes_beside_the_half_that_is_broken_already() -> None:
    jobs = {
        "runs": {"mig_profile": "1g.10gb", "at": "n1:5", "run": "9h"},
        "small": {"mig_profile": "1g.10gb", "run": "1h", "priority": "high"},
        "waits": {"mig_profile": "3g.40gb", "run": "1h"},
    }
    nodes = {"n1": {"mig": [SMALL]}, "else": {"mig": [HALVES], "cpus": 0.5}}
    # slices 0 to 3 could be one 3g; of 4 to 6 one is gone, so the lowest of the others is taken
    assert given_to(planned({"nodes": nodes, "jobs": jobs}))["small"] == "n1-0.4"


def test_machines_parted_alike_are_of_one_type_whatever_their_gpus_are_called() -> None:
    nodes = {f"n{i}": {"mig": [HALVES, SMALL]} for i in range(3)}
    snapshot, policy = build({"nodes": nodes})
    assert len(Workspace(snapshot, policy, 1).types) == 1


def test_where_positions_are_not_told_the_first_free_instance_is_taken() -> None:
    snapshot, policy = build(
        {"nodes": {"n1": {"mig": [HALVES]}}, "jobs": {"half": {"mig_profile": "3g.40gb"}}}
    )
    (node,) = snapshot.nodes.values()
    gpus = tuple(
        replace(gpu, mig=None if gpu.mig is None else MigInstance(parent=gpu.mig.parent))
        for gpu in node.gpus
    )
    hidden = replace(snapshot, nodes={node.id: replace(node, gpus=gpus)})
    assert given_to(checked(hidden, policy)) == {"half": "n1-0.0"}
    nameless = replace(node, gpus=tuple(replace(gpu, mig=None) for gpu in node.gpus), parted=())
    silent = replace(snapshot, nodes={node.id: nameless})
    assert given_to(checked(silent, policy)) == {"half": "n1-0.0"}


def sentence(world: dict[str, Any], job: str = "j") -> str:
    return next(d.sentence for d in planned(world).decisions if d.job_id == job)


def test_a_job_that_waits_hears_that_there_is_room_for_no_other_instance() -> None:
    jobs = {
        "runs": {"mig_profile": "3g.40gb", "at": "n1:0", "run": "2h", "started": "-1h"},
        "runs2": {"mig_profile": "3g.40gb", "at": "n1:1", "run": "2h", "started": "-1h"},
        "j": {"mig_profile": "3g.40gb", "run": "1h"},
    }
    told = sentence({"nodes": {"n1": {"mig": [HALVES]}}, "jobs": jobs})
    assert told.startswith("waits for one of the 2 MIG instances of 3g.40gb in home, expected in ")
    assert told.endswith(
        "(0 ahead); there is room for no other: a100-sxm4-80gb takes one at memory slice 0 or 4"
    )


def test_a_job_that_waits_hears_where_there_is_room_for_another() -> None:
    jobs = {
        "runs": {"mig_profile": "3g.40gb", "at": "n1:0", "run": "2h", "started": "-1h"},
        "j": {"mig_profile": "3g.40gb", "run": "1h"},
    }
    told = sentence({"nodes": {"n1": {"mig": [{"3g.40gb": [0]}]}}, "jobs": jobs})
    assert told.startswith("waits for the only MIG instance of 3g.40gb in home, expected in ")
    assert told.endswith("there is room for another on a100-sxm4-80gb at memory slice 4")


def test_a_profile_that_nobody_has_is_refused_with_what_there_is() -> None:
    def refused(layout: dict[str, list[int]], profile: str) -> str:
        nodes = {"n1": {"mig": [layout]}}
        return sentence({"nodes": nodes, "jobs": {"j": {"mig_profile": profile}}})

    start = "ends here: no pool has MIG profile"
    assert refused({"1g.10gb": [6], "3g.40gb": [0]}, "2g.20gb") == (
        f"{start} 2g.20gb; the pools have: 1g.10gb, 3g.40gb, and room for one on a100-sxm4-80gb"
        " at memory slice 4"
    )
    assert refused(HALVES, "1g.10gb") == f"{start} 1g.10gb; the pools have: 3g.40gb"
    assert refused(HALVES, "1g.5gb") == (
        f"{start} 1g.5gb; the pools have: 3g.40gb; a100-sxm4-80gb can be parted into 1g.10gb,"
        " 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb"
    )


def test_a_gpu_that_is_whole_has_no_instance() -> None:
    told = sentence({"nodes": {"n1": {"gpus": 2}}, "jobs": {"j": {"mig_profile": "1g.10gb"}}})
    assert told == ("ends here: no pool has MIG profile 1g.10gb; the pools have: no MIG instances")


def test_an_instance_is_held_whole_whatever_share_is_asked_of_it() -> None:
    jobs = {"half": {"mig_profile": "3g.40gb", "share": 0.5, "count": 2}}
    made = planned({"nodes": {"n1": {"mig": [HALVES]}}, "jobs": jobs})
    assert given_to(made) == {"half-1": "n1-0.0", "half-2": "n1-0.4"}
    assert {a.run.slots[0].share for a in made.actions if isinstance(a, Place)} == {1.0}


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, list[int]]:
    """Instances made one after the other, wherever there is room."""
    held: list[MigPlacement] = []
    for profile in draw(st.lists(st.sampled_from(A100_80.names[:5]), min_size=1, max_size=7)):
        starts = A100_80.starts(held, profile)
        if starts:
            held.append(MigPlacement(draw(st.sampled_from(starts)), profile))
    layout: dict[str, list[int]] = {}
    for at in held:
        layout.setdefault(at.profile, []).append(at.start)
    return layout


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(layouts(), min_size=1, max_size=3), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(A100_80.names[:5]), st.integers(1, 5)), max_size=6),
)
def test_no_memory_slice_is_given_twice(
    machines: list[list[dict[str, list[int]]]], asked: list[tuple[str, int]]
) -> None:
    nodes = {f"n{i}": {"mig": gpus} for i, gpus in enumerate(machines)}
    jobs = {
        f"j{i}": {"mig_profile": profile, "count": count, "run": "1h"}
        for i, (profile, count) in enumerate(asked)
    }
    unsearched = {"scheduling": {"improve": False}}  # searching takes long, and is not the point
    snapshot, policy = build({"nodes": nodes, "jobs": jobs, "policy": unsearched})
    made = checked(snapshot, policy)
    where = {gpu.id: gpu for node in snapshot.nodes.values() for gpu in node.gpus}
    slices = set()
    for action in made.actions:
        if not isinstance(action, Place):
            continue
        (gpu_id,) = action.run.slots[0].gpu_ids
        mig = where[gpu_id].mig
        wanted = snapshot.jobs[action.run.job_id].spec.resources.gpu.mig_profile
        assert where[gpu_id].model.endswith(f":{wanted}")
        assert mig is not None
        assert mig.start is not None
        assert mig.size is not None
        for i in range(mig.start, mig.start + mig.size):
            assert (mig.parent, i) not in slices
            slices.add((mig.parent, i))
