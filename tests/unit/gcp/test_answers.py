"""What Compute Engine answers, and what we take it for: errors, operations, instances, prices."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hybrid.domain.ids import ClaimId, MachineId
from hybrid.domain.job_spec import Market
from hybrid.ports.capacity import MachineState
from hybrid.ports.errors import (
    AuthFailed,
    CapacityUnavailable,
    Gone,
    InUse,
    InvalidRequest,
    OutcomeUnknown,
    QuotaExceeded,
    RateLimited,
)
from providers.gcp.errors import CODES, Kind, Said, Scopes, of_http, of_operation, typed
from providers.gcp.machines import PREEMPTED, STATES, deed, machine, notices, with_ends
from providers.gcp.names import instance_name
from providers.gcp.prices import series_name
from providers.gcp.quotas import METRICS, market_metric, metric, read, tightest

OFFER = "cloud/us-central1-a/g2-standard-4/spot"
SCOPES = Scopes(
    provider="gcp",
    region="us-central1",
    zone="us-central1-a",
    offer=OFFER,
    family="NVIDIA_L4_GPUS",
    market="spot",
)

# --- errors -----------------------------------------------------------------------------------

EXPECTED = {
    Kind.CAPACITY_ZONE: (CapacityUnavailable, "zone:gcp/us-central1-a"),
    Kind.CAPACITY_OFFER: (CapacityUnavailable, f"offer:{OFFER}"),
    Kind.QUOTA: (QuotaExceeded, "quota:gcp/us-central1/NVIDIA_L4_GPUS/spot"),
    Kind.RATE: (RateLimited, "provider:gcp"),
    Kind.AUTH: (AuthFailed, "provider:gcp"),
    Kind.INVALID: (InvalidRequest, f"offer:{OFFER}"),
    Kind.MISSING: (InvalidRequest, f"offer:{OFFER}"),
    Kind.IN_USE: (InUse, None),
}


@pytest.mark.parametrize(("code", "kind"), sorted(CODES.items()))
def test_every_code_has_its_type_and_scope(code: str, kind: Kind) -> None:
    error = typed(Said(code=code, message="said so"), SCOPES)
    expected, scope = EXPECTED[kind]
    assert type(error) is expected
    assert getattr(error, "scope", None) == scope
    assert getattr(error, "code", None) == (None if scope is None else code)


def test_what_is_not_in_the_table_is_unknown() -> None:
    assert isinstance(typed(Said(code="NEVER_SEEN", message=""), SCOPES), OutcomeUnknown)


def test_what_is_missing_outside_a_launch_is_gone() -> None:
    scopes = Scopes(provider="gcp", region="us-central1")
    assert isinstance(typed(Said(code="notFound", message=""), scopes), Gone)


@pytest.mark.parametrize(
    ("named", "closed"),
    [
        ("NVIDIA_L4_GPUS", "NVIDIA_L4_GPUS/spot"),
        ("PREEMPTIBLE_NVIDIA_L4_GPUS", "NVIDIA_L4_GPUS/spot"),
        ("GPUS_ALL_REGIONS", "*/*"),
        ("CPUS", "*/*"),
        ("", "NVIDIA_L4_GPUS/spot"),
    ],
)
def test_a_quota_that_all_machines_share_closes_all_of_them(named: str, closed: str) -> None:
    error = typed(Said(code="QUOTA_EXCEEDED", message="", metric=named), SCOPES)
    assert getattr(error, "scope", None) == f"quota:gcp/us-central1/{closed}"


def test_a_refusal_for_speed_is_told_from_one_for_quota_by_its_reason() -> None:
    def refused(reason: str) -> Any:
        body = {"error": {"code": 403, "message": "no", "errors": [{"reason": reason}]}}
        return typed(of_http(403, body, retry_after_s=7.0), SCOPES)

    assert isinstance(refused("quotaExceeded"), QuotaExceeded)
    assert refused("rateLimitExceeded").retry_after_s == 7.0


def test_a_401_is_about_credentials_whatever_it_gives_as_its_reason() -> None:
    body = {"error": {"code": 401, "errors": [{"reason": "required"}]}}
    assert isinstance(typed(of_http(401, body), SCOPES), AuthFailed)
    assert isinstance(typed(of_http(401, None), SCOPES), AuthFailed)


@pytest.mark.parametrize("body", [None, [], {"error": "x"}, {"error": {"code": 503}}])
def test_an_error_that_gives_no_reason_is_an_unknown_outcome(body: Any) -> None:
    assert isinstance(typed(of_http(503, body), SCOPES), OutcomeUnknown)


def test_a_done_operation_may_have_failed_and_names_the_quota() -> None:
    quota = {"metricName": "compute.googleapis.com/gpus_all_regions", "limit": 4}
    said = of_operation(
        {
            "status": "DONE",
            "error": {
                "errors": [{"code": "QUOTA_EXCEEDED", "errorDetails": [{"quotaInfo": quota}]}]
            },
        }
    )
    assert said is not None
    assert (said.code, said.metric) == ("QUOTA_EXCEEDED", "GPUS_ALL_REGIONS")
    assert of_operation({"status": "DONE"}) is None


# --- instances and operations -----------------------------------------------------------------

NAME = instance_name("inst", ClaimId("c-j1-1-0-0"))
BASE = "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a"


def an_instance(**fields: Any) -> dict[str, Any]:
    return {
        "id": "77",
        "name": NAME,
        "zone": BASE,
        "status": "RUNNING",
        "machineType": f"{BASE}/machineTypes/g2-standard-4",
        "creationTimestamp": "2026-07-01T03:00:00.000-07:00",
        "labels": {"hybrid-claim": "c-j1-1-0-0", "hybrid-token": "t"},
        **fields,
    }


def an_operation(kind: str, began: str, ended: str | None, **fields: Any) -> dict[str, Any]:
    return {
        "operationType": kind,
        "targetId": "77",
        "targetLink": f"{BASE}/instances/{NAME}",
        "zone": BASE,
        "status": "DONE" if ended else "RUNNING",
        "insertTime": f"2026-07-01T10:{began}.000Z",
        **({"endTime": f"2026-07-01T10:{ended}.000Z"} if ended else {}),
        **fields,
    }


def deeds(*operations: dict[str, Any]) -> list[Any]:
    return [found for each in operations if (found := deed(each)) is not None]


def test_an_instants_zone_is_read_with_it() -> None:
    assert machine(an_instance()).launched_at == 1_782_900_000.0


@pytest.mark.parametrize(("status", "state"), sorted(STATES.items()))
def test_every_status_has_its_state(status: str, state: MachineState) -> None:
    assert machine(an_instance(status=status)).state is state


def test_attached_gpus_belong_to_how_a_pool_writes_the_type() -> None:
    attached = {"acceleratorType": f"{BASE}/acceleratorTypes/nvidia-tesla-t4"}
    for count, written in (
        (1, "n1-standard-8+nvidia-tesla-t4"),
        (2, "n1-standard-8+2xnvidia-tesla-t4"),
    ):
        found = machine(
            an_instance(
                machineType=f"{BASE}/machineTypes/n1-standard-8",
                guestAccelerators=[{**attached, "acceleratorCount": count}],
            )
        )
        assert found.machine_type == written


def test_a_deleted_machine_is_told_of_by_the_operations_on_it() -> None:
    told = deeds(an_operation("delete", "30:00", "30:20"), an_operation("insert", "00:00", "00:09"))
    (ended,) = with_ends([], told, "inst")
    assert (ended.id, ended.claim_id) == (MachineId("77"), ClaimId("c-j1-1-0-0"))
    assert ended.state is MachineState.ENDED
    assert ended.ended_at is not None
    assert ended.ended_at - ended.launched_at == 30 * 60 + 20
    assert not ended.interrupted


def test_a_preempted_machine_was_taken_and_its_end_is_announced() -> None:
    told = deeds(
        an_operation("insert", "00:00", "00:09"), an_operation(PREEMPTED, "30:00", "30:30")
    )
    (ended,) = with_ends([], told, "inst")
    assert (ended.interrupted, ended.end_reason) == (True, "preempted")
    (notice,) = notices(told)
    assert notice.at - ended.launched_at == 30 * 60 + 30
    still = machine(an_instance(status="STOPPING"))
    assert [m.interrupted for m in with_ends([still], told, "inst")] == [True]


@pytest.mark.parametrize(
    "told",
    [
        deeds(an_operation("delete", "30:00", "30:20")),
        deeds(an_operation("insert", "00:00", "00:09")),
        deeds(
            an_operation("insert", "00:00", "00:09"),
            an_operation("delete", "30:00", "30:20", error={"errors": [{"code": "X"}]}),
        ),
        deeds(an_operation("insert", "00:00", "00:09"), an_operation("delete", "30:00", None)),
    ],
    ids=["no beginning", "no end", "the end failed", "the end is not done"],
)
def test_operations_that_do_not_tell_a_whole_life_say_nothing(told: list[Any]) -> None:
    assert with_ends([], told, "inst") == ()


def test_an_operation_on_somebody_elses_machine_says_nothing() -> None:
    told = deeds(an_operation("insert", "00:00", "00:09"), an_operation("delete", "30:00", "30:20"))
    assert with_ends([], told, "another") == ()


# --- quotas and prices ------------------------------------------------------------------------


def test_spot_machines_count_against_the_preemptible_quota_of_their_gpu() -> None:
    assert metric("https://x/acceleratorTypes/nvidia-l4") == "NVIDIA_L4_GPUS"
    assert market_metric("NVIDIA_L4_GPUS", Market.SPOT) == "PREEMPTIBLE_NVIDIA_L4_GPUS"
    assert market_metric("NVIDIA_L4_GPUS", Market.ON_DEMAND) == "NVIDIA_L4_GPUS"
    assert metric("nvidia-never-seen") == ""
    assert len(set(METRICS.values())) == len(METRICS)


def test_of_two_quotas_the_tighter_one_is_told() -> None:
    needs = {"g2-standard-24": (24.0, 96.0, "nvidia-l4", 2)}
    regional = read([{"metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 8.0, "usage": 3.0}])
    found = tightest(needs, regional, {}, region="us-central1", at=1.0)
    spot = found[("g2-standard-24", Market.SPOT)]
    assert spot.machines_left == 2
    assert spot.words() == "3 of 8 GPU for PREEMPTIBLE_NVIDIA_L4_GPUS in us-central1"
    assert ("g2-standard-24", Market.ON_DEMAND) not in found
    everywhere = read([{"metric": "GPUS_ALL_REGIONS", "limit": 4.0, "usage": 5.0}])
    found = tightest(needs, regional, everywhere, region="us-central1", at=1.0)
    assert [each.words() for each in found.values()] == [
        "5 of 4 GPU for GPUS_ALL_REGIONS of the project"
    ] * 2
    assert [each.machines_left for each in found.values()] == [0, 0]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("g2-standard-4", "G2"),
        ("n1-standard-8+2xnvidia-tesla-t4", "N1 Predefined"),
        ("a3-highgpu-8g", "A3"),
        ("a3-megagpu-8g", "A3Plus"),
        ("x9-nonsense", None),
    ],
)
def test_a_series_has_its_name_in_the_price_list(written: str, name: str | None) -> None:
    assert series_name(written) == name


def test_prices_add_up_from_their_parts(tmp_path: Path) -> None:
    from providers.gcp.prices import TABLE, Prices
    from providers.gcp.rest import Rest

    # nothing listens there: the table stands in, and only for what is sold at list price
    rest = Rest(SCOPES, "http://127.0.0.1:9")
    prices = Prices(
        rest, region="us-central1", scopes=SCOPES, cache_dir=tmp_path, now=lambda: 1_000_000.0
    )
    needs = {"g2-standard-4": (4.0, 16.0, "nvidia-l4", 1)}
    (price,) = prices.of(needs, Market.ON_DEMAND).values()
    expected = 4 * TABLE["G2 core"] + 16 * TABLE["G2 ram"] + TABLE["nvidia-l4"]
    assert Decimal(price.micros_per_hour) == expected * 1_000_000
    assert price.source == "built-in table of 2025-10-01"
    assert prices.of(needs, Market.SPOT) == {}
