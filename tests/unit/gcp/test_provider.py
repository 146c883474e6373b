"""The provider against a Compute Engine that misbehaves, beyond the contract of every cloud."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from hybrid.agent.metadata import GceMetadata
from hybrid.domain.ids import ClaimId, MachineId
from hybrid.domain.job_spec import Market
from hybrid.domain.pool_spec import POOL_SPEC, BurstPool
from hybrid.ports.capacity import BootInfo, Leftover, MachineState, NoticeKind
from hybrid.ports.errors import (
    CapacityUnavailable,
    Gone,
    InUse,
    InvalidRequest,
    OutcomeUnknown,
    QuotaExceeded,
)
from providers.conformance import JOIN_TOKEN, a_claim
from providers.gcp import create
from providers.gcp.leftovers import unused
from providers.gcp.names import LABEL_CLAIM, LABEL_INSTALLATION, instance_name
from providers.gcp.provider import GcpProvider
from providers.sandbox.gce.cloud import GceCloud
from providers.sandbox.gce.config import GceConfig
from tests.doubles.clock import Clock

ZONE = "us-central1-a"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sandbox(clock: Clock) -> Iterator[GceCloud]:
    config = GceConfig(
        listing_lag_s=30.0,
        reservations={"week-31": 1},
        templates={
            "node": {
                "disks": [
                    {
                        "boot": True,
                        "initializeParams": {
                            "sourceImage": "projects/sandbox/global/images/hybrid-node"
                        },
                    }
                ]
            }
        },
    )
    with GceCloud(config, clock=clock) as cloud:
        yield cloud


@pytest.fixture
def boot() -> BootInfo:
    return BootInfo(
        installation=f"inst-{uuid.uuid4().hex[:12]}",
        server_url="http://127.0.0.1:1",
        checkpoint_url="file:///nowhere",
    )


@pytest.fixture
def provider(sandbox: GceCloud, boot: BootInfo, clock: Clock, tmp_path: Path) -> GcpProvider:
    return GcpProvider(
        name="gcp",
        region="us-central1",
        installation=boot.installation,
        endpoint_url=sandbox.url,
        project=sandbox.config.project,
        cache_dir=tmp_path,
        now=clock,
    )


def pool(sandbox: GceCloud, **fields: Any) -> BurstPool:
    document = {
        "kind": "burst",
        "name": "cloud",
        "provider": "gcp",
        "region": "us-central1",
        "zones": [{"name": ZONE}],
        "template": {"image": sandbox.config.image},
        "machine_types": ["g2-standard-4"],
        "markets": ["spot", "on_demand"],
        "ceilings": {"machines": 10, "usd_per_hour": 100},
        **fields,
    }
    spec = POOL_SPEC.validate_python(document)
    assert isinstance(spec, BurstPool)
    return spec


def request(
    provider: GcpProvider,
    spec: BurstPool,
    boot: BootInfo,
    claim: str = "c-1",
    market: Market = Market.SPOT,
) -> str:
    offer = next(o for o in provider.offers([spec]).usable if o.market is market)
    return provider.prepare(a_claim(claim, offer, boot), spec, boot)


def test_attached_gpus_are_offered_launched_and_listed_as_the_pool_writes_them(
    sandbox: GceCloud, provider: GcpProvider, boot: BootInfo, clock: Clock
) -> None:
    written = "n1-standard-8+2xnvidia-tesla-t4"
    spec = pool(sandbox, machine_types=[written])
    spot, steady = provider.offers([spec]).usable
    assert (spot.gpus, spot.gpu_model, spot.cpus) == (2, "t4", 8.0)
    assert steady.price_micros_per_hour == round(
        (8 * 0.031611 + 30 * 0.004237 + 2 * 0.35) * 1_000_000
    )
    assert spot.price_micros_per_hour == pytest.approx(0.4 * steady.price_micros_per_hour, abs=1)
    provider.launch(request(provider, spec, boot), JOIN_TOKEN)
    clock.at += 60
    (listed,) = provider.list_machines()
    assert listed.machine_type == written


def test_a_template_is_filled_in_and_a_missing_one_is_an_invalid_request(
    sandbox: GceCloud, provider: GcpProvider, boot: BootInfo
) -> None:
    provider.launch(request(provider, pool(sandbox, template={"id": "node"}), boot), JOIN_TOKEN)
    missing = pool(sandbox, template={"id": "nowhere"})
    with pytest.raises(InvalidRequest):
        provider.launch(request(provider, missing, boot, "c-2"), JOIN_TOKEN)


def test_a_reservation_is_drawn_on_until_it_is_used_up(
    sandbox: GceCloud, provider: GcpProvider, boot: BootInfo
) -> None:
    sandbox.exhaust(zone=ZONE)
    spec = pool(sandbox, template={"image": sandbox.config.image, "reservation": "week-31"})
    provider.launch(request(provider, spec, boot, "c-1", Market.ON_DEMAND), JOIN_TOKEN)
    with pytest.raises(CapacityUnavailable):
        provider.launch(request(provider, spec, boot, "c-2", Market.ON_DEMAND), JOIN_TOKEN)


def test_a_new_machine_may_not_be_listed_yet_and_can_be_ended_all_the_same(
    sandbox: GceCloud, provider: GcpProvider, boot: BootInfo, clock: Clock
) -> None:
    made = provider.launch(request(provider, pool(sandbox), boot), JOIN_TOKEN)
    assert provider.list_machines() == ()
    provider.terminate(made.id)
    (ended,) = provider.list_machines()
    assert (ended.id, ended.state) == (made.id, MachineState.ENDED)


def test_past_the_life_of_its_request_id_a_repeat_still_finds_its_machine(
    sandbox: GceCloud, provider: GcpProvider, boot: BootInfo, clock: Clock
) -> None:
    asked = request(provider, pool(sandbox), boot)
    made = provider.launch(asked, JOIN_TOKEN)
    clock.at += 4_000
    assert provider.launch(asked, JOIN_TOKEN).id == made.id
    assert len(sandbox.instances()) == 1


def test_a_machine_of_that_name_that_is_not_the_claims_is_left_alone(
    sandbox: GceCloud, provider: GcpProvider, boot: BootInfo, clock: Clock
) -> None:
    asked = request(provider, pool(sandbox), boot)
    provider.launch(asked, JOIN_TOKEN)
    stored = json.loads(asked)
    stored["token"] = "somebody-elses"
    stored["params"]["requestId"] = str(uuid.uuid4())
    with pytest.raises(InvalidRequest):
        provider.launch(json.dumps(stored), JOIN_TOKEN)


def test_an_insert_that_is_not_done_in_time_is_unknown_and_goes_on(
    sandbox: GceCloud,
    provider: GcpProvider,
    boot: BootInfo,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("providers.gcp.provider.LAUNCH_S", 0.0)
    sandbox._state.config = sandbox.config.model_copy(update={"operation_s": 90.0})
    asked = request(provider, pool(sandbox), boot)
    with pytest.raises(OutcomeUnknown, match="was not done within"):
        provider.launch(asked, JOIN_TOKEN)
    clock.at += 90
    assert provider.launch(asked, JOIN_TOKEN).claim_id == ClaimId("c-1")
    assert len(sandbox.instances()) == 1


def test_a_zone_that_cannot_be_reached_makes_the_listing_an_error(
    sandbox: GceCloud, provider: GcpProvider
) -> None:
    sandbox.cut_off([ZONE])
    with pytest.raises(OutcomeUnknown, match="UNREACHABLE"):
        provider.list_machines()
    sandbox.cut_off([])
    assert provider.list_machines() == ()


def test_a_machine_switched_off_from_inside_is_stopped_and_still_to_be_ended(
    sandbox: GceCloud, provider: GcpProvider, boot: BootInfo, clock: Clock
) -> None:
    made = provider.launch(request(provider, pool(sandbox), boot), JOIN_TOKEN)
    clock.at += 60
    sandbox.stop(made.id)
    assert [m.state for m in provider.list_machines()] == [MachineState.STOPPED]
    provider.terminate(made.id)
    assert [m.state for m in provider.list_machines()] == [MachineState.ENDED]


def test_a_machine_is_found_by_its_id_after_a_restart_and_a_foreign_one_never(
    sandbox: GceCloud, provider: GcpProvider, boot: BootInfo, clock: Clock, tmp_path: Path
) -> None:
    made = provider.launch(request(provider, pool(sandbox), boot), JOIN_TOKEN)
    clock.at += 60
    stranger = create(
        name="gcp",
        region="us-central1",
        installation="stranger",
        endpoint_url=sandbox.url,
        project="sandbox",
        cache_dir=str(tmp_path),
    )
    stranger.terminate(made.id)
    assert sandbox.instances()[0].ended_at is None
    again = create(
        name="gcp",
        region="us-central1",
        installation=boot.installation,
        endpoint_url=sandbox.url,
        project="sandbox",
        cache_dir=str(tmp_path),
    )
    again.terminate(made.id)
    assert sandbox.instances()[0].ended_at is not None
    again.terminate(MachineId("123456789"))


def test_quota_is_counted_in_machines_and_the_whole_projects_counts_too(
    sandbox: GceCloud, provider: GcpProvider, boot: BootInfo
) -> None:
    spec = pool(sandbox, machine_types=["g2-standard-24"])
    sandbox.set_quota("PREEMPTIBLE_NVIDIA_L4_GPUS", 7)
    sandbox.set_quota("NVIDIA_L4_GPUS", 100)
    sandbox.set_quota("GPUS_ALL_REGIONS", 10)

    def left() -> dict[Market, int | None]:
        return {o.market: o.quota_left for o in provider.offers([spec]).usable}

    assert left() == {Market.SPOT: 3, Market.ON_DEMAND: 5}
    provider.launch(request(provider, spec, boot), JOIN_TOKEN)
    assert left() == {Market.SPOT: 2, Market.ON_DEMAND: 4}


def test_the_quota_of_all_regions_closes_everything_in_the_region(
    sandbox: GceCloud, provider: GcpProvider, boot: BootInfo
) -> None:
    asked = request(provider, pool(sandbox), boot)
    sandbox.set_quota("GPUS_ALL_REGIONS", 0)
    with pytest.raises(QuotaExceeded) as refusal:
        provider.launch(asked, JOIN_TOKEN)
    assert refusal.value.scope == "quota:gcp/us-central1/*/*"


def test_a_preemption_is_announced_by_the_operations_and_by_the_metadata_service(
    sandbox: GceCloud, provider: GcpProvider, boot: BootInfo, clock: Clock
) -> None:
    made = provider.launch(request(provider, pool(sandbox), boot), JOIN_TOKEN)
    clock.at += 60
    heard = GceMetadata(sandbox.metadata_url(made.id))
    try:
        assert heard.machine_id() == made.id
        assert heard.notice() is None
        ends_at = sandbox.preempt(made.id)
        assert heard.notice() is not None
    finally:
        heard.close()
    (listed,) = provider.list_machines()
    (notice,) = provider.notices()
    assert listed.interrupted
    assert (notice.machine_id, notice.kind) == (made.id, NoticeKind.INTERRUPTION)
    assert notice.at == pytest.approx(ends_at, abs=0.01)
    clock.at += 31
    (ended,) = provider.list_machines()
    assert (ended.state, ended.interrupted) == (MachineState.ENDED, True)
    assert ended.ended_at == pytest.approx(ends_at, abs=0.01)


def test_the_metadata_service_answers_nobody_without_its_header(sandbox: GceCloud) -> None:
    answer = httpx.get(f"{sandbox.metadata_url('1')}/computeMetadata/v1/instance/id")
    assert answer.status_code == 403


def test_prices_are_kept_on_disk_with_their_age(
    sandbox: GceCloud, provider: GcpProvider, clock: Clock, tmp_path: Path
) -> None:
    (spot, _) = provider.offers([pool(sandbox)]).usable
    assert (spot.price_source, spot.priced_at) == ("billing catalogue", clock.at)
    fetched_at = clock.at
    clock.at += 3_600
    sandbox.fault("skus.list", code="forbidden", times=None)
    again = GcpProvider(
        name="gcp",
        region="us-central1",
        installation="other",
        endpoint_url=sandbox.url,
        project="sandbox",
        cache_dir=tmp_path,
        now=clock,
    )
    assert again.offers([pool(sandbox)]).usable[0].priced_at == fetched_at


def test_a_good_launch_and_its_end_cost_three_calls(
    sandbox: GceCloud, provider: GcpProvider, boot: BootInfo
) -> None:
    asked = request(provider, pool(sandbox), boot)
    before = sum(sandbox.calls().values())
    made = provider.launch(asked, JOIN_TOKEN)
    provider.terminate(made.id)
    assert sum(sandbox.calls().values()) - before <= 3


def test_without_a_project_nothing_is_set_up(sandbox: GceCloud) -> None:
    with pytest.raises(ValueError, match="no project"):
        create(name="gcp", region="us-central1", installation="i", endpoint_url=sandbox.url)


def test_a_disk_that_its_template_keeps_is_left_over_and_can_be_removed(
    sandbox: GceCloud, provider: GcpProvider, boot: BootInfo, clock: Clock
) -> None:
    kept = pool(sandbox, template={"id": "node"})
    made = provider.launch(request(provider, kept, boot, "c-1"), JOIN_TOKEN)
    gone = provider.launch(request(provider, pool(sandbox), boot, "c-2"), JOIN_TOKEN)
    clock.at += 3600
    provider.list_machines()
    assert provider.leftovers() == (), "disks that are used"
    in_use = Leftover(kind="disk", id=instance_name(boot.installation, ClaimId("c-1")), place=ZONE)
    with pytest.raises(InUse):
        provider.remove(in_use)
    for machine in (made, gone):
        provider.terminate(machine.id)
    clock.at += 60
    assert {each.state for each in provider.list_machines()} == {MachineState.ENDED}
    (left,) = provider.leftovers()
    assert (left.kind, left.place, left.claim_id) == ("disk", ZONE, "c-1")
    provider.remove(left)
    clock.at += 60
    assert provider.leftovers() == ()
    with pytest.raises(Gone):
        provider.remove(left)
    ends = [each for each in provider.list_machines() if each.id == made.id]
    assert len(ends) == 1, "deleting a disk ends no machine again"


def test_a_disk_that_is_being_made_or_is_somebody_elses_is_not_left_over(boot: BootInfo) -> None:
    now = 1_790_000_000.0

    def row(name: str, age_s: float, **fields: Any) -> dict[str, Any]:
        made = f"{datetime.fromtimestamp(now - age_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
        return {"name": name, "zone": f"z/{ZONE}", "creationTimestamp": made, **fields}

    ours = instance_name(boot.installation, ClaimId("c-1"))
    assert unused([row(ours, 60)], boot.installation, now) == ()
    (old,) = unused([row(ours, 700)], boot.installation, now)
    assert old.claim_id == "c-1"
    assert unused([row(ours, 700, users=["i"])], boot.installation, now) == ()
    (foreign,) = unused(
        [row("data", 700, labels={LABEL_INSTALLATION: "other", LABEL_CLAIM: "c-1"})],
        boot.installation,
        now,
    )
    assert foreign.claim_id is None, "the loop removes only what names a claim"


def test_what_compute_engine_has_not_for_gangs_is_told_with_the_offers(
    sandbox: GceCloud, provider: GcpProvider
) -> None:
    odd = pool(sandbox, name="odd", gangs={"placement_group": True})
    found = provider.offers([pool(sandbox), odd])
    assert {offer.pool for offer in found.usable} <= {"cloud"}
    told = dict(found.ignored)
    for market in ("spot", "on_demand"):
        assert "`gangs` is for EC2" in told[f"odd/{ZONE}/g2-standard-4/{market}"]
