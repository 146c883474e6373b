"""A typed client of a sandbox cloud's control API."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import httpx

from providers.sandbox.config import CapacityRule, FaultRule, Market, QuotaRule, SpotPrice
from providers.sandbox.views import Bill, InstanceView, SandboxState

TIMEOUT_S = 15.0


class ControlError(Exception):
    """The sandbox refused an order: ``status`` 404 no such instance, 409 not now, 422 malformed."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class SandboxControl:
    """Orders to one sandbox cloud. Raises ``ControlError``; ``httpx.HTTPError`` when unreachable.

    Use as a context manager, or call ``close``.
    """

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        # trust_env off: a proxy of the environment has no business on the loopback
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/_sandbox", timeout=timeout_s, trust_env=False
        )

    def __enter__(self) -> SandboxControl:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def state(self) -> SandboxState:
        """The whole cloud at this moment."""
        return SandboxState.model_validate_json(self._ask("GET", "/state"))

    def instances(self) -> tuple[InstanceView, ...]:
        """Every instance that ever was, oldest first."""
        return self.state().instances

    def bill(self) -> Bill:
        """What every instance owes up to now, by the cloud's own timestamps."""
        return Bill.model_validate_json(self._ask("GET", "/bill"))

    def console(self, instance_id: str) -> str:
        """The last 64 KiB of a machine's console."""
        return self._ask("GET", f"/console/{instance_id}").decode("utf-8", "replace")

    def fault(self, rule: FaultRule) -> str:
        """Arm a scripted misfortune; returns its id."""
        return str(self._post("/faults", rule.model_dump(mode="json"))["fault_id"])

    def clear_faults(self, fault_id: str | None = None) -> int:
        """Remove one fault, or all; returns how many."""
        query = {} if fault_id is None else {"fault_id": fault_id}
        reply = self._http.delete("/faults", params=query)
        return int(_checked(reply).json()["removed"])

    def set_capacity(self, rule: CapacityRule) -> None:
        """From now on at most this many machines of the rule's scope run at once."""
        self._post("/capacity", rule.model_dump(mode="json"))

    def exhaust(
        self,
        zone: str | None = None,
        machine_type: str | None = None,
        market: Market | None = None,
    ) -> None:
        """Nothing more of this scope can be had; what runs goes on."""
        self.set_capacity(
            CapacityRule(zone=zone, machine_type=machine_type, market=market, machines=0)
        )

    def restore(
        self,
        zone: str | None = None,
        machine_type: str | None = None,
        market: Market | None = None,
    ) -> None:
        """Forget the capacity rule of exactly this scope."""
        scope = {"zone": zone, "machine_type": machine_type, "market": market}
        self._post("/capacity/clear", scope)

    def set_quota(self, rule: QuotaRule) -> None:
        """Limit the vCPUs of a quota group in a market."""
        self._post("/quotas", rule.model_dump(mode="json"))

    def script_spot_prices(self, prices: Sequence[SpotPrice]) -> None:
        """Add steps to the spot price series."""
        self._post("/prices", [price.model_dump(mode="json") for price in prices])

    def interrupt(
        self, instance_id: str, notice_s: float | None = None, *, rebalance: bool = False
    ) -> float:
        """Take a spot machine back after a notice; returns when it ends, by the cloud's clock."""
        order = {"instance_id": instance_id, "notice_s": notice_s, "rebalance": rebalance}
        return float(self._post("/interrupt", order)["interruption_at"])

    def recommend_rebalance(self, instance_id: str) -> float:
        """Arm the rebalance recommendation only; returns its instant."""
        return float(self._post("/rebalance", {"instance_id": instance_id})["rebalance_at"])

    def terminate(self, instance_id: str) -> str:
        """End an instance by hand, as an operator in the console would; returns its state."""
        return str(self._post("/terminate", {"instance_id": instance_id})["state"])

    def kill_agent(self, instance_id: str, unit: str = "hybrid-agent.service") -> int:
        """SIGKILL one service's main process; its machine starts it again. Returns the old pid."""
        return int(self._post("/kill-agent", {"instance_id": instance_id, "unit": unit})["pid"])

    def freeze(self, instance_id: str) -> int:
        """Stop every process of a machine where it stands."""
        return int(self._post("/freeze", {"instance_id": instance_id})["processes"])

    def thaw(self, instance_id: str) -> int:
        """Let a frozen machine go on."""
        return int(self._post("/thaw", {"instance_id": instance_id})["processes"])

    def shutdown(self) -> None:
        """End the cloud: every machine, then the process."""
        self._post("/shutdown", {})

    def _post(self, path: str, document: Any) -> Any:
        return _checked(self._http.post(path, json=document)).json()

    def _ask(self, method: str, path: str) -> bytes:
        return _checked(self._http.request(method, path)).content


def _checked(reply: httpx.Response) -> httpx.Response:
    if reply.is_success:
        return reply
    try:
        message = str(reply.json()["error"])
    except (ValueError, KeyError, TypeError):
        message = reply.text[:500]
    raise ControlError(reply.status_code, message)
