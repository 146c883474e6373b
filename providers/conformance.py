"""The contract every CapacityProvider passes, whatever cloud is behind it.

A provider's tests subclass :class:`CapacityContract` and give it a provider and a cloud that can be
told to misbehave (:class:`UnrulyCloud`). Nothing here knows which cloud that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pytest

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import ClaimId, JobId, MachineId, PoolName
from hybrid.domain.job_spec import Market
from hybrid.domain.offer import Offer
from hybrid.domain.pool_spec import BurstPool
from hybrid.ports.capacity import BootInfo, CapacityProvider, Machine, MachineState, Sweeping
from hybrid.ports.errors import (
    AuthFailed,
    CapacityUnavailable,
    InvalidRequest,
    OutcomeUnknown,
    QuotaExceeded,
    RateLimited,
)

JOIN_TOKEN = "join-me-once"


class Ask(Protocol):
    """Makes the prepared request of a claim."""

    def __call__(self, claim_id: str = ..., market: Market = ..., pool: BurstPool = ...) -> str: ...


class UnrulyCloud(Protocol):
    """What a cloud's double must be able to do to its next launch, or to a machine."""

    def exhaust(self) -> None:
        """The offers' zone has no more of their machine type."""
        ...

    def run_out_of_quota(self) -> None:
        """The account may not have more."""
        ...

    def limit_quota_to_one_machine(self) -> None:
        """The account may have one machine of the pool's type, in either market."""
        ...

    def throttle_launches(self) -> None:
        """The next launch is refused for coming too fast."""
        ...

    def refuse_credentials(self) -> None:
        """The next launch is refused for its credentials."""
        ...

    def lose_the_next_answer(self) -> None:
        """The next launch is done, and its answer never arrives."""
        ...

    def fail_strangely(self) -> None:
        """The next launch is answered with a code that nobody has heard of."""
        ...

    def break_listing(self) -> None:
        """The next listing fails."""
        ...

    def interrupt(self, machine_id: MachineId) -> None:
        """Take a spot machine without further notice."""
        ...

    def user_data(self, machine_id: MachineId) -> str:
        """What the machine was told at boot."""
        ...

    def wait(self, until: Callable[[], bool]) -> None:
        """Let the cloud go on until something holds; fail the test if it never does."""
        ...


class CapacityContract:
    """Subclass with fixtures ``provider``, ``stranger`` (the same cloud under another
    installation), ``cloud``, ``boot`` (whose installation is the provider's, and no other test's)
    and ``pool`` (spot and on-demand, one zone, one type)."""

    def offer(self, provider: CapacityProvider, pool: BurstPool, market: Market) -> Offer:
        """The pool's offer in a market."""
        found = [o for o in provider.offers([pool]).usable if o.market is market]
        assert len(found) == 1
        return found[0]

    @pytest.fixture
    def request_for(self, provider: CapacityProvider, pool: BurstPool, boot: BootInfo) -> Ask:
        """Makes the prepared request of a claim."""

        def ask(claim_id: str = "c-1", market: Market = Market.SPOT, pool: BurstPool = pool) -> str:
            claim = a_claim(claim_id, self.offer(provider, pool, market), boot)
            return provider.prepare(claim, pool, boot)

        return ask

    # --- offers ---------------------------------------------------------------------------------

    def test_offers_have_hardware_prices_and_a_ceiling(
        self, provider: CapacityProvider, pool: BurstPool
    ) -> None:
        for offer in provider.offers([pool]).usable:
            assert offer.gpus >= 1
            assert offer.gpu_memory_gib > 1
            assert len(offer.links_gbps) == offer.gpus
            assert 0 < offer.price_micros_per_hour <= offer.price_ceiling_micros_per_hour
            assert offer.price_source

    def test_spot_offers_tell_their_notice_and_on_demand_ones_have_none(
        self, provider: CapacityProvider, pool: BurstPool
    ) -> None:
        spot = self.offer(provider, pool, Market.SPOT)
        steady = self.offer(provider, pool, Market.ON_DEMAND)
        assert (spot.notice_s, spot.interruptions_per_hour) == (
            pool.notice,
            pool.interruptions_per_hour,
        )
        assert (steady.notice_s, steady.interruptions_per_hour) == (0, 0)

    def test_an_offer_that_cannot_be_used_says_why(
        self, provider: CapacityProvider, pool: BurstPool
    ) -> None:
        odd = pool.model_copy(update={"machine_types": ("x9.nonsense",)})
        found = provider.offers([odd])
        assert found.usable == ()
        assert len(found.ignored) == len(odd.zones) * len(odd.markets)
        assert all(reason for _, reason in found.ignored)

    def test_a_quota_is_told_with_what_runs_and_leaves_no_machine_when_it_is_used_up(
        self,
        provider: CapacityProvider,
        pool: BurstPool,
        request_for: Ask,
        cloud: UnrulyCloud,
    ) -> None:
        cloud.limit_quota_to_one_machine()
        before = self.offer(provider, pool, Market.SPOT)
        assert before.quota is not None
        assert (before.quota_left, before.quota.used) == (1, 0)
        assert before.quota.at > 0
        machine = provider.launch(request_for(), JOIN_TOKEN)
        after = self.offer(provider, pool, Market.SPOT)
        assert after.quota is not None
        assert (after.quota_left, after.quota.used) == (0, after.quota.per_machine)
        assert pool.region in after.quota.words()
        provider.terminate(machine.id)

    # --- launching ------------------------------------------------------------------------------

    def test_a_prepared_request_is_the_same_each_time_and_holds_no_secret(
        self, request_for: Ask
    ) -> None:
        request = request_for()
        assert request == request_for()
        assert JOIN_TOKEN not in request

    @pytest.mark.parametrize("market", list(Market))
    def test_a_launched_machine_is_listed_under_its_claim(
        self, provider: CapacityProvider, request_for: Ask, boot: BootInfo, market: Market
    ) -> None:
        machine = provider.launch(request_for(market=market), JOIN_TOKEN)
        (listed,) = provider.list_machines()
        assert (listed.id, listed.claim_id) == (machine.id, "c-1")
        assert listed.token == f"{boot.installation}-c-1"
        assert listed.market is market
        assert listed.state in (MachineState.PENDING, MachineState.RUNNING)

    def test_the_same_request_again_is_the_same_machine(
        self, provider: CapacityProvider, request_for: Ask
    ) -> None:
        request = request_for()
        first = provider.launch(request, JOIN_TOKEN)
        assert provider.launch(request, JOIN_TOKEN).id == first.id
        assert len(provider.list_machines()) == 1

    def test_two_claims_are_two_machines(
        self, provider: CapacityProvider, request_for: Ask
    ) -> None:
        first = provider.launch(request_for("c-1"), JOIN_TOKEN)
        second = provider.launch(request_for("c-2"), JOIN_TOKEN)
        assert first.id != second.id

    def test_an_answer_lost_after_the_deed_is_unknown_and_the_repeat_finds_the_machine(
        self, provider: CapacityProvider, request_for: Ask, cloud: UnrulyCloud
    ) -> None:
        request = request_for()
        cloud.lose_the_next_answer()
        with pytest.raises(OutcomeUnknown):
            provider.launch(request, JOIN_TOKEN)
        (made,) = provider.list_machines()
        assert provider.launch(request, JOIN_TOKEN).id == made.id
        assert len(provider.list_machines()) == 1

    def test_no_capacity_is_a_refusal_of_the_offer_or_its_zone(
        self, provider: CapacityProvider, request_for: Ask, cloud: UnrulyCloud
    ) -> None:
        request = request_for()
        cloud.exhaust()
        with pytest.raises(CapacityUnavailable) as refusal:
            provider.launch(request, JOIN_TOKEN)
        assert refusal.value.scope.partition(":")[0] in ("offer", "zone")
        assert provider.list_machines() == ()

    def test_no_quota_is_a_refusal_of_region_family_and_market(
        self, provider: CapacityProvider, request_for: Ask, pool: BurstPool, cloud: UnrulyCloud
    ) -> None:
        request = request_for()
        cloud.run_out_of_quota()
        with pytest.raises(QuotaExceeded) as refusal:
            provider.launch(request, JOIN_TOKEN)
        assert refusal.value.scope.startswith(f"quota:{provider.name}/{pool.region}/")

    def test_throttling_says_when_to_try_again(
        self, provider: CapacityProvider, request_for: Ask, cloud: UnrulyCloud
    ) -> None:
        request = request_for()
        cloud.throttle_launches()
        with pytest.raises(RateLimited) as refusal:
            provider.launch(request, JOIN_TOKEN)
        assert refusal.value.retry_after_s > 0

    def test_bad_credentials_put_the_provider_out(
        self, provider: CapacityProvider, request_for: Ask, cloud: UnrulyCloud
    ) -> None:
        request = request_for()
        cloud.refuse_credentials()
        with pytest.raises(AuthFailed) as refusal:
            provider.launch(request, JOIN_TOKEN)
        assert refusal.value.scope == f"provider:{provider.name}"

    def test_a_code_nobody_has_heard_of_is_an_unknown_outcome(
        self, provider: CapacityProvider, request_for: Ask, cloud: UnrulyCloud
    ) -> None:
        request = request_for()
        cloud.fail_strangely()
        with pytest.raises(OutcomeUnknown):
            provider.launch(request, JOIN_TOKEN)

    def test_a_request_that_can_never_succeed_is_said_to_be_invalid(
        self, provider: CapacityProvider, request_for: Ask, pool: BurstPool
    ) -> None:
        template = pool.template.model_copy(update={"id": None, "image": "no-such-image"})
        broken = pool.model_copy(update={"template": template})
        with pytest.raises(InvalidRequest):
            provider.launch(request_for(pool=broken), JOIN_TOKEN)

    def test_the_machine_gets_its_join_token_and_arms_its_lease_first(
        self, provider: CapacityProvider, request_for: Ask, cloud: UnrulyCloud
    ) -> None:
        machine = provider.launch(request_for(), JOIN_TOKEN)
        told = cloud.user_data(machine.id)
        assert JOIN_TOKEN in told
        assert told.index("--now\n  - hybrid-lease.service") < told.index(
            "--now\n  - hybrid-agent.service"
        )

    # --- listing and ending ---------------------------------------------------------------------

    def test_another_installation_does_not_see_our_machines(
        self, provider: CapacityProvider, request_for: Ask, stranger: CapacityProvider
    ) -> None:
        provider.launch(request_for(), JOIN_TOKEN)
        assert stranger.list_machines() == ()

    def test_a_listing_is_complete_or_an_error(
        self, provider: CapacityProvider, cloud: UnrulyCloud
    ) -> None:
        cloud.break_listing()
        with pytest.raises(OutcomeUnknown):
            provider.list_machines()

    def test_an_ended_machine_is_listed_with_the_clouds_own_time(
        self, provider: CapacityProvider, request_for: Ask, cloud: UnrulyCloud
    ) -> None:
        machine = provider.launch(request_for(), JOIN_TOKEN)
        provider.terminate(machine.id)
        cloud.wait(lambda: only(provider).state is MachineState.ENDED)
        ended = only(provider)
        assert ended.ended_at is not None
        assert ended.ended_at >= int(ended.launched_at)
        assert not ended.interrupted

    def test_a_machine_that_was_ended_leaves_nothing_behind(
        self, provider: CapacityProvider, request_for: Ask, cloud: UnrulyCloud
    ) -> None:
        machine = provider.launch(request_for(), JOIN_TOKEN)
        provider.terminate(machine.id)
        cloud.wait(lambda: only(provider).state is MachineState.ENDED)
        if isinstance(provider, Sweeping):
            assert provider.leftovers() == ()

    def test_ending_twice_or_ending_nothing_is_a_success(
        self, provider: CapacityProvider, request_for: Ask
    ) -> None:
        machine = provider.launch(request_for(), JOIN_TOKEN)
        provider.terminate(machine.id)
        provider.terminate(machine.id)
        provider.terminate(MachineId("i-0123456789abcdef0"))

    def test_a_machine_that_the_cloud_took_says_so(
        self, provider: CapacityProvider, request_for: Ask, cloud: UnrulyCloud
    ) -> None:
        machine = provider.launch(request_for(), JOIN_TOKEN)
        cloud.interrupt(machine.id)
        cloud.wait(lambda: only(provider).state is MachineState.ENDED)
        assert only(provider).interrupted
        assert only(provider).end_reason

    def test_console_output_can_be_asked_for(
        self, provider: CapacityProvider, request_for: Ask
    ) -> None:
        machine = provider.launch(request_for(), JOIN_TOKEN)
        assert isinstance(provider.console(machine.id), str)


def only(provider: CapacityProvider) -> Machine:
    """The one machine that is listed."""
    (machine,) = provider.list_machines()
    return machine


def a_claim(claim_id: str, offer: Offer, boot: BootInfo) -> Claim:
    """A claim for one machine of an offer."""
    return Claim(
        id=ClaimId(claim_id),
        pool=PoolName(offer.pool),
        offer=offer,
        state=ClaimState.REQUESTED,
        token=f"{boot.installation}-{claim_id}",
        request="",
        requested_at=0.0,
        team="red",
        user="ann",
        job_id=JobId("j1"),
    )
