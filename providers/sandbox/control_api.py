"""The control API below ``/_sandbox/``: what tests, the demo and operators do to the cloud.

It answers JSON on the loopback port of the cloud itself. Requests that a browser could be tricked
into sending (a foreign Host, an Origin) are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl

from pydantic import BaseModel, TypeAdapter, ValidationError

from providers.sandbox.cloud_core import CloudCore, UnknownInstance, WrongState
from providers.sandbox.config import (
    CapacityRule,
    Document,
    FaultRule,
    Market,
    QuotaRule,
    SpotPrice,
)
from providers.sandbox.instances import Instance, billed_time
from providers.sandbox.machines import AGENT_UNIT, MachinePark
from providers.sandbox.moto_ec2 import tags_of
from providers.sandbox.prices import to_usd
from providers.sandbox.views import (
    Bill,
    BillLine,
    FaultView,
    InstanceView,
    PriceStepView,
    SandboxState,
)
from providers.sandbox.wsgi import BodyTooLarge, Environ, Reply, json_reply, read_body

PREFIX = "/_sandbox/"


class InstanceOrder(Document):
    """Which instance an order is about."""

    instance_id: str


class InterruptOrder(InstanceOrder):
    """``notice_s`` None: the cloud's own. ``rebalance``: recommend rebalancing at once, too."""

    notice_s: float | None = None
    rebalance: bool = False


class UnitOrder(InstanceOrder):
    unit: str = AGENT_UNIT


class CapacityScope(Document):
    """The exact scope of a rule to forget."""

    zone: str | None = None
    machine_type: str | None = None
    market: Market | None = None


class Overview:
    """What the cloud shows of itself."""

    def __init__(self, core: CloudCore, park: MachinePark | None) -> None:
        self._core = core
        self._park = park

    def instances(self) -> tuple[InstanceView, ...]:
        """Every instance, oldest first; processes are counted in one pass."""
        with self._core.lock:
            known = [each.instance_id for each in self._core.instances]
        running = {} if self._park is None else self._park.count_processes(known)
        with self._core.lock:
            now = self._core.now()
            return tuple(self._instance(each, running, now) for each in self._core.instances)

    def state(self) -> SandboxState:
        instances = self.instances()
        core = self._core
        with core.lock:
            return SandboxState(
                region=core.config.region,
                account_id=core.account_id,
                started_at=core.started_at,
                now=core.now(),
                spot_notice_s=core.config.spot_notice_s,
                subnets=core.subnets,
                image_id=core.config.image_id,
                instances=instances,
                capacities=tuple(core.capacity.rules()),
                quotas=tuple(core.quotas.rules()),
                faults=tuple(
                    FaultView(
                        fault_id=each.fault_id, rule=each.rule, left=each.left, hits=each.hits
                    )
                    for each in core.faults.armed()
                ),
                calls=dict(core.calls),
            )

    def bill(self) -> Bill:
        """What every instance owes up to now."""
        with self._core.lock:
            now = self._core.now()
            lines = tuple(self._line(each, now) for each in self._core.instances)
        return Bill(as_of=now, lines=lines, total_usd=sum((x.usd for x in lines), Decimal(0)))

    def _instance(self, instance: Instance, running: Mapping[str, int], now: float) -> InstanceView:
        park = self._park
        return InstanceView(
            instance_id=instance.instance_id,
            machine_type=instance.machine_type,
            zone=instance.zone,
            market=instance.market,
            state=str(instance.state),
            token=instance.token,
            launched_at=instance.launched_at,
            booted_at=instance.booted_at,
            ended_at=instance.ended_at,
            end_code="" if instance.end_reason is None else instance.end_reason.code,
            interruption_at=instance.interruption_at,
            frozen=park is not None and park.is_frozen(instance.instance_id),
            units=() if park is None else park.units(instance.instance_id),
            processes=running.get(instance.instance_id, 0),
            accrued_usd=self._line(instance, now).usd,
            tags=tags_of(instance.moto),
        )

    def _line(self, instance: Instance, now: float) -> BillLine:
        owed, waived = billed_time(
            instance,
            self._core.prices,
            now,
            waive_first_hour=self._core.config.waive_interrupted_first_hour,
        )
        return BillLine(
            instance_id=instance.instance_id,
            machine_type=instance.machine_type,
            zone=instance.zone,
            market=instance.market,
            launched_at=instance.launched_at,
            ended_at=instance.ended_at,
            seconds=owed.seconds,
            billed_seconds=owed.billed_s,
            steps=tuple(
                PriceStepView(
                    start_at=step.start_at,
                    seconds=step.seconds,
                    usd_per_hour=to_usd(step.micros_per_hour),
                )
                for step in owed.steps
            ),
            waived=waived,
            usd=Decimal(0) if waived else to_usd(owed.micros),
        )


class ControlApi:
    """Routes of the control API. ``shutdown`` is called when the cloud is told to end."""

    def __init__(
        self, core: CloudCore, park: MachinePark | None, shutdown: Callable[[], None]
    ) -> None:
        self._core = core
        self._park = park
        self._shutdown = shutdown
        self.overview = Overview(core, park)
        self._posts: dict[str, Callable[[bytes], Any]] = {
            "faults": self._arm_fault,
            "capacity": self._set_capacity,
            "capacity/clear": self._clear_capacity,
            "quotas": self._set_quota,
            "prices": self._script_prices,
            "interrupt": self._interrupt,
            "rebalance": self._rebalance,
            "terminate": self._terminate,
            "kill-agent": self._kill_agent,
            "freeze": self._freeze,
            "thaw": self._thaw,
            "shutdown": self._end,
        }

    def handle(self, environ: Environ) -> Reply:
        """Answer one control call; errors are ``{"error": words}`` with a fitting status."""
        host = environ.get("HTTP_HOST", "").rpartition(":")[0] or environ.get("HTTP_HOST", "")
        if host not in ("127.0.0.1", "localhost") or "HTTP_ORIGIN" in environ:
            return json_reply({"error": "the control API answers local programs only"}, 403)
        path = environ["PATH_INFO"][len(PREFIX) :].strip("/")
        try:
            return self._route(environ, environ["REQUEST_METHOD"], path)
        except UnknownInstance as unknown:
            return json_reply({"error": f"no instance {unknown}"}, 404)
        except WrongState as wrong:
            return json_reply({"error": str(wrong)}, 409)
        except ValidationError as invalid:
            return json_reply({"error": str(invalid)}, 422)
        except BodyTooLarge:
            return json_reply({"error": "the body is too large"}, 413)

    def _route(self, environ: Environ, method: str, path: str) -> Reply:
        if method == "GET" and path == "state":
            return _shown(self.overview.state())
        if method == "GET" and path == "bill":
            return _shown(self.overview.bill())
        if method == "GET" and path.startswith("console/"):
            console = self.console(path.removeprefix("console/"))
            return Reply(200, "text/plain; charset=utf-8", console)
        if method == "DELETE" and path == "faults":
            query = dict(parse_qsl(environ.get("QUERY_STRING", "")))
            return json_reply({"removed": self._core.faults.disarm(query.get("fault_id"))})
        if method == "POST" and path.startswith("machines/") and path.endswith("/poweroff"):
            return json_reply({"state": self._core.power_off(path.split("/")[1])}, 202)
        act = self._posts.get(path)
        if method == "POST" and act is not None:
            return json_reply(act(read_body(environ)))
        return json_reply({"error": f"no {method} {PREFIX}{path}"}, 404)

    def console(self, instance_id: str) -> bytes:
        """The console of an instance's machine. Raises ``UnknownInstance``."""
        instance_id = self._core.one(instance_id).instance_id
        return b"" if self._park is None else self._park.console(instance_id)

    def _machines(self) -> MachinePark:
        if self._park is None:
            raise WrongState("this cloud has instances without machines")
        return self._park

    def _arm_fault(self, body: bytes) -> Any:
        return {"fault_id": self._core.faults.arm(FaultRule.model_validate_json(body))}

    def _set_capacity(self, body: bytes) -> Any:
        with self._core.lock:
            self._core.capacity.set(CapacityRule.model_validate_json(body))
        return {}

    def _clear_capacity(self, body: bytes) -> Any:
        scope = CapacityScope.model_validate_json(body)
        with self._core.lock:
            self._core.capacity.clear(scope.zone, scope.machine_type, scope.market)
        return {}

    def _set_quota(self, body: bytes) -> Any:
        with self._core.lock:
            self._core.quotas.set(QuotaRule.model_validate_json(body))
        return {}

    def _script_prices(self, body: bytes) -> Any:
        self._core.script_spot_prices(TypeAdapter(list[SpotPrice]).validate_json(body))
        return {}

    def _interrupt(self, body: bytes) -> Any:
        order = InterruptOrder.model_validate_json(body)
        if order.rebalance:
            self._core.recommend_rebalance(order.instance_id)
        return {"interruption_at": self._core.interrupt(order.instance_id, order.notice_s)}

    def _rebalance(self, body: bytes) -> Any:
        order = InstanceOrder.model_validate_json(body)
        return {"rebalance_at": self._core.recommend_rebalance(order.instance_id)}

    def _terminate(self, body: bytes) -> Any:
        order = InstanceOrder.model_validate_json(body)
        return {"state": self._core.terminate([order.instance_id])[0][2]}

    def _kill_agent(self, body: bytes) -> Any:
        order = UnitOrder.model_validate_json(body)
        self._core.one(order.instance_id)
        return {"pid": self._machines().kill_unit(order.instance_id, order.unit)}

    def _freeze(self, body: bytes) -> Any:
        order = InstanceOrder.model_validate_json(body)
        self._core.one(order.instance_id)
        return {"processes": self._machines().freeze(order.instance_id)}

    def _thaw(self, body: bytes) -> Any:
        order = InstanceOrder.model_validate_json(body)
        self._core.one(order.instance_id)
        return {"processes": self._machines().thaw(order.instance_id)}

    def _end(self, _body: bytes) -> Any:
        self._shutdown()
        return {}


def _shown(document: BaseModel) -> Reply:
    return Reply(200, "application/json", document.model_dump_json().encode())
