"""What clouds say of machines: adopted, lost, gone; and the money that ends with them.

Matching is by claim tag and machine id, never by address. A machine that a listing does not show is
gone only when two complete listings a grace apart did not show it; an unknown source concludes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hybrid.domain.bill import LineKind
from hybrid.domain.breaker import LONGEST_WAIT_S, Breaker
from hybrid.domain.claim import Claim, ClaimState, PriceStep
from hybrid.domain.ids import ClaimId, OfferId
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.domain.node import NodeState
from hybrid.domain.pool_spec import Boot, BurstPool
from hybrid.ledger.charges import charge_lines
from hybrid.ports.capacity import Machine, MachineState, Notice, NoticeKind
from hybrid.ports.observation import Known, MachineFacts, Observation
from hybrid.ports.store import Post
from hybrid.reconcile import sightings
from hybrid.reconcile.drafts import Draft, Drafts
from hybrid.reconcile.learning import Lessons
from hybrid.reconcile.nodes import told
from hybrid.reconcile.rules import SyncRules

_OVER = (MachineState.STOPPED, MachineState.ENDING, MachineState.ENDED)
_LEAVING = (MachineState.ENDING, MachineState.ENDED)
_HELD = (ClaimState.BOOTING, ClaimState.READY, ClaimState.CORDONED, ClaimState.DRAINING)


def sync_machines(
    drafts: Drafts, observation: Observation, lessons: Lessons, rules: SyncRules
) -> None:
    """Bring claims to what their clouds say of the machines."""
    _follow_prices(drafts, observation)
    for provider, source in sorted(observation.machines.items()):
        if not isinstance(source, Known):
            continue
        seen = _by_claim(source.value.machines)
        notices = _earliest(source.value.notices, NoticeKind.INTERRUPTION)
        hints = _earliest(source.value.notices, NoticeKind.REBALANCE)
        for claim in list(drafts.claims()):
            if claim.offer.provider != provider or claim.state.over:
                continue
            listing = _Listing(seen.get(claim.id, ()), notices, hints, source.asked_at)
            _sync_claim(drafts, claim, listing, observation.at, lessons, rules)
    for claim in list(drafts.claims()):
        if claim.state is ClaimState.BOOTING:
            _check_boot(drafts, claim, observation.at, lessons)


def _follow_prices(drafts: Drafts, observation: Observation) -> None:
    """Write down prices that have changed under machines that pay the price of the moment."""
    prices: dict[OfferId, int] | None = None
    for claim in list(drafts.claims()):
        if claim.state not in _HELD or not claim.offer.price_follows_market:
            continue
        if prices is None:
            prices = {
                offer.id: offer.price_micros_per_hour
                for source in observation.offers.values()
                if isinstance(source, Known)
                for offer in source.value
            }
        last = claim.offer.price_micros_per_hour
        if claim.price_steps:
            last = claim.price_steps[-1].micros_per_hour
        price = prices.get(claim.offer.id, last)
        if price != last:
            steps = (*claim.price_steps, PriceStep(observation.at, price))
            drafts.draft(f"claim:{claim.id}").put(replace(claim, price_steps=steps))


class _Listing:
    """What one listing says of one claim."""

    def __init__(
        self,
        machines: Iterable[Machine],
        notices: Mapping[str, float],
        hints: Mapping[str, float],
        asked_at: float,
    ) -> None:
        self.machines = tuple(machines)
        self.notices, self.hints = notices, hints
        self.asked_at = asked_at

    def machine_of(self, claim: Claim) -> Machine | None:
        """The claim's machine: by id when known, else the one under its token."""
        for machine in self.machines:
            if claim.machine_id in (None, machine.id):
                return machine
        return None


def _by_claim(machines: Iterable[Machine]) -> dict[ClaimId, list[Machine]]:
    found: dict[ClaimId, list[Machine]] = {}
    # a live machine first: a claim's token may also show one that has already ended
    for machine in sorted(machines, key=lambda m: (m.state in _OVER, m.launched_at, m.id)):
        if machine.claim_id is not None:
            found.setdefault(machine.claim_id, []).append(machine)
    return found


def _earliest(notices: Iterable[Notice], kind: NoticeKind) -> dict[str, float]:
    when: dict[str, float] = {}
    for notice in notices:
        if notice.kind is kind:
            earlier = when.get(notice.machine_id, notice.at)
            when[notice.machine_id] = min(earlier, notice.at)
    return when


def _sync_claim(
    drafts: Drafts,
    claim: Claim,
    listing: _Listing,
    now: float,
    lessons: Lessons,
    rules: SyncRules,
) -> None:
    draft = drafts.draft(f"claim:{claim.id}")
    machine = listing.machine_of(claim)
    if machine is None:
        _sync_absent(drafts, draft, claim, listing.asked_at, now, rules)
        return
    before = claim
    if claim.absent_since is not None:
        claim = replace(claim, absent_since=None)
    if claim.machine_id is None:
        claim = _adopted(drafts, claim, machine, now)
    if machine.state in _OVER:
        claim = _machine_over(drafts, draft, claim, machine, now, lessons)
    else:
        at, hint = listing.notices.get(machine.id), listing.hints.get(machine.id)
        claim = told(drafts, claim, notice_at=at, rebalance_at=hint, now=now)
    if claim != before:
        draft.put(claim)


def _adopted(drafts: Drafts, claim: Claim, machine: Machine, now: float) -> Claim:
    """The launch was done, whatever became of its answer."""
    if claim.state is not ClaimState.REQUESTED:
        return replace(claim, machine_id=machine.id, launched_at=machine.launched_at)
    sightings.saw(drafts, claim, now, up=True)
    return claim.to(
        ClaimState.BOOTING,
        at=now,
        cause="found in the cloud's list",
        machine_id=machine.id,
        launched_at=machine.launched_at,
        boot_deadline_at=machine.launched_at + boot_deadline_s(drafts, claim),
    )


def boot_deadline_s(drafts: Drafts, claim: Claim) -> float:
    """For how long the machine of a claim may take to join; the document's default once the pool
    has been removed."""
    pool = _pool_of(drafts, claim)
    return Boot().deadline if pool is None else pool.boot.deadline


def _pool_of(drafts: Drafts, claim: Claim) -> BurstPool | None:
    pool = drafts.world.pools.get(claim.pool)
    return pool.spec if pool is not None and isinstance(pool.spec, BurstPool) else None


def _machine_over(
    drafts: Drafts,
    draft: Draft,
    claim: Claim,
    machine: Machine,
    now: float,
    lessons: Lessons,
) -> Claim:
    if claim.state in _HELD:
        if claim.state is ClaimState.BOOTING and not machine.interrupted:
            _never_joined(drafts, claim, now, lessons)
        words = machine.end_reason or "its machine ended"
        claim = claim.to(ClaimState.LOST, at=now, cause=words)
    if machine.state is not MachineState.ENDED:
        return claim
    ended_at = machine.ended_at if machine.ended_at is not None else now
    if machine.launched_at and claim.machine_id is not None:
        lived_h = max(0.0, ended_at - machine.launched_at) / 3600
        lessons.ended(claim, lived_h, interrupted=machine.interrupted)
        sightings.ended(drafts, claim, ended_at, interrupted=machine.interrupted)
    return settled(drafts, draft, claim, ended_at, now, interrupted=machine.interrupted)


def _sync_absent(
    drafts: Drafts,
    draft: Draft,
    claim: Claim,
    asked_at: float,
    now: float,
    rules: SyncRules,
) -> None:
    """A complete listing that does not show the claim's machine."""
    if claim.state is ClaimState.REQUESTED:
        return  # its launch is repeated under its token, which makes one or finds it
    if claim.machine_id is not None and claim.launched_at is not None:
        could_show_from = claim.launched_at + rules.absent_grace_s
    else:
        # a call that left no receipt was begun before the claim left its first state
        began = claim.history[-1].at if claim.history else claim.requested_at
        could_show_from = max(claim.last_attempt_at or 0.0, began) + rules.call_limit_s
    if asked_at < could_show_from:
        return
    if claim.absent_since is None:
        draft.put(replace(claim, absent_since=asked_at))
        return
    if asked_at - claim.absent_since < rules.absent_grace_s:
        return
    if claim.state in _HELD:
        claim = claim.to(ClaimState.LOST, at=now, cause="its cloud does not list it any more")
    # what a machine that was never seen to end has cost is bounded by when it was missed first
    ended_at = claim.absent_since if claim.absent_since is not None else asked_at
    sightings.ended(drafts, claim, ended_at, interrupted=False)
    draft.put(settled(drafts, draft, claim, ended_at, now))


BOOT_FAILURES = 3
"""So many machines in a row that never joined are no accident."""
FIRST_BOOT_WAIT_S = 300.0
"""Each try costs a machine until its boot deadline: the next is put off for longer than after a
refusal, which costs nothing."""


def _check_boot(drafts: Drafts, claim: Claim, now: float, lessons: Lessons) -> None:
    if claim.boot_deadline_at is None or now <= claim.boot_deadline_at:
        return
    draft = drafts.draft(f"claim:{claim.id}")
    cause = "it did not join before its boot deadline"
    draft.put(claim.to(ClaimState.TERMINATING, at=now, cause=cause))
    trip(drafts, f"offer:{claim.offer.id}", cause, now)
    _never_joined(drafts, claim, now, lessons)


def _never_joined(drafts: Drafts, claim: Claim, now: float, lessons: Lessons) -> None:
    """A broken image or user data must not burn money in a loop."""
    for scope, failures in lessons.never_joined(claim).items():
        if failures >= BOOT_FAILURES:
            wait_s = FIRST_BOOT_WAIT_S * 2.0 ** min(failures - BOOT_FAILURES, 10)
            words = f"{failures} machines in a row never joined"
            trip(drafts, scope, words, now, min(wait_s, LONGEST_WAIT_S))


def trip(
    drafts: Drafts, scope: str, cause: str, now: float, retry_after_s: float | None = None
) -> None:
    """Open a breaker, or hold it open for longer.

    In a bundle of its own: hundreds of claims may be refused by one scope in one pass, and none of
    them may be asked for again because another has opened the breaker first.
    """
    before = drafts.breaker(scope)
    if before is None:
        breaker = Breaker.opened(scope, cause, at=now, retry_after_s=retry_after_s)
    else:
        breaker = before.tripped(cause, at=now, retry_after_s=retry_after_s)
    if breaker is not before:
        drafts.draft(f"breaker:{scope}").put(breaker)


def settled(
    drafts: Drafts,
    draft: Draft,
    claim: Claim,
    ended_at: float,
    now: float,
    *,
    interrupted: bool = False,
) -> Claim:
    """The claim gone, what its machine cost charged line by line and what was held released.

    ``interrupted``: its cloud took the machine, which some clouds do not charge for when it is new.
    """
    began = claim.launched_at
    cost = 0
    if claim.machine_id is not None and began is not None:
        for kind, micros in _lines(_pool_of(drafts, claim), claim, began, ended_at, interrupted):
            cost += micros
            draft.add(Post(_charge(claim, kind, micros, now)))
    if claim.held_micros:
        draft.add(
            Post(entry(claim, EntryKind.RELEASE, claim.held_micros, now, "the machine is gone"))
        )
    node = drafts.node(claim.node_id) if claim.node_id else None
    if node is not None and node.state is not NodeState.GONE:
        draft.put(node.to(NodeState.GONE, at=now, cause="its machine is gone"))
    return claim.to(
        ClaimState.GONE,
        at=now,
        ended_at=ended_at,
        charged_micros=claim.charged_micros + cost,
        held_micros=0,
    )


def _lines(
    pool: BurstPool | None, claim: Claim, began: float, ended_at: float, interrupted: bool
) -> tuple[tuple[LineKind, int], ...]:
    price = claim.offer.price_micros_per_hour
    steps = [(step.at, step.micros_per_hour) for step in claim.price_steps]
    if pool is None:
        return charge_lines(price, launched_at=began, ended_at=ended_at, steps=steps)
    return charge_lines(
        price,
        launched_at=began,
        ended_at=ended_at,
        steps=steps,
        disk_gib=pool.disk,
        disk_usd_per_gib_hour=pool.disk_usd_per_gib_hour,
        free=interrupted and max(0.0, ended_at - began) < pool.free_if_interrupted_within,
    )


def _charge(claim: Claim, kind: LineKind, micros: int, now: float) -> LedgerEntry:
    if kind is LineKind.MACHINE:
        return entry(claim, EntryKind.CHARGE, micros, now, "machine time")
    return replace(
        entry(claim, EntryKind.CHARGE, micros, now, str(kind)),
        id=f"{EntryKind.CHARGE}:{claim.id}:{kind}",
    )


def entry(claim: Claim, kind: EntryKind, amount: int, now: float, memo: str) -> LedgerEntry:
    """A ledger entry of a claim. One of each kind closes it, so the kind makes the id."""
    return LedgerEntry(
        id=f"{kind}:{claim.id}",
        kind=kind,
        claim_id=claim.id,
        amount_micros=amount,
        at=now,
        team=claim.team,
        user=claim.user,
        job_id=claim.job_id,
        memo=memo,
    )


def orphans(
    facts: MachineFacts, live: Mapping[ClaimId, Claim], now: float, rules: SyncRules
) -> tuple[Machine, ...]:
    """Machines tagged as ours that no live claim stands for, past their grace."""
    return tuple(
        machine
        for machine in sorted(facts.machines, key=lambda m: m.id)
        if machine.state not in _LEAVING
        and not _stands_for(live, machine)
        and now - machine.launched_at > rules.absent_grace_s
    )


def _stands_for(live: Mapping[ClaimId, Claim], machine: Machine) -> bool:
    claim = live.get(machine.claim_id) if machine.claim_id is not None else None
    return claim is not None and claim.machine_id in (None, machine.id)
