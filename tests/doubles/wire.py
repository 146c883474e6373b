"""Two sandbox clouds in this process, real providers before them, simulated nodes behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hybrid.domain.claim import Claim
from hybrid.domain.ids import ClaimId, MachineId
from hybrid.domain.pool_spec import POOL_SPEC, BurstPool
from hybrid.ledger.charges import charge_lines
from hybrid.ledger.replay import by_claim
from hybrid.simulation.clock import SimClock
from hybrid.simulation.engine import SimEngine
from hybrid.simulation.wire import Ground, Standing, WireWorld
from hybrid.store.sql_store import SqlStore
from providers.aws.provider import AwsProvider
from providers.aws.requests import TAG_CLAIM
from providers.gcp.names import LABEL_CLAIM
from providers.gcp.provider import GcpProvider
from providers.sandbox.cloud import SandboxCloud
from providers.sandbox.config import SandboxConfig
from providers.sandbox.gce.cloud import GceCloud
from providers.sandbox.gce.config import GceConfig
from tests.doubles.notice_queue import notice_queue

BEGIN = 1_790_000_000.0
"""A whole second: what clouds tell to the second is then exact."""

POOL: dict[str, Any] = {
    "kind": "burst",
    "markets": ["spot", "on_demand"],
    "ceilings": {"machines": 200, "usd_per_hour": 400},
    "boot": {"expected": "30s", "deadline": "5m"},
    "lease": {"duration": "10m", "end_tail": "30s"},
    "idle_after": "20s",
    "notice": "30s",
    "interruptions_per_hour": 0.05,
}


@dataclass(frozen=True, slots=True)
class Ends:
    """When a machine began and ended, and what it belongs to, by its cloud's own books."""

    cloud: str
    id: MachineId
    claim_id: ClaimId
    market: str
    zone: str
    launched_at: float
    ended_at: float | None
    end_is_told: bool
    """Whether the cloud tells when it ended; EC2 does not where a machine ended itself."""


@dataclass(slots=True)
class Clouds:
    """Both clouds and what is before and behind them."""

    clock: SimClock
    ec2: SandboxCloud
    gce: GceCloud
    world: WireWorld

    def books(self) -> list[Ends]:
        """Every machine that ever was."""
        return [*self._ec2_books(), *self._gce_books()]

    def living(self) -> list[Ends]:
        """What is there and costs money."""
        return [each for each in self.books() if each.ended_at is None]

    def _ec2_books(self) -> Iterator[Ends]:
        for view in self.ec2.instances():
            yield Ends(
                cloud="aws",
                id=MachineId(view.instance_id),
                claim_id=ClaimId(view.tags.get(TAG_CLAIM, "")),
                market=str(view.market),
                zone=view.zone,
                launched_at=view.launched_at,
                ended_at=view.ended_at,
                end_is_told=view.end_code != "Client.InstanceInitiatedShutdown",
            )

    def _gce_books(self) -> Iterator[Ends]:
        for view in self.gce.instances():
            yield Ends(
                cloud="gcp",
                id=MachineId(view.instance_id),
                claim_id=ClaimId(view.labels.get(LABEL_CLAIM, "")),
                market=str(view.market),
                zone=view.zone,
                launched_at=view.created_at,
                ended_at=view.ended_at,
                end_is_told=True,
            )


@contextmanager
def two_clouds(
    folder: Path,
    patch: pytest.MonkeyPatch,
    *,
    gce: GceConfig | None = None,
    seed: int = 0,
    hears: bool = False,
    **aws: Any,
) -> Iterator[Clouds]:
    """Both clouds, and a world of them; ``aws`` are settings of the EC2 sandbox. ``hears``: EC2's
    notices come through a queue."""
    clock = SimClock(BEGIN)
    config = SandboxConfig(machines=False, seed=seed, **aws)
    with (
        SandboxCloud(config, clock=clock.now) as ec2,
        GceCloud(gce or GceConfig(seed=seed), clock=clock.now) as gcp,
    ):
        for name, value in ec2.environment().items():
            patch.setenv(name, value)
        providers: dict[str, Any] = {
            "aws": AwsProvider(
                name="aws",
                region="us-east-1",
                installation="sim",
                endpoint_url=ec2.url,
                notice_queue=notice_queue(ec2) if hears else None,
                cache_dir=folder,
                now=clock.now,
            ),
            "gcp": GcpProvider(
                name="gcp",
                region="us-central1",
                installation="sim",
                endpoint_url=gcp.url,
                project=gcp.config.project,
                cache_dir=folder,
                now=clock.now,
            ),
        }
        engine = SimEngine("agent", clock, lambda job: job.spec.expected_runtime or 600.0)
        grounds = (_ec2_ground(ec2), _gce_ground(gcp))
        world = WireWorld(clock, providers, engine, grounds, pass_time=clock.advance)
        try:
            yield Clouds(clock, ec2, gcp, world)
        finally:
            providers["aws"].close()


def aws_pool(ec2: SandboxCloud, **fields: Any) -> dict[str, Any]:
    """A pool of one A10G each in two zones."""
    zones = [{"name": zone, "subnet": ec2.subnets[zone]} for zone in ec2.config.zones[:2]]
    return {
        **POOL,
        "name": "aws",
        "provider": "aws",
        "region": "us-east-1",
        "zones": zones,
        "template": {"image": ec2.image_id},
        "machine_types": ["g5.xlarge"],
        **fields,
    }


def gcp_pool(gce: GceCloud, **fields: Any) -> dict[str, Any]:
    """A pool of one L4 each in two zones."""
    return {
        **POOL,
        "name": "gcp",
        "provider": "gcp",
        "region": "us-central1",
        "zones": [{"name": zone} for zone in gce.config.zones[:2]],
        "template": {"image": gce.config.image},
        "machine_types": ["g2-standard-4"],
        **fields,
    }


def _spec(document: dict[str, Any]) -> BurstPool:
    spec = POOL_SPEC.validate_python(document)
    assert isinstance(spec, BurstPool)
    return spec


def _ec2_ground(ec2: SandboxCloud) -> Ground:
    def running() -> Iterator[Standing]:
        for view in ec2.instances():
            if view.state == "running":
                yield Standing(
                    id=MachineId(view.instance_id),
                    claim_id=ClaimId(view.tags.get(TAG_CLAIM, "")),
                    machine_type=view.machine_type,
                    launched_at=view.launched_at,
                )

    return Ground(_spec(aws_pool(ec2)), running, ec2.power_off, ec2.now)


def _gce_ground(gce: GceCloud) -> Ground:
    def running() -> Iterator[Standing]:
        for view in gce.instances():
            if view.status == "RUNNING":
                yield Standing(
                    id=MachineId(view.instance_id),
                    claim_id=ClaimId(view.labels.get(LABEL_CLAIM, "")),
                    machine_type=view.machine_type,
                    launched_at=view.created_at,
                )

    return Ground(_spec(gcp_pool(gce)), running, gce.stop, gce.now)


def assert_the_ledger_is_what_the_clouds_say(clouds: Clouds, store: SqlStore) -> None:
    """Every machine is charged once, from its cloud's first instant to its last; of one whose cloud
    does not tell its end, to when we saw it, which is no earlier."""
    claims: dict[str, Claim] = {claim.id: claim for claim in store.claims(limit=1_000_000)}
    money = by_claim(store.entries())
    pools = {pool.spec.name: pool.spec for pool in store.load(now=0.0).pools.values()}
    machines: Counter[str] = Counter()
    for machine in clouds.books():
        claim = claims[machine.claim_id]
        machines[claim.id] += 1
        assert machine.ended_at is not None
        pool = pools[claim.pool]
        assert isinstance(pool, BurstPool)
        lines = charge_lines(
            claim.offer.price_micros_per_hour,
            launched_at=machine.launched_at,
            ended_at=machine.ended_at,
            disk_gib=pool.disk,
            disk_usd_per_gib_hour=pool.disk_usd_per_gib_hour,
        )
        cost = sum(micros for _, micros in lines)
        charged = money[claim.id].charged_micros
        if machine.end_is_told:
            assert charged == cost, (
                machine,
                claim.history,
                [entry for entry in store.entries() if entry.claim_id == claim.id],
            )
        else:
            assert charged >= cost, (machine, claim)
        assert money[claim.id].held_micros == 0
    assert set(machines.values()) == {1}, "a claim had two machines"
    for claim in claims.values():
        if claim.id not in machines:
            assert money[claim.id].charged_micros == 0, claim
