"""The control API of a sandbox Compute Engine, below ``/_sandbox/``: what operators do to it.

It answers JSON on the loopback port of the cloud itself. Requests that a browser could be tricked
into sending (a foreign Host, an Origin) are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pydantic import Field, TypeAdapter, ValidationError

from providers.sandbox.config import CapacityRule, Document, FaultRule, Market
from providers.sandbox.gce.state import GceInstance, GceState, Refused
from providers.sandbox.wsgi import BodyTooLarge, Environ, Reply, json_reply, read_body

PREFIX: Final = "/_sandbox/"


class GceInstanceView(Document):
    """One instance as the cloud knows it; instants by the cloud's clock."""

    instance_id: str
    name: str
    zone: str
    machine_type: str
    accelerator: str
    gpus: int
    market: Market
    status: str
    created_at: float
    stopped_at: float | None
    ended_at: float | None
    preempted: bool
    labels: dict[str, str]


class GceView(Document):
    """The whole cloud at one moment."""

    project: str
    region: str
    now: float
    instances: tuple[GceInstanceView, ...]
    capacities: tuple[CapacityRule, ...]
    quotas: dict[str, int]
    calls: dict[str, int] = Field(default_factory=dict)


class InstanceOrder(Document):
    """Which instance an order is about; ``notice_s`` None: the cloud's own."""

    instance_id: int
    notice_s: float | None = None


_QUOTAS: TypeAdapter[dict[str, int | None]] = TypeAdapter(dict[str, int | None])


def view_of(instance: GceInstance) -> GceInstanceView:
    """What is shown of an instance."""
    return GceInstanceView(
        instance_id=str(instance.id),
        name=instance.name,
        zone=instance.zone,
        machine_type=instance.type.name,
        accelerator=instance.accelerator,
        gpus=instance.gpus,
        market=instance.market,
        status="DELETED" if instance.deleted_at is not None else str(instance.status),
        created_at=instance.created_at,
        stopped_at=instance.stopped_at,
        ended_at=instance.deleted_at,
        preempted=instance.preempted_at is not None,
        labels=dict(instance.body.get("labels") or {}),
    )


class GceControlApi:
    """Routes of the control API. ``shutdown`` is called when the cloud is told to end."""

    def __init__(self, state: GceState, shutdown: Callable[[], None]) -> None:
        self._state = state
        self._shutdown = shutdown
        self._posts: dict[str, Callable[[bytes], Any]] = {
            "faults": self._arm_fault,
            "capacity": self._set_capacity,
            "quotas": self._set_quotas,
            "preempt": self._preempt,
            "delete": self._delete,
            "stop": self._stop,
            "shutdown": self._end,
        }

    def handle(self, environ: Environ) -> Reply:
        """Answer one control call; errors are ``{"error": words}`` with a fitting status."""
        host = environ.get("HTTP_HOST", "").rpartition(":")[0]
        if host not in ("127.0.0.1", "localhost") or "HTTP_ORIGIN" in environ:
            return json_reply({"error": "the control API answers local programs only"}, 403)
        path = environ["PATH_INFO"][len(PREFIX) :].strip("/")
        method = environ["REQUEST_METHOD"]
        try:
            with self._state.lock:
                self._state.catch_up()
                if method == "GET" and path == "state":
                    return Reply(200, "application/json", self._view().model_dump_json().encode())
                if method == "DELETE" and path == "faults":
                    return json_reply({"removed": self._state.faults.disarm()})
                act = self._posts.get(path)
                if method == "POST" and act is not None:
                    return json_reply(act(read_body(environ)))
        except KeyError as unknown:
            return json_reply({"error": f"no instance {unknown}"}, 404)
        except Refused as refusal:
            return json_reply({"error": refusal.message}, 409)
        except ValidationError as invalid:
            return json_reply({"error": str(invalid)}, 422)
        except BodyTooLarge:
            return json_reply({"error": "the body is too large"}, 413)
        return json_reply({"error": f"no {method} {PREFIX}{path}"}, 404)

    def _view(self) -> GceView:
        state = self._state
        return GceView(
            project=state.config.project,
            region=state.config.region,
            now=state.now(),
            instances=tuple(view_of(each) for each in state.instances.values()),
            capacities=tuple(state.capacity.rules()),
            quotas=dict(state.quotas),
            calls=dict(state.calls),
        )

    def _arm_fault(self, body: bytes) -> Any:
        return {"fault_id": self._state.faults.arm(FaultRule.model_validate_json(body))}

    def _set_capacity(self, body: bytes) -> Any:
        self._state.capacity.set(CapacityRule.model_validate_json(body))
        return {}

    def _set_quotas(self, body: bytes) -> Any:
        for metric, gpus in _QUOTAS.validate_json(body).items():
            if gpus is None:
                self._state.quotas.pop(metric, None)
            else:
                self._state.quotas[metric] = gpus
        return {}

    def _preempt(self, body: bytes) -> Any:
        order = InstanceOrder.model_validate_json(body)
        instance = self._state.instances[order.instance_id]
        return {"ends_at": self._state.preempt(instance, order.notice_s)}

    def _delete(self, body: bytes) -> Any:
        instance = self._state.instances[InstanceOrder.model_validate_json(body).instance_id]
        self._state.begin("delete", instance, effect=lambda at: self._state.remove(instance, at))
        return {}

    def _stop(self, body: bytes) -> Any:
        instance = self._state.instances[InstanceOrder.model_validate_json(body).instance_id]
        self._state.stop(instance, self._state.now())
        return {}

    def _end(self, _body: bytes) -> Any:
        self._shutdown()
        return {}
