"""A whole sandbox Compute Engine inside this process: for tests, and for the sandbox process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from providers.sandbox.config import CapacityRule, FaultRule, Market
from providers.sandbox.gce.api import GceApi
from providers.sandbox.gce.config import GceConfig
from providers.sandbox.gce.control import PREFIX, GceControlApi, GceInstanceView, view_of
from providers.sandbox.gce.metadata import PREFIX as METADATA
from providers.sandbox.gce.metadata import GceMetadataService
from providers.sandbox.gce.state import GceInstance, GceState
from providers.sandbox.http_server import HttpServer, hang_up
from providers.sandbox.wsgi import Environ, Reply, StartResponse


class GceCloud:
    """A Compute Engine on a loopback port, served by threads of this process.

    ``clock`` gives seconds since the Unix epoch. Use as a context manager::

        with GceCloud() as cloud:
            cloud.exhaust(zone="us-central1-a", machine_type="g2-standard-4")
    """

    def __init__(
        self,
        config: GceConfig | None = None,
        *,
        port: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config or GceConfig()
        self.ended = threading.Event()
        self._state = GceState(self.config, clock)
        self._http = HttpServer(port)

    def __enter__(self) -> GceCloud:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Begin to serve."""
        self._http.serve(_Doors(self._state, self.ended.set))

    def close(self) -> None:
        """Stop answering and forget everything."""
        self._http.close()

    @property
    def url(self) -> str:
        """Where it is: a provider's ``endpoint_url``."""
        return self._http.url

    def metadata_url(self, instance_id: str) -> str:
        """Where a machine finds its metadata service."""
        return f"{self.url}{METADATA}{instance_id}"

    # -- what it shows ----------------------------------------------------------------------

    def now(self) -> float:
        """The cloud's clock."""
        return self._state.now()

    def instances(self) -> tuple[GceInstanceView, ...]:
        """Every instance that ever was, oldest first."""
        with self._state.lock:
            self._state.catch_up()
            return tuple(view_of(each) for each in self._state.instances.values())

    def calls(self) -> dict[str, int]:
        """How often each API method was called."""
        with self._state.lock:
            return dict(self._state.calls)

    def user_data(self, instance_id: str) -> str:
        """What a machine was told at boot."""
        items = (self._one(instance_id).body.get("metadata") or {}).get("items") or ()
        return next((str(each["value"]) for each in items if each["key"] == "user-data"), "")

    # -- what can be done to it -------------------------------------------------------------

    def fault(self, action: str, **rule: Any) -> str:
        """Arm a fault; the fields are those of ``FaultRule``. Returns its id."""
        return self._state.faults.arm(FaultRule(action=action, **rule))

    def clear_faults(self, fault_id: str | None = None) -> int:
        """Remove one fault, or all; returns how many."""
        return self._state.faults.disarm(fault_id)

    def exhaust(
        self,
        *,
        zone: str | None = None,
        machine_type: str | None = None,
        market: Market | None = None,
        machines: int = 0,
    ) -> None:
        """At most ``machines`` of this scope run at once; None as a scope matches anything."""
        rule = CapacityRule(zone=zone, machine_type=machine_type, market=market, machines=machines)
        with self._state.lock:
            self._state.capacity.set(rule)

    def restore(
        self,
        *,
        zone: str | None = None,
        machine_type: str | None = None,
        market: Market | None = None,
    ) -> None:
        """Forget the capacity rule of exactly this scope."""
        with self._state.lock:
            self._state.capacity.clear(zone, machine_type, market)

    def set_quota(self, metric: str, gpus: int | None) -> None:
        """Limit the GPUs of a quota; None lifts it."""
        with self._state.lock:
            if gpus is None:
                self._state.quotas.pop(metric, None)
            else:
                self._state.quotas[metric] = gpus

    def cut_off(self, zones: Iterable[str]) -> None:
        """These zones, and no others, cannot be reached: listings say so."""
        with self._state.lock:
            self._state.unreachable = set(zones)

    def preempt(self, instance_id: str, notice_s: float | None = None) -> float:
        """Take a spot machine; returns when it ends, by the cloud's clock."""
        with self._state.lock:
            return self._state.preempt(self._one(instance_id), notice_s)

    def delete(self, instance_id: str) -> None:
        """End an instance by hand, as an operator in the console would."""
        with self._state.lock:
            instance = self._one(instance_id)
            self._state.begin(
                "delete", instance, effect=lambda at: self._state.remove(instance, at)
            )

    def stop(self, instance_id: str) -> None:
        """Stop an instance without ending it; a power-off from inside does the same."""
        with self._state.lock:
            self._state.stop(self._one(instance_id), self._state.now())

    def _one(self, instance_id: str) -> GceInstance:
        with self._state.lock:
            self._state.catch_up()
            return self._state.instances[int(instance_id)]


class _Doors:
    """Sends every call to its door."""

    def __init__(self, state: GceState, shutdown: Callable[[], None]) -> None:
        self._api = GceApi(state)
        self._metadata = GceMetadataService(state)
        self._control = GceControlApi(state, shutdown)

    def __call__(self, environ: Environ, start_response: StartResponse) -> list[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith(METADATA):
            return self._metadata(environ, start_response)
        if path.startswith(PREFIX):
            return self._control.handle(environ).send(start_response)
        reply = self._api.handle(environ)
        if reply is None:
            hang_up(environ)
            return Reply(500, "text/plain", b"").send(start_response)
        return reply.send(start_response)
