"""Makes the port calls that are due, each once, and brings back their receipts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from hybrid.ports.capacity import CapacityProvider, Machine, Sweeping
from hybrid.ports.clock import Clock
from hybrid.ports.engine import WorkloadRuntime
from hybrid.ports.errors import Gone, OutcomeUnknown, PortError
from hybrid.reconcile.effects import (
    AcknowledgeRun,
    Effect,
    ExtendLease,
    ForgetNode,
    LaunchMachine,
    SetCordon,
    StartRun,
    StopRun,
    TerminateMachine,
)
from hybrid.reconcile.leftovers import RemoveLeftover
from hybrid.reconcile.receipts import Receipt
from hybrid.runtime.deadlines import Answer, Calls, Failure, NoAnswer

log = structlog.get_logger(__name__)

JoinToken = Callable[[str], str]
"""The join token of a claim; derived from a secret of the installation, never stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    machine: Machine | None = None
    console: str = ""


class Actor:
    """Carries out effects through the ports, side by side, each call under a deadline."""

    def __init__(
        self,
        engines: Mapping[str, WorkloadRuntime],
        providers: Mapping[str, CapacityProvider],
        clock: Clock,
        join_token: JoinToken,
        *,
        deadline_s: float,
        workers: int = 16,
        loop_epoch: Callable[[], int] | None = None,
    ) -> None:
        self._engines, self._providers = engines, providers
        self._clock, self._join_token = clock, join_token
        self._deadline_s = deadline_s
        self._loop_epoch = loop_epoch
        self._calls = Calls(workers=workers, name="act")

    def act(self, effects: Sequence[Effect], epoch: int) -> tuple[Receipt, ...]:
        """The answers, in the order of the effects. An effect whose port is not configured, or
        whose call is still under way from before, has no receipt: it stays due."""
        calls = {e.key: self._call(e, epoch) for e in effects if self._port_is_there(e)}
        outcomes = self._calls.run(calls, deadline_s=self._deadline_s)
        receipts = []
        for effect in effects:
            outcome = outcomes.get(effect.key)
            if outcome is not None:
                receipts.append(self._receipt(effect, outcome))
        return tuple(receipts)

    def close(self) -> None:
        """Begin no more calls."""
        self._calls.close()

    def _port_is_there(self, effect: Effect) -> bool:
        match effect:
            case LaunchMachine(claim=claim):
                name, ports = claim.offer.provider, set(self._providers)
            case TerminateMachine(provider=provider) | RemoveLeftover(provider=provider):
                name, ports = provider, set(self._providers)
            case StartRun(order=order):
                name, ports = order.run.engine, set(self._engines)
            case SetCordon(node=node):
                name, ports = node.engine, set(self._engines)
            case (
                StopRun(engine=engine)
                | AcknowledgeRun(engine=engine)
                | ForgetNode(engine=engine)
                | ExtendLease(engine=engine)
            ):
                name, ports = engine, set(self._engines)
        if name not in ports:
            log.error("nothing is configured to act on", what=effect.key, wanted=name)
            return False
        return True

    def _call(self, effect: Effect, epoch: int) -> Callable[[], _Done]:
        return lambda: self._perform(effect, epoch)

    def _perform(self, effect: Effect, epoch: int) -> _Done:
        match effect:
            case LaunchMachine(claim=claim):
                provider = self._providers[claim.offer.provider]
                self._must_lead(epoch)
                machine = provider.launch(claim.request, self._join_token(claim.id))
                return _Done(machine=machine)
            case TerminateMachine():
                return self._terminate(effect)
            case StartRun(order=order):
                self._engines[order.run.engine].start(order)
            case StopRun():
                engine = self._engines[effect.engine]
                if effect.order is not None:
                    engine.start(effect.order)
                engine.stop(effect.run_id, effect.cause, effect.grace_s, epoch)
            case ForgetNode(node_id=node_id):
                self._engines[effect.engine].forget(node_id)
            case AcknowledgeRun():
                self._engines[effect.engine].acknowledge(effect.run_id)
            case SetCordon(node=node, cordoned=True):
                self._engines[node.engine].cordon(node.id, node.cordon_cause, epoch)
            case SetCordon(node=node):
                self._engines[node.engine].uncordon(node.id, epoch)
            case ExtendLease():
                self._engines[effect.engine].extend_lease(effect.node_id, effect.until, epoch)
            case RemoveLeftover(provider=name, leftover=leftover):
                owner = self._providers[name]
                if isinstance(owner, Sweeping):
                    self._must_lead(epoch)
                    owner.remove(leftover)
        return _Done()

    def _must_lead(self, epoch: int) -> None:
        """Engines refuse a former leader's commands. A cloud knows no epochs, so the lease is
        looked at in the last moment before money is spent."""
        if self._loop_epoch is not None and (now := self._loop_epoch()) != epoch:
            raise OutcomeUnknown(f"not asked for: epoch {now} leads, not {epoch}")

    def _terminate(self, effect: TerminateMachine) -> _Done:
        provider = self._providers[effect.provider]
        console = ""
        if effect.with_console:
            try:
                console = provider.console(effect.machine_id)
            except PortError as error:  # a picture of the failure must not keep the machine alive
                log.info("no console output", machine=effect.machine_id, error=str(error))
        provider.terminate(effect.machine_id)
        return _Done(console=console)

    def _receipt(self, effect: Effect, outcome: Answer[_Done] | Failure | NoAnswer) -> Receipt:
        now = self._clock.now()
        match outcome:
            case Answer(value=done):
                return Receipt(effect=effect, at=now, machine=done.machine, console=done.console)
            case Failure(error=Gone()) if isinstance(effect, TerminateMachine | AcknowledgeRun):
                return Receipt(effect=effect, at=now)
            case Failure(error=error):
                log.warning(
                    "call failed", call=effect.key, error=str(error), kind=type(error).__name__
                )
                return Receipt(effect=effect, at=now, error=error)
            case NoAnswer(waited_s=waited_s):
                log.warning("call unanswered", call=effect.key, waited_s=round(waited_s, 1))
                error = OutcomeUnknown(f"no answer within {waited_s:.1f} s")
                return Receipt(effect=effect, at=now, error=error)
