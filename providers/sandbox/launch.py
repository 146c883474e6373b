"""RunInstances before the deed: what is really asked for, and whether the cloud has it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from providers.sandbox.capacity import CapacityBook, QuotaBook, Stock
from providers.sandbox.catalogue import MachineType, describe
from providers.sandbox.config import Market, SandboxConfig
from providers.sandbox.instances import InstanceBook
from providers.sandbox.moto_ec2 import MotoEc2
from providers.sandbox.prices import PriceBook, to_micros

MAX_USER_DATA_BYTES = 16_384
_IMAGE_ID = re.compile(r"ami-[0-9a-f]{8,17}")


class Refused(Exception):
    """EC2 says no: ``code`` as EC2 spells it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """A RunInstances request with its launch template folded in.

    ``zone`` None lets the cloud choose; ``group`` is a placement group.
    ``max_price_micros`` None: up to the list price.
    """

    machine_type: MachineType
    zone: str | None
    market: Market
    max_price_micros: int | None
    minimum: int
    maximum: int
    subnet_id: str | None
    shutdown_behaviour: str
    has_interfaces: bool
    group: str = ""


class LaunchDesk:
    """Reads launch requests and decides what the cloud can give."""

    def __init__(
        self,
        config: SandboxConfig,
        ec2: MotoEc2,
        instances: InstanceBook,
        capacity: CapacityBook,
        quotas: QuotaBook,
        prices: PriceBook,
    ) -> None:
        self._config = config
        self._ec2 = ec2
        self._instances = instances
        self._capacity = capacity
        self._quotas = quotas
        self._prices = prices

    def read(self, parameters: Mapping[str, str]) -> LaunchOrder:
        """Fold the template in and check what can be checked. Raises ``Refused``."""
        template = self._template(parameters)
        name = parameters.get("InstanceType") or str(template.get("InstanceType") or "")
        if not name:
            raise Refused("MissingParameter", "The request must contain the parameter InstanceType")
        machine_type = describe(name) if name in self._config.machine_types else None
        if machine_type is None:
            raise Refused("InvalidParameterValue", f"Invalid value '{name}' for InstanceType.")
        self._check_image(parameters.get("ImageId") or str(template.get("ImageId") or ""))
        _check_user_data(parameters.get("UserData") or template.get("UserData"))
        options = template.get("InstanceMarketOptions") or {}
        market_type = parameters.get("InstanceMarketOptions.MarketType", options.get("MarketType"))
        ceiling = parameters.get(
            "InstanceMarketOptions.SpotOptions.MaxPrice",
            (options.get("SpotOptions") or {}).get("MaxPrice"),
        )
        minimum, maximum = _counts(parameters)
        subnet_id, zone = self._place(parameters, template)
        return LaunchOrder(
            machine_type=machine_type,
            zone=zone,
            market=Market.SPOT if market_type == "spot" else Market.ON_DEMAND,
            max_price_micros=_price(ceiling),
            minimum=minimum,
            maximum=maximum,
            subnet_id=subnet_id,
            shutdown_behaviour=str(
                parameters.get("InstanceInitiatedShutdownBehavior")
                or template.get("InstanceInitiatedShutdownBehavior")
                or "stop"
            ),
            has_interfaces=any(key.startswith("NetworkInterface.") for key in parameters),
            group=parameters.get("Placement.GroupName", ""),
        )

    def grant(self, order: LaunchOrder, now: float) -> tuple[str, int]:
        """The zone and the number of machines that the cloud gives. Raises ``Refused``."""
        market = order.market
        name = order.machine_type.name
        zones = self._config.zones if order.zone is None else (order.zone,)
        if market is Market.SPOT and order.max_price_micros is not None:
            zones = tuple(
                zone
                for zone in zones
                if self._prices.spot_micros(zone, name, now) <= order.max_price_micros
            )
            if not zones:
                raise Refused(
                    "SpotMaxPriceTooLow",
                    "Your Spot request price is lower than the minimum required Spot request "
                    "fulfillment price.",
                )
        allowed = self._within_quota(order)
        if self._config.machines:
            room = self._config.machine_limit - len(self._instances.live())
            allowed = min(allowed, room)
        for zone in zones:
            free = self._capacity.free(Stock(zone, name, market), self._instances.held)
            granted = allowed if free is None else min(allowed, free)
            if granted >= order.minimum:
                return zone, granted
        raise Refused(
            "InsufficientInstanceCapacity",
            f"We currently do not have sufficient {name} capacity in the Availability Zone you "
            f"requested ({', '.join(zones)}).",
        )

    def _within_quota(self, order: LaunchOrder) -> int:
        """How many of the machines asked for the vCPU quota allows, at least the minimum."""
        left = self._quotas.left(order.machine_type.name, order.market, self._instances.vcpus_used)
        asked = order.machine_type.vcpus * order.minimum
        if left is None or asked <= left:
            fitting = order.maximum if left is None else left // order.machine_type.vcpus
            return min(order.maximum, fitting)
        if order.market is Market.SPOT:
            raise Refused("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        raise Refused(
            "VcpuLimitExceeded",
            f"You have requested more vCPU capacity than your current vCPU limit allows: "
            f"{asked} asked, {left} left.",
        )

    def _check_image(self, image_id: str) -> None:
        if not image_id:
            raise Refused("MissingParameter", "The request must contain the parameter ImageId")
        if _IMAGE_ID.fullmatch(image_id) is None:
            raise Refused("InvalidAMIID.Malformed", f'Invalid id: "{image_id}"')
        if not self._ec2.has_image(image_id):
            raise Refused(
                "InvalidAMIID.NotFound",
                f"The image id '[{image_id}]' does not exist: "
                f"machines of this cloud boot {self._config.image_id}",
            )

    def _template(self, parameters: Mapping[str, str]) -> Mapping[str, Any]:
        template_id = parameters.get("LaunchTemplate.LaunchTemplateId")
        name = parameters.get("LaunchTemplate.LaunchTemplateName")
        if template_id is None and name is None:
            return {}
        data = self._ec2.template_data(template_id, name, parameters.get("LaunchTemplate.Version"))
        if data is None:
            raise Refused(
                "InvalidLaunchTemplateId.NotFound",
                f"The specified launch template, {template_id or name}, does not exist.",
            )
        return data

    def _place(
        self, parameters: Mapping[str, str], template: Mapping[str, Any]
    ) -> tuple[str | None, str | None]:
        """The subnet and the zone asked for, each None when the cloud may choose."""
        interfaces = template.get("NetworkInterfaces") or []
        subnet_id = (
            parameters.get("SubnetId")
            or parameters.get("NetworkInterface.1.SubnetId")
            or next((each["SubnetId"] for each in interfaces if each.get("SubnetId")), None)
        )
        placement = parameters.get("Placement.AvailabilityZone") or (
            template.get("Placement") or {}
        ).get("AvailabilityZone")
        zone = placement if subnet_id is None else self._ec2.zone_of_subnet(subnet_id)
        if subnet_id is not None and zone is None:
            raise Refused("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")
        if zone is not None and zone not in self._config.zones:
            raise Refused(
                "InvalidParameterValue", f"Invalid availability zone: [{zone}] is not offered here"
            )
        return subnet_id, zone


def _counts(parameters: Mapping[str, str]) -> tuple[int, int]:
    try:
        minimum = int(parameters.get("MinCount", "1"))
        maximum = int(parameters.get("MaxCount", str(minimum)))
    except ValueError as error:
        raise Refused("InvalidParameterValue", "MinCount and MaxCount are whole numbers") from error
    if not 1 <= minimum <= maximum:
        raise Refused("InvalidParameterValue", "MinCount must be at least 1 and at most MaxCount")
    return minimum, maximum


def _price(usd_per_hour: str | None) -> int | None:
    if usd_per_hour is None or usd_per_hour == "":
        return None
    try:
        return to_micros(Decimal(usd_per_hour))
    except (InvalidOperation, ValueError, OverflowError) as error:
        raise Refused("InvalidParameterValue", f"Invalid MaxPrice: {usd_per_hour}") from error


def _check_user_data(encoded: Any) -> None:
    if encoded is None or str(encoded) == "":
        return
    try:
        raw = base64.b64decode(str(encoded), validate=True)
    except binascii.Error as error:
        raise Refused("InvalidUserData.Malformed", "Invalid BASE64 encoding") from error
    if len(raw) > MAX_USER_DATA_BYTES:
        raise Refused("InvalidParameterValue", "User data is limited to 16384 bytes")
