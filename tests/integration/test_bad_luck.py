"""Bad luck with clouds: each time every job is run or told why, and nothing is left running.

The loop and the providers are the product's, the clouds the sandbox's, the nodes simulated; time
passes when told to.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hybrid.domain.claim import ClaimState
from hybrid.domain.ids import ClaimId, JobId
from hybrid.domain.job import Job, JobState, StopCause
from hybrid.domain.plan import Decision
from hybrid.simulation.drive import SIM_PACE, Control
from hybrid.store.sql_store import SqlStore
from providers.aws.requests import TAG_CLAIM, TAG_INSTALLATION
from providers.gcp.names import instance_name
from providers.sandbox.config import SpotPrice
from providers.sandbox.gce.config import GceConfig
from tests.doubles.sim import a_training
from tests.doubles.wire import (
    BEGIN,
    Clouds,
    assert_the_ledger_is_what_the_clouds_say,
    aws_pool,
    gcp_pool,
    two_clouds,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.xdist_group("sandbox-cloud"),
    pytest.mark.timeout(300),  # SDKs repeat reads with real pauses
]

CLOUDS = ("aws", "gcp")
POLICY = """
budgets:
  - {name: all, limit_usd: 20000, period: lifetime}
priority_classes:
  normal: {value_per_hour: 40}
"""


class Company:
    """A team without a GPU of its own, and the clouds that it may use."""

    def __init__(self, clouds: Clouds, store: SqlStore, pools: dict[str, dict[str, Any]]) -> None:
        self.clouds, self.store = clouds, store
        self.control = Control(store, clouds.world, call_workers=8)
        self.control.apply_policy(POLICY)
        for name, fields in pools.items():
            if name == "aws":
                self.control.apply_pool(aws_pool(clouds.ec2, **fields))
            else:
                self.control.apply_pool(gcp_pool(clouds.gce, **fields))
        self.jobs: list[JobId] = []

    def submit(self, count: int = 1, minutes: float = 4, **fields: Any) -> None:
        for _ in range(count):
            spec = a_training(minutes, speeds={"a10g": 1.0, "l4": 1.0}, **fields)
            self.jobs.append(self.control.submit(f"b{len(self.jobs):04d}", spec))

    def live(self, minutes: float, every_s: float = 20.0) -> None:
        left_s = minutes * 60
        while left_s > 0:
            self.clouds.world.advance(every_s)
            self.control.tick()
            left_s -= every_s

    def until(self, holds: Callable[[], bool], within_minutes: float = 120) -> None:
        until = self.clouds.clock.now() + within_minutes * 60
        while not holds():
            assert self.clouds.clock.now() < until, "it never came to hold"
            self.live(1 / 3)

    def job(self, number: int = 0) -> Job:
        job = self.store.job(self.jobs[number])
        assert job is not None
        return job

    def why(self, number: int = 0) -> str:
        """What the job is told: the sentence, and every option that was refused."""
        decision = self.store.decision(self.jobs[number])
        assert isinstance(decision, Decision)
        refused = [str(each.refused) for each in decision.alternatives if each.refused]
        return " | ".join([decision.sentence, *refused])

    def done(self) -> bool:
        return all(self.job(n).state.ended for n in range(len(self.jobs)))

    def at_rest(self) -> bool:
        world = self.store.load(now=self.clouds.clock.now())
        return not world.jobs and not world.claims and not self.clouds.living()

    def end_well(self, within_minutes: float = 180) -> None:
        """Everybody has been served, nothing runs, and the money is right."""
        self.until(self.at_rest, within_minutes)
        assert {self.job(n).state for n in range(len(self.jobs))} == {JobState.SUCCEEDED}
        assert_the_ledger_is_what_the_clouds_say(self.clouds, self.store)

    def fault(self, cloud: str, action: tuple[str, str], **rule: Any) -> None:
        """Arm a fault on a cloud; ``action`` is its name on EC2 and on Compute Engine."""
        if cloud == "aws":
            self.clouds.ec2.fault(action[0], **rule)
        else:
            self.clouds.gce.fault(action[1], **rule)

    def clear(self) -> None:
        self.clouds.ec2.clear_faults()
        self.clouds.gce.clear_faults()

    def machine(self) -> str:
        (machine,) = self.clouds.living()
        return machine.id


LAUNCH = ("RunInstances", "instances.insert")
END = ("TerminateInstances", "instances.delete")
LIST = ("DescribeInstances", "instances.aggregatedList")


@pytest.fixture
def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Company]]:
    """Makes a company; of the clouds only those with pools are used."""
    stack: list[Any] = []

    def make(
        *pools: str, gce: GceConfig | None = None, aws: dict[str, Any] | None = None, **fields: Any
    ) -> Company:
        context = two_clouds(tmp_path, monkeypatch, gce=gce, **(aws or {}))
        clouds = context.__enter__()
        stack.append(context)
        store = SqlStore.open(f"sqlite:///{tmp_path / 'luck.db'}")
        stack.append(store)
        made = Company(clouds, store.__enter__(), {name: dict(fields) for name in pools})
        stack.append(made)
        return made

    yield make
    for each in reversed(stack):
        if isinstance(each, Company):
            each.control.loop.stop()
        else:
            each.__exit__(None, None, None)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_capacity_gone_in_one_zone_is_found_in_the_next(company, cloud: str) -> None:
    here = company(cloud)
    here.clouds.ec2.exhaust(zone="us-east-1a")
    here.clouds.gce.exhaust(zone="us-central1-a")
    here.submit(3)
    here.end_well()
    assert {machine.zone[-1] for machine in here.clouds.books()} == {"b"}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_capacity_gone_everywhere_is_told_and_asked_for_ever_more_rarely(
    company, cloud: str
) -> None:
    here = company(cloud)
    here.clouds.ec2.exhaust()
    here.clouds.gce.exhaust()
    here.submit(3)
    here.live(60, every_s=40)
    assert here.clouds.books() == []
    assert "refused lately" in here.why()
    calls = {**here.clouds.ec2.state().calls, **here.clouds.gce.calls()}
    # three jobs, two zones, two markets, and probes that double their wait up to half an hour
    assert calls.get("RunInstances", 0) + calls.get("instances.insert", 0) < 60
    here.clouds.ec2.restore()
    here.clouds.gce.restore()
    here.end_well()


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_gang_that_a_quota_cuts_in_two_holds_nothing_and_is_told(company, cloud: str) -> None:
    here = company(cloud)
    # the quota is not seen beforehand: the launch of the gang's second machine runs into it
    second = "c-b0000-1-1-0"
    if cloud == "aws":
        asked = {"TagSpecification.1.Tag.3.Value": second}
        here.clouds.ec2.fault("RunInstances", match=asked, code="VcpuLimitExceeded", times=None)
    else:
        asked = {"name": instance_name("sim", ClaimId(second))}
        here.clouds.gce.fault("instances.insert", match=asked, code="QUOTA_EXCEEDED", times=None)
    here.submit(1, resources={"nodes": 2})
    here.live(1 / 3)
    assert [m.claim_id for m in here.clouds.books()] == ["c-b0000-1-0-0"]
    breakers = here.store.load(now=here.clouds.clock.now()).breakers
    assert [scope.partition(":")[0] for scope in breakers] == ["quota"]
    here.end_well()


def test_a_spot_price_above_the_ceiling_sends_jobs_on_demand(company) -> None:
    here = company("aws")
    dear = [
        SpotPrice(zone=zone, machine_type="g5.xlarge", at_s=0, usd_per_hour="3.5")
        for zone in here.clouds.ec2.config.zones
    ]
    here.clouds.ec2.script_spot_prices(dear)
    here.submit(2)
    here.end_well()
    assert {machine.market for machine in here.clouds.books()} == {"on_demand"}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_listing_throttled_for_ten_minutes_loses_nothing(company, cloud: str) -> None:
    here = company(cloud)
    here.submit(2, minutes=6)
    here.until(lambda: len(here.clouds.living()) == 2)
    code = {"aws": "RequestLimitExceeded", "gcp": "rateLimitExceeded"}[cloud]
    here.fault(cloud, LIST, code=code, times=None)
    here.live(10, every_s=150)
    here.submit(1)
    here.live(1)
    assert len(here.clouds.books()) == 2, "nothing new is asked of a cloud that cannot be seen"
    here.clear()
    here.end_well()


@pytest.mark.parametrize("cloud", CLOUDS)
def test_an_image_that_never_joins_is_tried_ever_more_rarely_and_used_again_when_it_does(
    company, cloud: str
) -> None:
    here = company(cloud)
    kind = {"aws": "g5.xlarge", "gcp": "g2-standard-4"}[cloud]
    here.clouds.world.broken_boots.add(kind)
    here.submit(4)
    here.until(lambda: len(here.clouds.books()) >= 4, within_minutes=20)
    here.live(4 * 60)
    # four at once, and then one at a time: 5, 10, 20 and 30 minutes after the one before had failed
    assert 4 + 5 <= len(here.clouds.books()) <= 4 + 9
    assert "machines in a row never joined" in here.why()
    here.clouds.world.broken_boots.clear()
    here.end_well(within_minutes=300)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_launch_that_is_answered_late_makes_one_machine(company, cloud: str) -> None:
    here = company(cloud)
    here.control.pace = replace(SIM_PACE, call_deadline_s=0.2)
    here.control.restart()
    here.fault(cloud, LAUNCH, delay_s=0.6)
    here.submit(1)
    here.live(1)
    time.sleep(0.8)  # the call is still under way in its thread
    here.end_well()
    assert len(here.clouds.books()) == 1


@pytest.mark.parametrize("cloud", CLOUDS)
def test_answers_lost_after_the_deed_make_one_machine_each(company, cloud: str) -> None:
    here = company(cloud)
    here.fault(cloud, LAUNCH, execute_then_lose=True, times=4)
    here.submit(4)
    here.end_well()
    assert len(here.clouds.books()) <= 4


@pytest.mark.parametrize("cloud", CLOUDS)
def test_an_end_that_fails_five_times_is_asked_for_a_sixth_time(company, cloud: str) -> None:
    here = company(cloud)
    code = {"aws": "InternalError", "gcp": "backendError"}[cloud]
    here.fault(cloud, END, code=code, times=5)
    here.submit(1)
    here.end_well()


@pytest.mark.parametrize("cloud", CLOUDS)
def test_credentials_that_expire_and_come_back_lose_nothing(company, cloud: str) -> None:
    here = company(cloud)
    here.submit(2, minutes=10)
    here.until(lambda: len(here.clouds.living()) == 2)
    code = {"aws": "ExpiredToken", "gcp": "authError"}[cloud]
    here.fault(cloud, ("*", "*"), code=code, times=None)
    here.submit(1)
    here.live(5)
    assert len(here.clouds.books()) == 2
    said = {"aws": "ExpiredToken", "gcp": "UNAUTHENTICATED"}[cloud]
    assert said in here.why(2)
    here.clear()
    here.end_well()


@pytest.mark.parametrize("stop", [False, True], ids=["ended", "stopped"])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_machine_ended_or_stopped_by_hand_is_replaced(company, cloud: str, stop: bool) -> None:
    here = company(cloud)
    here.submit(1, minutes=10)
    here.until(lambda: here.job().state is JobState.RUNNING)
    machine = here.machine()
    match (cloud, stop):
        case ("aws", False):
            here.clouds.ec2.terminate(machine)
        case ("aws", True):
            here.clouds.ec2.client("ec2").stop_instances(InstanceIds=[machine])
        case (_, False):
            here.clouds.gce.delete(machine)
        case _:
            here.clouds.gce.stop(machine)
    here.clouds.world.settle()
    here.end_well()
    assert len(here.clouds.books()) == 2


def test_a_warning_from_the_queue_stops_the_run_in_time_and_a_hint_stops_nothing(
    company, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("providers.aws.notices.WAIT_S", 1)
    here = company("aws", aws={"hears": True}, markets=["spot"])
    ec2, provider = here.clouds.ec2, here.clouds.world.clouds["aws"]
    here.submit(1, minutes=20)
    here.until(lambda: here.job().state is JobState.RUNNING)
    machine = here.machine()

    def hear(say: Callable[[str], float]) -> None:
        say(machine)
        deadline = time.monotonic() + 15
        while not provider.notices():
            assert time.monotonic() < deadline, "nothing was heard"
            time.sleep(0.05)
        here.live(1)

    hear(ec2.recommend_rebalance)
    (claim,) = here.store.load(now=here.clouds.clock.now()).claims.values()
    assert claim.rebalance_at is not None
    assert (claim.state, here.job().state) == (ClaimState.READY, JobState.RUNNING)
    assert provider.notices() == ()
    hear(ec2.interrupt)
    (first, *_) = here.store.runs_of(here.jobs[0])
    assert first.stop_cause is StopCause.INTERRUPTION
    assert first.stop_by is not None
    here.end_well()
    assert len(here.clouds.books()) == 2


def test_disks_that_machines_left_behind_are_removed_and_told_and_foreign_ones_stay(
    company,
) -> None:
    here = company("aws", "gcp")
    ec2 = here.clouds.ec2.client("ec2")
    here.submit(1)
    here.end_well()
    world = here.store.load(now=here.clouds.clock.now())
    (claim,) = here.store.claims()
    left, foreign = (
        ec2.create_volume(
            AvailabilityZone="us-east-1a",
            Size=8,
            TagSpecifications=[
                {
                    "ResourceType": "volume",
                    "Tags": [
                        {"Key": TAG_INSTALLATION, "Value": installation},
                        {"Key": TAG_CLAIM, "Value": claim.id},
                    ],
                }
            ],
        )["VolumeId"]
        for installation in ("sim", "somebody")
    )
    assert not world.claims
    here.live(3)
    there = {each["VolumeId"] for each in ec2.describe_volumes()["Volumes"]}
    assert foreign in there
    assert left not in there
    told = [e for _, e in here.store.events() if e.what == "disk removed"]
    assert [(e.subject, e.words) for e in told] == [
        (left, f"a disk at aws that {claim.id} left behind")
    ]


def test_a_gangs_placement_group_goes_after_the_gang(company) -> None:
    here = company("aws", gangs={"placement_group": True})
    ec2 = here.clouds.ec2.client("ec2")
    here.submit(1, minutes=5, resources={"gpus": 1, "nodes": 2})
    here.until(lambda: here.job().state is JobState.RUNNING)
    here.live(3)
    (group,) = ec2.describe_placement_groups()["PlacementGroups"]
    (gang,) = {claim.gang for claim in here.store.claims()}
    assert group["GroupName"] == f"hybrid-sim-{gang}"
    here.end_well()
    here.live(2)
    assert ec2.describe_placement_groups()["PlacementGroups"] == []
    told = [e.words for _, e in here.store.events() if e.what == "placement group removed"]
    assert told == [f"a placement group at aws that {gang} left behind"]


def test_a_second_machine_under_one_tag_is_ended_and_the_first_goes_on(company) -> None:
    here = company("aws")
    here.submit(1, minutes=20)
    here.until(lambda: here.job().state is JobState.RUNNING)
    machine = here.machine()
    ec2 = here.clouds.ec2.client("ec2")
    view = here.clouds.ec2.instance(machine)
    copied = ec2.run_instances(
        ImageId=here.clouds.ec2.image_id,
        InstanceType="g5.xlarge",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[
            {
                "ResourceType": "instance",
                "Tags": [{"Key": key, "Value": value} for key, value in view.tags.items()],
            }
        ],
    )["Instances"][0]["InstanceId"]
    here.live(5)
    assert [m.id for m in here.clouds.living()] == [machine]
    assert here.clouds.ec2.instance(copied).ended_at is not None
    here.until(here.at_rest)
    assert here.job().state is JobState.SUCCEEDED


@pytest.mark.parametrize("skew_s", [300.0, -300.0])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_clouds_clock_five_minutes_off_does_no_harm(company, cloud: str, skew_s: float) -> None:
    here = company(cloud, gce=GceConfig(clock_skew_s=skew_s), aws={"clock_skew_s": skew_s})
    here.submit(3, minutes=12)
    here.end_well()
    assert len(here.clouds.books()) <= 3


def test_a_region_that_is_down_leaves_the_work_to_the_other_cloud(company) -> None:
    here = company("aws", "gcp")
    here.clouds.ec2.fault("*", code="InternalError", times=None)
    here.submit(4)
    here.live(10, every_s=100)
    assert {machine.cloud for machine in here.clouds.books()} == {"gcp"}
    here.clear()
    here.end_well()


@pytest.mark.parametrize("cloud", CLOUDS)
def test_many_claims_at_once_are_each_asked_for_once(company, cloud: str) -> None:
    many = 500 if os.environ.get("HYBRID_SOAK") else 24
    here = company(cloud, ceilings={"machines": 1_000, "usd_per_hour": 2_000})
    here.submit(many, minutes=3)
    here.live(1)
    calls = {**here.clouds.ec2.state().calls, **here.clouds.gce.calls()}
    assert calls.get("RunInstances", 0) + calls.get("instances.insert", 0) == many
    assert len(here.clouds.books()) == many
    here.end_well()
    assert here.clouds.clock.now() > BEGIN
