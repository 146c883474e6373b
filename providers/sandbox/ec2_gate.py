"""The door to EC2: moto behind the behaviour that moto lacks.

Every call passes the scripted faults. RunInstances is idempotent by its ClientToken, draws on
capacity and quotas, and honours the launch template's market; ending, stopping and starting go
through the cloud so that machines, capacity and the bill follow; listings lag; spot price history
comes from the scripted series. Whatever else EC2 can do is moto's.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from providers.sandbox import ec2_wire as wire
from providers.sandbox import placement_groups
from providers.sandbox.cloud_core import CloudCore, UnknownInstance, WrongState
from providers.sandbox.config import FaultRule, Market
from providers.sandbox.ec2_wire import AwsRequest
from providers.sandbox.fleet import create_instant_fleet
from providers.sandbox.instances import Instance, InstanceState
from providers.sandbox.launch import Refused
from providers.sandbox.placement_groups import PlacementGroups
from providers.sandbox.prices import to_usd
from providers.sandbox.wsgi import Environ, Reply, WsgiApp, call_buffered

LISTINGS = frozenset({"DescribeInstances", "DescribeInstanceStatus"})
# These would make machines that no capacity, bill or supervisor knows of.
UNKEPT = frozenset({"RequestSpotInstances", "RequestSpotFleet", "ModifySpotFleetRequest"})
MAX_HISTORY = 1000


@dataclass(frozen=True, slots=True)
class Redeemed:
    """A ClientToken that was used: what was asked with it, and what came of it."""

    fingerprint: str
    at: float
    answer: bytes
    instances: tuple[Instance, ...]


class Ec2Gate:
    """EC2 as one region of one account offers it."""

    def __init__(
        self, core: CloudCore, moto: WsgiApp, console: Callable[[str], bytes] | None = None
    ) -> None:
        self._core = core
        self._moto = moto
        self._console = console
        self._tokens: dict[str, Redeemed] = {}
        self._groups = PlacementGroups(
            lambda: {i.group for i in core.instances if i.state is not InstanceState.TERMINATED}
        )

    def handle(self, environ: Environ, request: AwsRequest) -> Reply:
        """Answer one EC2 call."""
        if request.region and request.region != self._core.config.region:
            return wire.error_reply(
                "ec2", "OptInRequired", f"Region {request.region} is not enabled here"
            )
        try:
            return self._act(environ, request.action, request.parameters)
        except Refused as refusal:
            return wire.error_reply("ec2", refusal.code, refusal.message)
        except UnknownInstance as unknown:
            return wire.error_reply(
                "ec2", "InvalidInstanceID.NotFound", f"The instance ID '{unknown}' does not exist"
            )
        except WrongState as wrong:
            return wire.error_reply("ec2", "IncorrectInstanceState", str(wrong))

    def launch_parameters(self, parameters: Mapping[str, str]) -> dict[str, str]:
        """What a fault rule can match of a launch beyond its wire parameters."""
        with self._core.lock:
            try:
                order = self._core.desk.read(parameters)
            except Refused:
                return {}
        return {
            "machine_type": order.machine_type.name,
            "zone": order.zone or "",
            "market": str(order.market),
        }

    def _act(self, environ: Environ, action: str, parameters: Mapping[str, str]) -> Reply:
        if action in UNKEPT:
            raise Refused("UnsupportedOperation", f"{action} is not offered by this cloud")
        dry = parameters.get("DryRun", "").lower() == "true"
        with self._core.lock:
            if action == "RunInstances" and not dry:
                return self._once(parameters, lambda: self.launch(environ, parameters))
            if action == "CreateFleet" and not dry:
                start = partial(self.launch, environ)
                return self._once(
                    parameters, lambda: create_instant_fleet(self._core, parameters, start)
                )
            if action in ("TerminateInstances", "StopInstances", "StartInstances") and not dry:
                return self._change_states(action, parameters)
            if action == "DescribeSpotPriceHistory":
                return self._spot_price_history(parameters)
            if action in placement_groups.ACTIONS:
                return self._groups.act(action, parameters)
            if action == "GetConsoleOutput":
                return self._console_output(parameters)
            if action in LISTINGS:
                hidden = self._core.instances.invisible(
                    self._core.now(), self._core.config.terminated_visible_s
                )
                with self._core.ec2.hiding(hidden):
                    return self._pass(environ)
            if action == "DescribeInstanceTypeOfferings":
                return self._pass(wire.rewrite(environ, self._only_sold(parameters)))
            return self._pass(environ)

    def _pass(self, environ: Environ) -> Reply:
        status, headers, body = call_buffered(self._moto, environ)
        content_type = next(
            (value for name, value in headers if name.lower() == "content-type"), "text/xml"
        )
        return Reply(int(status.split(" ", 1)[0]), content_type, body)

    # -- launching --------------------------------------------------------------------------

    def _once(
        self,
        parameters: Mapping[str, str],
        perform: Callable[[], tuple[Reply, list[Instance]]],
    ) -> Reply:
        """Perform a launch once per ClientToken; repeats get the first answer, states renewed.

        Only successes are remembered: after a refusal the same token may be tried again, as in EC2.
        """
        now = self._core.now()
        token = parameters.get("ClientToken", "")
        fingerprint = _fingerprint(parameters)
        earlier = self._tokens.get(token) if token else None
        if earlier is not None and now - earlier.at < self._core.config.token_validity_s:
            if earlier.fingerprint != fingerprint:
                raise Refused(
                    "IdempotentParameterMismatch",
                    "The request uses the same client token as a previous, but non-identical "
                    "request. Do not reuse a client token with different requests, unless the "
                    "requests are identical",
                )
            states = [str(instance.state) for instance in earlier.instances]
            return Reply(200, "text/xml", wire.with_states(earlier.answer, states))
        reply, instances = perform()
        if token and reply.status == 200:
            self._tokens[token] = Redeemed(fingerprint, now, reply.body, tuple(instances))
        return reply

    def launch(
        self, environ: Environ, parameters: Mapping[str, str]
    ) -> tuple[Reply, list[Instance]]:
        """RunInstances itself, without memory. Called under the lock. Raises ``Refused``."""
        core = self._core
        order = core.desk.read(parameters)
        if order.group:
            self._groups.require(order.group)
        zone, count = core.desk.grant(order, core.now())
        told = {
            **parameters,
            "InstanceType": order.machine_type.name,
            "MinCount": str(count),
            "MaxCount": str(count),
            "InstanceInitiatedShutdownBehavior": order.shutdown_behaviour,
        }
        if order.market is Market.SPOT:
            told["InstanceMarketOptions.MarketType"] = "spot"
        if not order.has_interfaces:
            told["SubnetId"] = order.subnet_id or core.subnets[zone]
        reply = self._pass(wire.rewrite(environ, told))
        if reply.status != 200:
            return reply, []
        created = core.ec2.reserved(wire.reservation_of(reply.body))
        token = parameters.get("ClientToken", "")
        entered = core.launched(order, zone, token, created)
        body = wire.with_launch_time(reply.body, entered[0].launched_at)
        return Reply(reply.status, reply.content_type, body), entered

    # -- ending, stopping, starting ---------------------------------------------------------

    def _change_states(self, action: str, parameters: Mapping[str, str]) -> Reply:
        instance_ids = wire.numbered(parameters, "InstanceId")
        if not instance_ids:
            raise Refused("MissingParameter", "The request must contain the parameter InstanceId")
        if action == "StopInstances":
            return wire.state_changes(action, self._core.stop(instance_ids))
        if action == "StartInstances":
            return wire.state_changes(action, self._core.start_again(instance_ids))
        for instance_id in instance_ids:
            if self._core.one(instance_id).moto.disable_api_termination is True:
                raise Refused(
                    "OperationNotPermitted",
                    f"The instance '{instance_id}' may not be terminated: it is protected",
                )
        return wire.state_changes(action, self._core.terminate(instance_ids))

    # -- asking -----------------------------------------------------------------------------

    def _spot_price_history(self, parameters: Mapping[str, str]) -> Reply:
        core = self._core
        now = core.now()
        filters = wire.filters_of(parameters)
        types = (
            wire.numbered(parameters, "InstanceType")
            or filters.get("instance-type")
            or list(core.config.machine_types)
        )
        zone = parameters.get("AvailabilityZone")
        zones = [zone] if zone else filters.get("availability-zone", list(core.config.zones))
        products = wire.numbered(parameters, "ProductDescription") or filters.get(
            "product-description", ["Linux/UNIX"]
        )
        try:
            start_at = wire.read_timestamp(parameters.get("StartTime") or wire.timestamp(now))
            end_at = wire.read_timestamp(parameters.get("EndTime") or wire.timestamp(now))
            skip = int(parameters.get("NextToken") or 0)
            size = min(int(parameters.get("MaxResults") or MAX_HISTORY), MAX_HISTORY)
        except ValueError as error:
            raise Refused("InvalidParameterValue", str(error)) from error
        points = [
            (machine_type, each, step.start_at, to_usd(step.micros_per_hour))
            for machine_type in types
            for each in zones
            if machine_type in core.config.machine_types and each in core.config.zones
            for step in core.prices.steps(each, machine_type, Market.SPOT, start_at, end_at)
            if step.start_at <= now
        ]
        if not any(product.startswith("Linux/UNIX") for product in products):
            points = []
        points.sort(key=lambda point: (-point[2], point[0], point[1]))
        page = points[skip : skip + size]
        more = str(skip + size) if len(points) > skip + size else ""
        return wire.spot_history(page, "Linux/UNIX", more)

    def _console_output(self, parameters: Mapping[str, str]) -> Reply:
        instance = self._core.one(parameters.get("InstanceId", ""))
        output = b"" if self._console is None else self._console(instance.instance_id)
        return wire.answer(
            "GetConsoleOutput",
            f"<instanceId>{instance.instance_id}</instanceId>"
            f"<timestamp>{wire.timestamp(self._core.now())}</timestamp>"
            f"<output>{base64.b64encode(output).decode()}</output>",
        )

    def _only_sold(self, parameters: Mapping[str, str]) -> dict[str, str]:
        """Narrow a question about offerings to what this cloud sells."""
        told = dict(parameters)
        filters = wire.filters_of(parameters)
        index = len(filters) + 1
        narrowed: dict[str, tuple[str, ...]] = {"instance-type": self._core.config.machine_types}
        if parameters.get("LocationType") == "availability-zone":
            narrowed["location"] = self._core.config.zones
        for name, sold in narrowed.items():
            if name in filters:
                continue
            told[f"Filter.{index}.Name"] = name
            for position, value in enumerate(sold, start=1):
                told[f"Filter.{index}.Value.{position}"] = value
            index += 1
        return told


def suffer(rule: FaultRule | None, service: str, perform: Callable[[], Reply]) -> Reply | None:
    """Perform a call under a misfortune; None means that the answer is lost."""
    if rule is None:
        return perform()
    if rule.delay_s > 0 and not rule.execute_then_lose:
        time.sleep(rule.delay_s)
    if rule.code is not None:
        return wire.error_reply(service, rule.code, rule.message, rule.http_status)
    reply = perform()
    if not rule.execute_then_lose:
        return reply
    # the deed is done at once, the silence comes after: that is what a client cannot tell apart
    time.sleep(rule.delay_s)
    return None


def _fingerprint(parameters: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(parameters.items())).encode()).hexdigest()
