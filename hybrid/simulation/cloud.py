"""A cloud that is an object: machines, prices, scarcity, and answers that get lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from hybrid.domain.claim import Claim
from hybrid.domain.ids import ClaimId, MachineId, PoolName
from hybrid.domain.job_spec import Market
from hybrid.domain.offer import Offer, offer_id
from hybrid.domain.pool_spec import BurstPool
from hybrid.hardware.catalogue import gpu_model
from hybrid.hardware.machine_types import machine_type
from hybrid.ports.capacity import (
    BootInfo,
    Machine,
    MachineState,
    Notice,
    NoticeKind,
    Offers,
)
from hybrid.ports.clock import Clock
from hybrid.ports.errors import CapacityUnavailable, OutcomeUnknown, QuotaExceeded
from hybrid.topology.presets import preset

LostAnswer = Callable[[str], bool]
"""Whether the answer to a call of that name is lost, after the deed."""


@dataclass(slots=True)
class Misfortune:
    """What goes wrong until it is taken back.

    ``empty`` names offers that are sold out, by (zone, machine type, market); ``lose`` counts the
    answers to launches that will be lost after the deed; ``deaf`` makes every call unknown;
    ``listing_lag_s`` is how late a new machine shows.
    """

    empty: set[tuple[str, str, Market]] = field(default_factory=set)
    quota: int | None = None
    lose: int = 0
    deaf: bool = False
    listing_lag_s: float = 0.0


class SimCloud:
    """A CapacityProvider in memory.

    ``prices`` are micro-dollars per hour by (machine type, market). Machines end when told to, when
    their own lease is over, or when the cloud takes them; each keeps its own price for its life.
    """

    def __init__(self, name: str, clock: Clock, prices: dict[tuple[str, Market], int]) -> None:
        self._name, self._clock = name, clock
        self.prices = prices
        self.trouble = Misfortune()
        self.machines: dict[MachineId, Machine] = {}
        self.requests: dict[MachineId, dict[str, str]] = {}
        self._by_token: dict[str, MachineId] = {}
        self._notices: dict[MachineId, Notice] = {}
        self.launches = 0

    @property
    def name(self) -> str:
        """What pools call it."""
        return self._name

    @property
    def token_validity_s(self) -> float:
        """A day, as at EC2."""
        return 86_400.0

    # --- the port -------------------------------------------------------------------------------

    def offers(self, pools: Sequence[BurstPool]) -> Offers:
        """Every combination that has a price."""
        self._hear()
        usable: list[Offer] = []
        ignored: list[tuple[str, str]] = []
        for pool in pools:
            for zone in pool.zones:
                for kind in pool.machine_types:
                    for market in pool.markets:
                        name = offer_id(PoolName(pool.name), zone.name, kind, market)
                        price = self.prices.get((kind, market))
                        if price is None:
                            ignored.append((str(name), "no price"))
                        else:
                            usable.append(self._offer(pool, zone.name, kind, market, price))
        return Offers(tuple(usable), tuple(ignored))

    def list_machines(self) -> tuple[Machine, ...]:
        """All machines that show already."""
        self._hear()
        shown_before = self._clock.now() - self.trouble.listing_lag_s
        return tuple(m for m in self.machines.values() if m.launched_at <= shown_before)

    def prepare(self, claim: Claim, pool: BurstPool, boot: BootInfo) -> str:
        """The facts of the claim, as JSON."""
        request = {
            "claim": claim.id,
            "token": claim.token,
            "pool": pool.name,
            "region": claim.offer.region,
            "zone": claim.offer.zone,
            "machine_type": claim.offer.machine_type,
            "market": claim.offer.market,
            "lease_s": str(pool.lease.duration),
            "boot_s": str(claim.offer.boot_s),
            "price": str(claim.offer.price_micros_per_hour),
            "installation": boot.installation,
        }
        return json.dumps(request, sort_keys=True)

    def launch(self, request: str, join_token: str) -> Machine:  # noqa: ARG002 - nobody joins by it
        """Make the machine, or find the one that the token has made."""
        self._hear()
        asked: dict[str, str] = json.loads(request)
        known = self._by_token.get(asked["token"])
        if known is None:
            self._refuse(asked)
            known = self._make(asked)
        if self.trouble.lose > 0:
            self.trouble.lose -= 1
            raise OutcomeUnknown("the answer was lost")
        return self.machines[known]

    def terminate(self, machine_id: MachineId) -> None:
        """End a machine."""
        self._hear()
        self.end(machine_id, "ended by request")

    def notices(self) -> tuple[Notice, ...]:
        """Interruptions that are announced."""
        return tuple(self._notices.values())

    def console(self, machine_id: MachineId) -> str:
        """What machine it was."""
        return json.dumps(self.requests.get(machine_id, {}))

    # --- what the world does --------------------------------------------------------------------

    def end(self, machine_id: MachineId, why: str, *, interrupted: bool = False) -> None:
        """A machine is over, now."""
        machine = self.machines.get(machine_id)
        if machine is None or machine.state is MachineState.ENDED:
            return
        self.machines[machine_id] = replace(
            machine,
            state=MachineState.ENDED,
            ended_at=self._clock.now(),
            end_reason=why,
            interrupted=interrupted,
        )
        self._notices.pop(machine_id, None)

    def announce(self, machine_id: MachineId, notice_s: float) -> None:
        """Say that a machine will be taken; :meth:`take_what_is_due` takes it."""
        at = self._clock.now() + notice_s
        self._notices[machine_id] = Notice(
            machine_id=machine_id, kind=NoticeKind.INTERRUPTION, at=at
        )

    def take_what_is_due(self) -> None:
        """Take the machines whose notice has run out."""
        for notice in list(self._notices.values()):
            if self._clock.now() >= notice.at:
                self.end(notice.machine_id, "taken back", interrupted=True)

    @property
    def running(self) -> tuple[Machine, ...]:
        """Machines that are not over."""
        return tuple(m for m in self.machines.values() if m.state is not MachineState.ENDED)

    def bill_micros(self, but: Collection[MachineId] = ()) -> int:
        """What all machines have cost by this cloud's own clock: whole seconds, 60 at least."""
        total = 0
        for machine in self.machines.values():
            if machine.id in but:
                continue
            until = machine.ended_at if machine.ended_at is not None else self._clock.now()
            seconds = max(60, -int(-(until - machine.launched_at) // 1))
            price = int(self.requests[machine.id]["price"])
            total += -(-price * seconds // 3600)
        return total

    # --- inside ---------------------------------------------------------------------------------

    def _hear(self) -> None:
        if self.trouble.deaf:
            raise OutcomeUnknown(f"{self._name} does not answer")

    def _refuse(self, asked: dict[str, str]) -> None:
        market = Market(asked["market"])
        where = (asked["zone"], asked["machine_type"], market)
        if where in self.trouble.empty:
            offer = offer_id(PoolName(asked["pool"]), *where)
            raise CapacityUnavailable(f"offer:{offer}", "sold out")
        if self.trouble.quota is not None and len(self.running) >= self.trouble.quota:
            scope = f"quota:{self._name}/{asked['region']}/{asked['machine_type']}/{market}"
            raise QuotaExceeded(scope, f"quota of {self.trouble.quota} machines")

    def _make(self, asked: dict[str, str]) -> MachineId:
        self.launches += 1
        name = MachineId(f"m-{self._name}-{self.launches}")
        self.machines[name] = Machine(
            id=name,
            claim_id=ClaimId(asked["claim"]),
            token=asked["token"],
            state=MachineState.RUNNING,
            zone=asked["zone"],
            machine_type=asked["machine_type"],
            market=Market(asked["market"]),
            launched_at=self._clock.now(),
            address=name,
        )
        self.requests[name] = asked
        self._by_token[asked["token"]] = name
        return name

    def _offer(self, pool: BurstPool, zone: str, kind: str, market: Market, price: int) -> Offer:
        facts = machine_type(kind)
        model = gpu_model(facts.gpu)
        list_price = self.prices.get((kind, Market.ON_DEMAND), price)
        spot = market is Market.SPOT
        name = PoolName(pool.name)
        return Offer(
            id=offer_id(name, zone, kind, market),
            pool=name,
            provider=self._name,
            region=pool.region,
            zone=zone,
            machine_type=kind,
            market=market,
            gpus=facts.gpus,
            gpu_model=model.key,
            gpu_memory_gib=model.usable_memory_gib,
            links_gbps=preset(facts.links, model.key, facts.gpus).gbps,
            cpus=facts.vcpus,
            memory_gib=facts.memory_gib,
            architecture=facts.architecture,
            price_micros_per_hour=price,
            price_ceiling_micros_per_hour=max(price, list_price),
            priced_at=self._clock.now(),
            price_source="simulation",
            interruptions_per_hour=pool.interruptions_per_hour if spot else 0.0,
            notice_s=pool.notice if spot else 0.0,
            boot_s=pool.boot.expected,
        )
