"""What the answer to a port call changes.

Only a definite refusal makes a claim fail. An unknown outcome leaves the row as it was, with one
more attempt on it: the call is repeated, or two listings settle it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hybrid.domain.breaker import covers
from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.event import Event, EventKind
from hybrid.domain.ledger_entry import EntryKind
from hybrid.domain.run import RunState
from hybrid.ports.capacity import Machine
from hybrid.ports.errors import (
    AuthFailed,
    CapacityUnavailable,
    InvalidRequest,
    QuotaExceeded,
    RateLimited,
    ScopedRefusal,
)
from hybrid.ports.store import Bundle, Note, Post, Remove, World
from hybrid.reconcile import sightings
from hybrid.reconcile.drafts import Draft, Drafts
from hybrid.reconcile.effects import (
    Effect,
    ExtendLease,
    LaunchMachine,
    SetCordon,
    StartRun,
    TerminateMachine,
)
from hybrid.reconcile.leftovers import RemoveLeftover, removed
from hybrid.reconcile.machines import boot_deadline_s, entry, trip

_DEFINITE = (CapacityUnavailable, QuotaExceeded, InvalidRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The answer to one call: a machine for a launch, text for a console, or an error."""

    effect: Effect
    at: float
    machine: Machine | None = None
    console: str = ""
    error: Exception | None = None


def apply_receipts(world: World, receipts: tuple[Receipt, ...]) -> tuple[Bundle, ...]:
    """The changes that the answers make, one bundle each."""
    drafts = Drafts(world)
    for receipt in receipts:
        draft = drafts.draft(f"receipt:{receipt.effect.key}")
        match receipt.effect:
            case LaunchMachine(claim=claim):
                _launched(drafts, draft, drafts.claim(claim.id), receipt)
            case TerminateMachine(claim=claim, provider=provider):
                held = drafts.claim(claim.id) if claim is not None else None
                _terminated(drafts, draft, held, provider, receipt)
            case StartRun(order=order):
                run = drafts.run(order.run.id)
                if run is not None and run.state is RunState.ASSIGNED:
                    if receipt.error is None:
                        draft.put(run.to(RunState.STARTING, at=receipt.at))
                    else:
                        draft.put(replace(run, start_attempts=run.start_attempts + 1))
            case SetCordon(node=node, cordoned=cordoned):
                current = drafts.node(node.id)
                if receipt.error is None and current is not None:
                    draft.put(replace(current, cordon_sent=cordoned))
            case ExtendLease(claim_id=claim_id, until=until):
                held = drafts.claim(claim_id)
                if receipt.error is None and held is not None:
                    draft.put(replace(held, lease_sent_until=until))
            case RemoveLeftover() as effect:
                # one that is in use after all, or could not be removed, is listed again
                if receipt.error is None:
                    draft.add(Note(removed(effect, receipt.at)))
            case _:
                pass  # stopping and acknowledging are answered by what the nodes report
    return drafts.bundles()


def _launched(drafts: Drafts, draft: Draft, claim: Claim | None, receipt: Receipt) -> None:
    if claim is None or claim.state is not ClaimState.REQUESTED:
        return  # settled meanwhile by a listing, or by its own machine's joining
    claim = replace(claim, launch_attempts=claim.launch_attempts + 1, last_attempt_at=receipt.at)
    if receipt.machine is not None:
        _close_breakers(drafts, draft, claim)
        sightings.saw(drafts, claim, receipt.at, up=True)
        draft.put(_booting(drafts, claim, receipt.machine, receipt.at))
        return
    match receipt.error:
        case ScopedRefusal() as refusal if isinstance(refusal, _DEFINITE):
            trip(drafts, refusal.scope, refusal.words, receipt.at)
            if isinstance(refusal, CapacityUnavailable):
                sightings.saw(drafts, claim, receipt.at, up=False)
            _give_back(draft, claim, receipt.at)
            draft.put(claim.to(ClaimState.FAILED, at=receipt.at, cause=str(refusal), held_micros=0))
        case RateLimited() as limited:
            trip(drafts, limited.scope, limited.words, receipt.at, limited.retry_after_s)
            draft.put(claim)
        case AuthFailed() as refusal:
            # an earlier attempt may have been let through: not a refusal of the request itself
            trip(drafts, refusal.scope, refusal.words, receipt.at)
            draft.put(claim)
        case _:
            draft.put(claim)


def _booting(drafts: Drafts, claim: Claim, machine: Machine, now: float) -> Claim:
    return claim.to(
        ClaimState.BOOTING,
        at=now,
        cause=f"machine {machine.id}",
        machine_id=machine.id,
        launched_at=machine.launched_at,
        boot_deadline_at=now + boot_deadline_s(drafts, claim),
    )


def _close_breakers(drafts: Drafts, draft: Draft, claim: Claim) -> None:
    """A machine was had: whatever refused on the way to it does so no more. Whether it will join
    is not known yet."""
    for scope, breaker in sorted(drafts.world.breakers.items()):
        if breaker.of_boots or breaker.is_open(claim.requested_at):
            continue
        if covers(scope, claim.offer):
            draft.add(Remove("breaker", scope))


def _give_back(draft: Draft, claim: Claim, now: float) -> None:
    if claim.held_micros:
        draft.add(Post(entry(claim, EntryKind.RELEASE, claim.held_micros, now, "refused")))


def _terminated(
    drafts: Drafts, draft: Draft, claim: Claim | None, provider: str, receipt: Receipt
) -> None:
    if isinstance(receipt.error, RateLimited | AuthFailed):
        refusal = receipt.error
        retry_after_s = getattr(refusal, "retry_after_s", None)
        trip(drafts, refusal.scope, refusal.words, receipt.at, retry_after_s)
    if claim is not None:
        draft.put(
            replace(
                claim,
                terminate_attempts=claim.terminate_attempts + 1,
                last_attempt_at=receipt.at,
                console=receipt.console or claim.console,
            )
        )
    elif receipt.error is None and isinstance(receipt.effect, TerminateMachine):
        draft.add(
            Note(
                Event(
                    kind=EventKind.SYSTEM,
                    subject=receipt.effect.machine_id,
                    what="orphan ended",
                    at=receipt.at,
                    words=f"a machine of ours at {provider} that no live claim stands for",
                )
            )
        )
