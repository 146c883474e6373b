"""EC2 as the sandbox offers it, through boto3 over HTTP."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from providers.sandbox.cloud import SandboxCloud
from providers.sandbox.cloud_core import UnknownInstance, WrongState
from providers.sandbox.config import Market, SpotPrice

from .conftest import LAUNCH, BuildCloud, eventually, launch

pytestmark = pytest.mark.integration
G5 = {**LAUNCH, "InstanceType": "g5.xlarge"}
SPOT = {"InstanceMarketOptions": {"MarketType": "spot"}}


def refusal(call: Any, **parameters: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    reply = caught.value.response
    return reply["Error"]["Code"], reply["ResponseMetadata"]["HTTPStatusCode"]


def listed(cloud: SandboxCloud, **query: Any) -> dict[str, Any]:
    reply = cloud.client("ec2").describe_instances(**query)
    return {
        each["InstanceId"]: each
        for reservation in reply["Reservations"]
        for each in reservation["Instances"]
    }


# -- tokens ---------------------------------------------------------------------------------


def test_the_same_token_and_request_give_the_same_instance(cloud: SandboxCloud) -> None:
    ec2 = cloud.client("ec2")
    first = ec2.run_instances(**G5, ClientToken="claim-1")
    again = ec2.run_instances(**G5, ClientToken="claim-1")
    assert again["Instances"][0]["InstanceId"] == first["Instances"][0]["InstanceId"]
    assert len(cloud.instances()) == 1


def test_the_same_token_with_another_request_is_refused(cloud: SandboxCloud) -> None:
    launch(cloud, ClientToken="claim-1")
    call = cloud.client("ec2").run_instances
    other = {**G5, "InstanceType": "g5.2xlarge"}
    assert refusal(call, **other, ClientToken="claim-1") == ("IdempotentParameterMismatch", 400)
    assert len(cloud.instances()) == 1


def test_a_repeat_shows_the_state_that_the_instance_has_now(cloud: SandboxCloud) -> None:
    instance_id = launch(cloud, ClientToken="claim-1")
    cloud.terminate(instance_id)
    again = cloud.client("ec2").run_instances(**G5, ClientToken="claim-1")
    assert again["Instances"][0]["State"]["Name"] == "terminated"


def test_a_refused_launch_does_not_use_its_token_up(cloud: SandboxCloud) -> None:
    cloud.exhaust(zone=None)
    call = cloud.client("ec2").run_instances
    assert refusal(call, **G5, ClientToken="claim-1")[0] == "InsufficientInstanceCapacity"
    cloud.restore()
    assert call(**G5, ClientToken="claim-1")["Instances"]


def test_past_its_validity_a_token_launches_again(build_cloud: BuildCloud) -> None:
    cloud = build_cloud(token_validity_s=0.05)
    first = launch(cloud, ClientToken="claim-1")
    time.sleep(0.1)
    assert launch(cloud, ClientToken="claim-1") != first


def test_racing_repeats_of_one_token_make_one_instance(cloud: SandboxCloud) -> None:
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(launch, cloud, ClientToken="claim-1") for _ in range(8)]
    assert len({call.result() for call in calls}) == 1
    assert len(cloud.instances()) == 1


# -- misfortune -----------------------------------------------------------------------------


def test_an_answer_lost_after_the_deed_is_found_by_repeating(cloud: SandboxCloud) -> None:
    cloud.fault("RunInstances", execute_then_lose=True)
    call = cloud.client("ec2").run_instances
    with pytest.raises((BotoConnectionError, HTTPClientError)):
        call(**G5, ClientToken="claim-1")
    (made,) = cloud.instances()
    again = call(**G5, ClientToken="claim-1")
    assert again["Instances"][0]["InstanceId"] == made.instance_id
    assert len(cloud.instances()) == 1


def test_a_fault_answers_with_its_code_and_does_nothing(cloud: SandboxCloud) -> None:
    cloud.fault("RunInstances", code="RequestLimitExceeded")
    call = cloud.client("ec2").run_instances
    assert refusal(call, **G5) == ("RequestLimitExceeded", 503)
    assert cloud.instances() == ()
    assert call(**G5)["Instances"]


def test_faults_match_what_a_launch_template_says(cloud: SandboxCloud) -> None:
    template = make_template(cloud, InstanceType="g4dn.xlarge")
    cloud.fault("RunInstances", code="InternalError", match={"machine_type": "g4dn.xlarge"})
    call = cloud.client("ec2").run_instances
    assert call(**G5)["Instances"]
    assert refusal(call, MinCount=1, MaxCount=1, LaunchTemplate=template)[0] == "InternalError"


def test_every_call_can_be_made_to_fail_until_the_fault_is_cleared(cloud: SandboxCloud) -> None:
    cloud.fault("*", code="RequestExpired", times=None)
    ec2 = cloud.client("ec2")
    assert refusal(ec2.describe_instances)[0] == "RequestExpired"
    assert refusal(ec2.terminate_instances, InstanceIds=["i-1"])[0] == "RequestExpired"
    assert refusal(cloud.client("s3").list_buckets)[0] == "RequestExpired"
    pricing = cloud.client("pricing")
    assert refusal(pricing.get_products, ServiceCode="AmazonEC2")[0] == "RequestExpired"
    assert refusal(cloud.client("sts").get_caller_identity)[0] == "RequestExpired"
    cloud.clear_faults()
    assert ec2.describe_instances()["Reservations"] == []


def test_a_slow_answer_is_slow_and_right(cloud: SandboxCloud) -> None:
    cloud.fault("DescribeInstances", delay_s=0.3)
    before = time.monotonic()
    assert listed(cloud) == {}
    assert time.monotonic() - before >= 0.3


def test_a_slow_call_does_not_hold_up_the_others(cloud: SandboxCloud) -> None:
    cloud.fault("DescribeInstances", delay_s=2.0)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(listed, cloud)
        eventually(lambda: cloud.state().calls.get("DescribeInstances") == 1)
        launch(cloud)
        assert not slow.done()
        slow.result()


# -- scarcity -------------------------------------------------------------------------------


def test_capacity_runs_out_and_is_given_back_when_a_machine_ends(cloud: SandboxCloud) -> None:
    cloud.set_capacity(1, zone="us-east-1a", machine_type="g5.xlarge")
    call = cloud.client("ec2").run_instances
    here = {**G5, "SubnetId": cloud.subnets["us-east-1a"]}
    first = call(**here)["Instances"][0]["InstanceId"]
    assert refusal(call, **here) == ("InsufficientInstanceCapacity", 500)
    cloud.client("ec2").terminate_instances(InstanceIds=[first])
    assert call(**here)["Instances"]


def test_markets_zones_and_types_run_out_separately(cloud: SandboxCloud) -> None:
    cloud.exhaust(zone="us-east-1a", machine_type="g5.xlarge", market=Market.SPOT)
    call = cloud.client("ec2").run_instances
    here = {"SubnetId": cloud.subnets["us-east-1a"]}
    assert refusal(call, **G5, **here, **SPOT)[0] == "InsufficientInstanceCapacity"
    assert call(**G5, **here)["Instances"]
    assert call(**{**G5, "InstanceType": "g5.2xlarge"}, **here, **SPOT)["Instances"]
    assert call(**G5, **SPOT, SubnetId=cloud.subnets["us-east-1b"])["Instances"]


def test_without_a_subnet_the_cloud_chooses_a_zone_that_has_one(cloud: SandboxCloud) -> None:
    cloud.exhaust(zone="us-east-1a")
    assert cloud.instance(launch(cloud)).zone == "us-east-1b"


def test_a_launch_of_several_gets_what_there_is_between_its_counts(cloud: SandboxCloud) -> None:
    cloud.set_capacity(3, zone="us-east-1a")
    call = cloud.client("ec2").run_instances
    here = {**G5, "SubnetId": cloud.subnets["us-east-1a"]}
    assert len(call(**{**here, "MinCount": 2, "MaxCount": 5})["Instances"]) == 3
    assert refusal(call, **here)[0] == "InsufficientInstanceCapacity"


def test_vcpu_quotas_refuse_by_market(cloud: SandboxCloud) -> None:
    cloud.set_quota("G and VT", Market.ON_DEMAND, 8)
    cloud.set_quota("G and VT", Market.SPOT, 4)
    call = cloud.client("ec2").run_instances
    call(**{**G5, "InstanceType": "g5.2xlarge"})
    assert refusal(call, **G5) == ("VcpuLimitExceeded", 400)
    first = call(**G5, **SPOT)["Instances"][0]["InstanceId"]
    assert refusal(call, **G5, **SPOT) == ("MaxSpotInstanceCountExceeded", 400)
    cloud.terminate(first)
    assert call(**G5, **SPOT)["Instances"]


def test_a_quota_in_the_middle_of_a_launch_of_several_gives_what_fits(cloud: SandboxCloud) -> None:
    cloud.set_quota("G and VT", Market.ON_DEMAND, 10)
    reply = cloud.client("ec2").run_instances(**{**G5, "MaxCount": 5})
    assert len(reply["Instances"]) == 2


def test_quotas_are_told_by_service_quotas(cloud: SandboxCloud) -> None:
    cloud.set_quota("P", Market.SPOT, 96)
    quotas = cloud.client("service-quotas")
    one = quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-7212CCBC")["Quota"]
    assert one["Value"] == 96.0
    every = quotas.list_service_quotas(ServiceCode="ec2")["Quotas"]
    assert {"L-DB2E81BA", "L-3819A6DF", "L-417A185B"} <= {each["QuotaCode"] for each in every}
    call = quotas.get_service_quota
    assert refusal(call, ServiceCode="ec2", QuotaCode="L-0")[0] == "NoSuchResourceException"


def test_what_is_not_sold_is_refused(cloud: SandboxCloud) -> None:
    call = cloud.client("ec2").run_instances
    assert refusal(call, **{**G5, "InstanceType": "m5.large"})[0] == "InvalidParameterValue"
    assert refusal(call, **G5, SubnetId="subnet-0")[0] == "InvalidSubnetID.NotFound"
    elsewhere = {"Placement": {"AvailabilityZone": "us-east-1f"}}
    assert refusal(call, **G5, **elsewhere)[0] == "InvalidParameterValue"
    assert refusal(call, **{**G5, "MinCount": 2, "MaxCount": 1})[0] == "InvalidParameterValue"
    assert refusal(call, MinCount=1, MaxCount=1, ImageId="ami")[0] == "MissingParameter"
    assert refusal(call, **{**G5, "ImageId": "my-image"})[0] == "InvalidAMIID.Malformed"
    assert refusal(call, **{**G5, "ImageId": "ami-0123456789"})[0] == "InvalidAMIID.NotFound"
    nothing = {"MinCount": 1, "MaxCount": 1, "InstanceType": "g5.xlarge"}
    assert refusal(call, **nothing)[0] == "MissingParameter"
    assert refusal(call, **G5, UserData="x" * 16_385)[0] == "InvalidParameterValue"
    missing = {"LaunchTemplateName": "none"}
    code, _ = refusal(call, MinCount=1, MaxCount=1, LaunchTemplate=missing)
    assert code == "InvalidLaunchTemplateId.NotFound"


def test_a_template_is_used_in_the_version_asked_for(cloud: SandboxCloud) -> None:
    template = make_template(cloud, InstanceType="g5.xlarge")
    ec2 = cloud.client("ec2")
    newer = {"ImageId": cloud.image_id, "InstanceType": "g5.2xlarge"}
    template_id = template["LaunchTemplateId"]
    ec2.create_launch_template_version(LaunchTemplateId=template_id, LaunchTemplateData=newer)

    def started(version: str) -> str:
        asked = {"LaunchTemplateId": template_id, "Version": version}
        reply = ec2.run_instances(MinCount=1, MaxCount=1, LaunchTemplate=asked)
        return str(reply["Instances"][0]["InstanceType"])

    versions = ("1", "2", "$Latest", "$Default")
    assert [started(each) for each in versions] == [
        "g5.xlarge",
        "g5.2xlarge",
        "g5.2xlarge",
        "g5.xlarge",
    ]
    missing = {"LaunchTemplateId": template_id, "Version": "9"}
    code, _ = refusal(ec2.run_instances, MinCount=1, MaxCount=1, LaunchTemplate=missing)
    assert code == "InvalidLaunchTemplateId.NotFound"


def test_another_region_is_not_enabled(cloud: SandboxCloud) -> None:
    import boto3

    away = boto3.client(
        "ec2",
        endpoint_url=cloud.url,
        region_name="eu-west-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    assert refusal(away.describe_instances)[0] == "OptInRequired"


def test_machines_that_no_book_would_know_are_not_offered(cloud: SandboxCloud) -> None:
    call = cloud.client("ec2").request_spot_instances
    assert refusal(call, InstanceCount=1)[0] == "UnsupportedOperation"


def test_a_dry_run_starts_nothing(cloud: SandboxCloud) -> None:
    assert refusal(cloud.client("ec2").run_instances, **G5, DryRun=True)[0] == "DryRunOperation"
    assert cloud.instances() == ()


# -- what an instance is --------------------------------------------------------------------


def make_template(cloud: SandboxCloud, **data: Any) -> dict[str, str]:
    reply = cloud.client("ec2").create_launch_template(
        LaunchTemplateName="node", LaunchTemplateData={"ImageId": cloud.image_id, **data}
    )
    return {"LaunchTemplateId": reply["LaunchTemplate"]["LaunchTemplateId"], "Version": "1"}


def test_a_launch_template_decides_market_shutdown_and_place(cloud: SandboxCloud) -> None:
    template = make_template(
        cloud,
        InstanceType="g5.xlarge",
        InstanceMarketOptions={"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.9"}},
        InstanceInitiatedShutdownBehavior="terminate",
        NetworkInterfaces=[{"DeviceIndex": 0, "SubnetId": cloud.subnets["us-east-1b"]}],
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": "pool", "Value": "burst"}]}
        ],
    )
    reply = cloud.client("ec2").run_instances(MinCount=1, MaxCount=1, LaunchTemplate=template)
    (made,) = reply["Instances"]
    assert made["InstanceLifecycle"] == "spot"
    assert made["Placement"]["AvailabilityZone"] == "us-east-1b"
    view = cloud.instance(made["InstanceId"])
    assert (view.market, view.zone, view.tags["pool"]) == (Market.SPOT, "us-east-1b", "burst")
    cloud.power_off(view.instance_id)
    assert cloud.instance(view.instance_id).state == "terminated"


def test_the_request_goes_before_the_template(cloud: SandboxCloud) -> None:
    template = make_template(cloud, InstanceType="g5.xlarge")
    reply = cloud.client("ec2").run_instances(
        MinCount=1, MaxCount=1, LaunchTemplate=template, InstanceType="g5.2xlarge"
    )
    assert reply["Instances"][0]["InstanceType"] == "g5.2xlarge"


def test_spot_instances_are_marked_and_can_be_filtered(cloud: SandboxCloud) -> None:
    spot = launch(cloud, **SPOT, ClientToken="claim-spot")
    launch(cloud, ClientToken="claim-od")
    shown = listed(cloud, Filters=[{"Name": "instance-lifecycle", "Values": ["spot"]}])
    assert list(shown) == [spot]
    assert shown[spot]["SpotInstanceRequestId"].startswith("sir-")
    by_token = listed(cloud, Filters=[{"Name": "client-token", "Values": ["claim-spot"]}])
    assert list(by_token) == [spot]


def test_tags_filter_instances(cloud: SandboxCloud) -> None:
    tags = [{"Key": "hybrid:installation", "Value": "one"}]
    ours = launch(cloud, TagSpecifications=[{"ResourceType": "instance", "Tags": tags}])
    launch(cloud)
    query = [{"Name": "tag:hybrid:installation", "Values": ["one"]}]
    assert list(listed(cloud, Filters=query)) == [ours]


def test_a_new_instance_is_listed_late(build_cloud: BuildCloud) -> None:
    late = build_cloud(listing_lag_s=60)
    instance_id = launch(late)
    assert listed(late) == {}
    call = late.client("ec2").describe_instances
    assert refusal(call, InstanceIds=[instance_id])[0] == "InvalidInstanceID.NotFound"
    soon = build_cloud(listing_lag_s=0.2)
    instance_id = launch(soon)
    eventually(lambda: list(listed(soon)) == [instance_id])


def test_a_machine_not_listed_yet_can_be_ended(build_cloud: BuildCloud) -> None:
    cloud = build_cloud(listing_lag_s=60)
    instance_id = launch(cloud)
    cloud.client("ec2").terminate_instances(InstanceIds=[instance_id])
    assert cloud.instance(instance_id).state == "terminated"


def test_states_take_the_time_they_are_given(build_cloud: BuildCloud) -> None:
    slow = build_cloud(pending_s=60, shutting_down_s=60)
    instance_id = launch(slow)
    assert listed(slow)[instance_id]["State"]["Name"] == "pending"
    slow.client("ec2").terminate_instances(InstanceIds=[instance_id])
    assert listed(slow)[instance_id]["State"]["Name"] == "shutting-down"


def test_states_go_on_by_themselves(build_cloud: BuildCloud) -> None:
    cloud = build_cloud(pending_s=0.1, shutting_down_s=0.1)
    instance_id = launch(cloud)
    eventually(lambda: listed(cloud)[instance_id]["State"]["Name"] == "running")
    cloud.client("ec2").terminate_instances(InstanceIds=[instance_id])
    eventually(lambda: listed(cloud)[instance_id]["State"]["Name"] == "terminated")


def test_a_terminated_instance_leaves_the_listing_after_a_while(build_cloud: BuildCloud) -> None:
    cloud = build_cloud(terminated_visible_s=0.2)
    cloud.terminate(launch(cloud))
    eventually(lambda: listed(cloud) == {})


def test_ending_twice_is_fine_and_the_first_reason_stands(cloud: SandboxCloud) -> None:
    instance_id = launch(cloud, **SPOT)
    cloud.interrupt(instance_id, 0.0)
    eventually(lambda: cloud.instance(instance_id).state == "terminated")
    cloud.client("ec2").terminate_instances(InstanceIds=[instance_id])
    reason = listed(cloud)[instance_id]["StateReason"]
    assert reason["Code"] == "Server.SpotInstanceTermination"
    assert cloud.instance(instance_id).end_code == "Server.SpotInstanceTermination"


def test_the_listing_tells_who_ended_an_instance_and_when(cloud: SandboxCloud) -> None:
    by_hand = launch(cloud)
    taken = launch(cloud, **SPOT)
    inside = launch(cloud, InstanceInitiatedShutdownBehavior="terminate")
    cloud.client("ec2").terminate_instances(InstanceIds=[by_hand])
    cloud.interrupt(taken, 0.0)
    cloud.power_off(inside)
    eventually(lambda: cloud.instance(taken).state == "terminated")
    told = {key: each["StateTransitionReason"] for key, each in listed(cloud).items()}

    def when(instance_id: str) -> str:
        at = datetime.fromtimestamp(cloud.instance(instance_id).ended_at or 0.0, UTC)
        return f"({at:%Y-%m-%d %H:%M:%S} GMT)"

    assert told == {
        by_hand: f"User initiated {when(by_hand)}",
        taken: f"Service initiated {when(taken)}",
        inside: "",
    }


def test_ending_names_the_state_before_and_after(cloud: SandboxCloud) -> None:
    instance_id = launch(cloud)
    reply = cloud.client("ec2").terminate_instances(InstanceIds=[instance_id])
    (change,) = reply["TerminatingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == (
        "running",
        "shutting-down",
    )


def test_one_unknown_id_ends_nothing(cloud: SandboxCloud) -> None:
    instance_id = launch(cloud)
    call = cloud.client("ec2").terminate_instances
    code, status = refusal(call, InstanceIds=[instance_id, "i-00000000000000000"])
    assert (code, status) == ("InvalidInstanceID.NotFound", 400)
    assert cloud.instance(instance_id).state == "running"


def test_a_protected_instance_is_not_ended(cloud: SandboxCloud) -> None:
    instance_id = launch(cloud)
    ec2 = cloud.client("ec2")
    ec2.modify_instance_attribute(InstanceId=instance_id, DisableApiTermination={"Value": True})
    call = ec2.terminate_instances
    assert refusal(call, InstanceIds=[instance_id])[0] == "OperationNotPermitted"


def test_a_stopped_instance_holds_no_capacity_and_costs_nothing(cloud: SandboxCloud) -> None:
    cloud.set_capacity(1)
    instance_id = launch(cloud)
    ec2 = cloud.client("ec2")
    ec2.stop_instances(InstanceIds=[instance_id])
    eventually(lambda: cloud.instance(instance_id).state == "stopped")
    assert listed(cloud)[instance_id]["State"]["Name"] == "stopped"
    other = launch(cloud)
    assert refusal(ec2.start_instances, InstanceIds=[instance_id])[0] == (
        "InsufficientInstanceCapacity"
    )
    cloud.terminate(other)
    ec2.start_instances(InstanceIds=[instance_id])
    assert cloud.instance(instance_id).state == "running"
    line = next(x for x in cloud.bill().lines if x.instance_id == instance_id)
    assert line.billed_seconds == 120  # two starts, a minute each


def test_an_ended_instance_neither_stops_nor_starts(cloud: SandboxCloud) -> None:
    instance_id = launch(cloud)
    cloud.terminate(instance_id)
    ec2 = cloud.client("ec2")
    assert refusal(ec2.stop_instances, InstanceIds=[instance_id])[0] == "IncorrectInstanceState"
    assert refusal(ec2.start_instances, InstanceIds=[instance_id])[0] == "IncorrectInstanceState"


def test_switching_off_from_inside_stops_unless_told_to_terminate(cloud: SandboxCloud) -> None:
    stopping = launch(cloud)
    ending = launch(cloud, InstanceInitiatedShutdownBehavior="terminate")
    cloud.power_off(stopping)
    cloud.power_off(ending)
    eventually(lambda: cloud.instance(stopping).state == "stopped")
    assert cloud.instance(ending).state == "terminated"
    assert listed(cloud)[ending]["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"


def test_the_clouds_clock_may_differ_from_ours(build_cloud: BuildCloud) -> None:
    cloud = build_cloud(clock_skew_s=300)
    instance_id = launch(cloud)
    ahead = listed(cloud)[instance_id]["LaunchTime"] - datetime.now(UTC)
    assert timedelta(seconds=295) < ahead < timedelta(seconds=305)


# -- prices ---------------------------------------------------------------------------------


def test_spot_price_history_is_the_scripted_series(build_cloud: BuildCloud) -> None:
    series = [
        {"zone": "us-east-1a", "machine_type": "g5.xlarge", "at_s": -7200, "usd_per_hour": "0.4"},
        {"zone": "us-east-1a", "machine_type": "g5.xlarge", "at_s": -600, "usd_per_hour": "0.6"},
        {"zone": "us-east-1a", "machine_type": "g5.xlarge", "at_s": 3600, "usd_per_hour": "0.9"},
    ]
    cloud = build_cloud(spot_prices=series)
    ec2 = cloud.client("ec2")
    query = {"InstanceTypes": ["g5.xlarge"], "ProductDescriptions": ["Linux/UNIX"]}
    now_only = ec2.describe_spot_price_history(**query, StartTime=datetime.now(UTC))
    prices = {x["AvailabilityZone"]: x["SpotPrice"] for x in now_only["SpotPriceHistory"]}
    assert prices == {
        "us-east-1a": "0.600000",
        "us-east-1b": "0.352100",
        "us-east-1c": "0.352100",
    }
    past = ec2.describe_spot_price_history(
        **query,
        AvailabilityZone="us-east-1a",
        StartTime=datetime.now(UTC) - timedelta(hours=1),
    )
    assert [x["SpotPrice"] for x in past["SpotPriceHistory"]] == ["0.600000", "0.400000"]


def test_spot_price_history_comes_in_pages(cloud: SandboxCloud) -> None:
    pages = cloud.client("ec2").get_paginator("describe_spot_price_history")
    seen = [
        (x["InstanceType"], x["AvailabilityZone"])
        for page in pages.paginate(
            InstanceTypes=["g5.xlarge", "g4dn.xlarge"],
            StartTime=datetime.now(UTC),
            PaginationConfig={"PageSize": 4},
        )
        for x in page["SpotPriceHistory"]
    ]
    assert len(seen) == len(set(seen)) == 6


def test_windows_prices_are_not_known_here(cloud: SandboxCloud) -> None:
    reply = cloud.client("ec2").describe_spot_price_history(ProductDescriptions=["Windows"])
    assert reply["SpotPriceHistory"] == []


def test_list_prices_come_from_the_pricing_service(cloud: SandboxCloud) -> None:
    import json

    pricing = cloud.client("pricing")
    wanted = [
        {"Type": "TERM_MATCH", "Field": "instanceType", "Value": "g5.12xlarge"},
        {"Type": "TERM_MATCH", "Field": "regionCode", "Value": "us-east-1"},
        {"Type": "TERM_MATCH", "Field": "operatingSystem", "Value": "Linux"},
        {"Type": "TERM_MATCH", "Field": "tenancy", "Value": "Shared"},
    ]
    (text,) = pricing.get_products(ServiceCode="AmazonEC2", Filters=wanted)["PriceList"]
    product = json.loads(text)
    (term,) = product["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert Decimal(dimension["pricePerUnit"]["USD"]) == Decimal("5.672")
    assert product["product"]["attributes"]["vcpu"] == "48"
    every = pricing.get_paginator("get_products").paginate(
        ServiceCode="AmazonEC2", PaginationConfig={"PageSize": 10}
    )
    assert sum(len(page["PriceList"]) for page in every) == len(cloud.config.machine_types)
    assert refusal(pricing.get_products, ServiceCode="AmazonS3")[0] == "NotFoundException"


def test_a_price_above_the_ceiling_refuses_and_takes_back(build_cloud: BuildCloud) -> None:
    cloud = build_cloud(spot_notice_s=0.1)
    limit = {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.5"}}
    instance_id = launch(cloud, InstanceMarketOptions=limit)
    unlimited = launch(cloud, **SPOT)
    rise = [
        SpotPrice(zone=zone, machine_type="g5.xlarge", usd_per_hour=Decimal("0.7"))
        for zone in cloud.config.zones
    ]
    cloud.script_spot_prices(rise)
    eventually(lambda: cloud.instance(instance_id).state == "terminated")
    assert cloud.instance(unlimited).state == "running"
    call = cloud.client("ec2").run_instances
    assert refusal(call, **G5, InstanceMarketOptions=limit)[0] == "SpotMaxPriceTooLow"
    nonsense = {"MarketType": "spot", "SpotOptions": {"MaxPrice": "cheap"}}
    assert refusal(call, **G5, InstanceMarketOptions=nonsense)[0] == "InvalidParameterValue"


def test_the_bill_charges_the_market_by_the_second(cloud: SandboxCloud) -> None:
    spot, on_demand = launch(cloud, **SPOT), launch(cloud)
    cloud.terminate(spot)
    cloud.terminate(on_demand)
    bill = cloud.bill()
    owed = {line.instance_id: (line.billed_seconds, line.usd) for line in bill.lines}
    # 60 s of 0.3521 and of 1.006 USD per hour, to the micro-dollar
    assert owed == {spot: (60, Decimal("0.005868")), on_demand: (60, Decimal("0.016767"))}
    assert bill.total_usd == Decimal("0.022635")


@pytest.mark.parametrize(("waive", "usd"), [(True, "0"), (False, "0.005868")])
def test_the_first_hour_of_a_machine_taken_back_may_be_waived(
    build_cloud: BuildCloud, *, waive: bool, usd: str
) -> None:
    cloud = build_cloud(waive_interrupted_first_hour=waive)
    instance_id = launch(cloud, **SPOT)
    cloud.interrupt(instance_id, 0.0)
    eventually(lambda: cloud.instance(instance_id).state == "terminated")
    (line,) = cloud.bill().lines
    assert (line.waived, line.usd) == (waive, Decimal(usd))


# -- interruptions --------------------------------------------------------------------------


def test_only_live_spot_machines_are_taken_back(cloud: SandboxCloud) -> None:
    on_demand = launch(cloud)
    gone = launch(cloud, **SPOT)
    cloud.terminate(gone)
    with pytest.raises(WrongState, match="on demand"):
        cloud.interrupt(on_demand)
    with pytest.raises(WrongState, match="terminated"):
        cloud.interrupt(gone)
    with pytest.raises(UnknownInstance):
        cloud.interrupt("i-0")


def test_a_second_interruption_only_brings_the_end_forward(cloud: SandboxCloud) -> None:
    instance_id = launch(cloud, **SPOT)
    far = cloud.interrupt(instance_id, 60.0)
    assert cloud.interrupt(instance_id, 600.0) == far
    assert cloud.interrupt(instance_id, 0.0) < far
    eventually(lambda: cloud.instance(instance_id).state == "terminated")


# -- the rest -------------------------------------------------------------------------------


def fleet(cloud: SandboxCloud, *types: str, wanted: int = 1, **more: Any) -> Any:
    template = cloud.client("ec2").create_launch_template(
        LaunchTemplateName=f"fleet-{time.monotonic_ns()}",
        LaunchTemplateData={"ImageId": cloud.image_id},
    )["LaunchTemplate"]["LaunchTemplateId"]
    overrides = [
        {"InstanceType": each, "SubnetId": cloud.subnets["us-east-1a"], "Priority": float(rank)}
        for rank, each in enumerate(types)
    ]
    return {
        "Type": "instant",
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": wanted,
            "DefaultTargetCapacityType": "spot",
        },
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": "1"},
                "Overrides": overrides,
            }
        ],
        **more,
    }


def test_an_instant_fleet_starts_the_cheapest_offer_that_has_capacity(cloud: SandboxCloud) -> None:
    cloud.exhaust(machine_type="g4dn.xlarge")
    request = fleet(cloud, "g5.2xlarge", "g5.xlarge", "g4dn.xlarge")
    reply = cloud.client("ec2").create_fleet(**request)
    (started,) = reply["Instances"]
    assert (started["InstanceType"], started["Lifecycle"]) == ("g5.xlarge", "spot")
    (error,) = reply["Errors"]
    assert error["ErrorCode"] == "InsufficientInstanceCapacity"
    overrides = error["LaunchTemplateAndOverrides"]["Overrides"]
    assert overrides["InstanceType"] == "g4dn.xlarge"
    assert cloud.instance(started["InstanceIds"][0]).market is Market.SPOT


def test_a_prioritized_fleet_follows_its_priorities(cloud: SandboxCloud) -> None:
    strategy = {"SpotOptions": {"AllocationStrategy": "capacity-optimized-prioritized"}}
    request = fleet(cloud, "g5.2xlarge", "g5.xlarge", **strategy)
    reply = cloud.client("ec2").create_fleet(**request)
    assert reply["Instances"][0]["InstanceType"] == "g5.2xlarge"


def test_a_fleet_repeats_by_its_token_and_tells_what_it_could_not_get(cloud: SandboxCloud) -> None:
    cloud.set_capacity(2, machine_type="g5.xlarge")
    request = fleet(cloud, "g5.xlarge", wanted=3, ClientToken="fleet-1")
    ec2 = cloud.client("ec2")
    first, again = ec2.create_fleet(**request), ec2.create_fleet(**request)
    assert len(first["Instances"]) == 2
    assert first["Errors"][0]["ErrorCode"] == "InsufficientInstanceCapacity"
    assert again["Instances"] == first["Instances"]
    assert len(cloud.instances()) == 2


def test_only_instant_fleets_are_offered(cloud: SandboxCloud) -> None:
    call = cloud.client("ec2").create_fleet
    request = fleet(cloud, "g5.xlarge")
    assert refusal(call, **{**request, "Type": "maintain"})[0] == "UnsupportedOperation"


def test_offerings_are_what_this_cloud_sells(cloud: SandboxCloud) -> None:
    reply = cloud.client("ec2").describe_instance_type_offerings(
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": ["g5.xlarge"]}],
    )
    zones = {each["Location"] for each in reply["InstanceTypeOfferings"]}
    assert zones == {"us-east-1a", "us-east-1b", "us-east-1c"}


def test_objects_are_kept_in_s3(cloud: SandboxCloud) -> None:
    s3 = cloud.client("s3")
    s3.create_bucket(Bucket="checkpoints")
    body = b"x" * 3_000_000
    s3.put_object(Bucket="checkpoints", Key="a/b", Body=body)
    assert s3.get_object(Bucket="checkpoints", Key="a/b")["Body"].read() == body
    cloud.fault("s3:PUT", code="SlowDown")
    call = s3.put_object
    assert refusal(call, Bucket="checkpoints", Key="c", Body=b"") == ("SlowDown", 503)


def test_two_clouds_in_one_process_share_nothing(build_cloud: BuildCloud) -> None:
    one, other = build_cloud(), build_cloud()
    launch(one)
    assert len(listed(one)) == 1
    assert listed(other) == {}
    caller = other.client("sts").get_caller_identity()
    assert caller["Account"] == other.account_id != one.account_id


def test_calls_are_counted(cloud: SandboxCloud) -> None:
    launch(cloud)
    listed(cloud)
    calls = cloud.state().calls
    assert (calls["RunInstances"], calls["DescribeInstances"]) == (1, 1)


def test_hundreds_of_launches_are_all_kept(cloud: SandboxCloud) -> None:
    ec2 = cloud.client("ec2")
    for _ in range(10):
        ec2.run_instances(**{**G5, "MinCount": 20, "MaxCount": 20})
    pages = ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 3})
    seen = {i["InstanceId"] for p in pages for r in p["Reservations"] for i in r["Instances"]}
    assert len(seen) == 200
    assert {view.instance_id for view in cloud.instances()} == seen
