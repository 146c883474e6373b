"""CreateFleet of type ``instant``: one call, several offers, and the errors of those without luck.

EC2 answers with what it could start and with one error per offer that it tried and could not. The
allocation follows the strategy: ``lowest-price`` (and ``price-capacity-optimized`` here, where
capacity is a number and not a guess) tries the cheapest first, ``prioritized`` strategies follow
the given priorities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

from providers.sandbox import ec2_wire as wire
from providers.sandbox.cloud_core import CloudCore
from providers.sandbox.config import Market
from providers.sandbox.instances import Instance
from providers.sandbox.launch import Refused
from providers.sandbox.wsgi import Reply

Start = Callable[[Mapping[str, str]], tuple[Reply, list[Instance]]]


@dataclass(frozen=True, slots=True)
class FleetOffer:
    """One way to get a machine: a template, and what it is overridden with."""

    template: Mapping[str, str]
    override: Mapping[str, str]

    @property
    def priority(self) -> float:
        return float(self.override.get("Priority", "inf"))

    def run_parameters(self, market: Market, shared: Mapping[str, str]) -> dict[str, str]:
        """The RunInstances request of this offer for one machine."""
        told = {f"LaunchTemplate.{name}": value for name, value in self.template.items()}
        for name in ("InstanceType", "SubnetId", "ImageId"):
            if name in self.override:
                told[name] = self.override[name]
        if "AvailabilityZone" in self.override:
            told["Placement.AvailabilityZone"] = self.override["AvailabilityZone"]
        told["InstanceMarketOptions.MarketType"] = market if market is Market.SPOT else ""
        if market is Market.SPOT and "MaxPrice" in self.override:
            told["InstanceMarketOptions.SpotOptions.MaxPrice"] = self.override["MaxPrice"]
        return {**shared, **told, "Action": "RunInstances", "MinCount": "1", "MaxCount": "1"}


def create_instant_fleet(
    core: CloudCore, parameters: Mapping[str, str], start: Start
) -> tuple[Reply, list[Instance]]:
    """Start the fleet's machines one by one, each from the first offer that has one."""
    if parameters.get("Type") != "instant":
        raise Refused("UnsupportedOperation", "Only fleets of type instant are offered here")
    offers = _offers(parameters)
    if not offers:
        raise Refused("MissingParameter", "The request must contain LaunchTemplateConfigs")
    capacity = "TargetCapacitySpecification"
    wanted = int(parameters.get(f"{capacity}.TotalTargetCapacity", "1"))
    spot = parameters.get(f"{capacity}.DefaultTargetCapacityType") == "spot"
    market = Market.SPOT if spot else Market.ON_DEMAND
    options = "SpotOptions" if spot else "OnDemandOptions"
    if "prioritized" in parameters.get(f"{options}.AllocationStrategy", ""):
        ordered = sorted(offers, key=lambda offer: offer.priority)
    else:
        ordered = sorted(offers, key=lambda offer: _price(core, offer, market))
    shared = {
        "Version": parameters.get("Version", "2016-11-15"),
        **_instance_tags(parameters),
    }
    started: list[tuple[FleetOffer, Instance]] = []
    errors: dict[int, tuple[FleetOffer, Refused]] = {}
    for _ in range(wanted):
        for offer in ordered:
            try:
                _, made = start(offer.run_parameters(market, shared))
            except Refused as refusal:
                errors[id(offer)] = (offer, refusal)
                continue
            started.extend((offer, instance) for instance in made)
            break
    reply = _answer(core, market, started, list(errors.values()))
    return reply, [instance for _, instance in started]


def _price(core: CloudCore, offer: FleetOffer, market: Market) -> tuple[int, str, str]:
    name = offer.override.get("InstanceType", "")
    zone = offer.override.get("AvailabilityZone") or core.config.zones[0]
    if "SubnetId" in offer.override:
        zone = core.ec2.zone_of_subnet(offer.override["SubnetId"]) or zone
    if name not in core.config.machine_types:
        return (0, name, zone)
    if market is Market.SPOT:
        return (core.prices.spot_micros(zone, name, core.now()), name, zone)
    return (core.prices.on_demand_micros(name), name, zone)


def _offers(parameters: Mapping[str, str]) -> list[FleetOffer]:
    offers: list[FleetOffer] = []
    config = 1
    while True:
        prefix = f"LaunchTemplateConfigs.{config}."
        own = _below(parameters, prefix)
        if not own:
            return offers
        template = _below(own, "LaunchTemplateSpecification.")
        number = 1
        while override := _below(own, f"Overrides.{number}."):
            offers.append(FleetOffer(template, override))
            number += 1
        if number == 1:
            offers.append(FleetOffer(template, {}))
        config += 1


def _below(parameters: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        key[len(prefix) :]: value for key, value in parameters.items() if key.startswith(prefix)
    }


def _instance_tags(parameters: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in parameters.items() if key.startswith("TagSpecification.")}


def _answer(
    core: CloudCore,
    market: Market,
    started: list[tuple[FleetOffer, Instance]],
    errors: list[tuple[FleetOffer, Refused]],
) -> Reply:
    lifecycle = "spot" if market is Market.SPOT else "on-demand"
    instances = "".join(
        f"<item>{_template_xml(offer)}<lifecycle>{lifecycle}</lifecycle>"
        f"<instanceIds><item>{instance.instance_id}</item></instanceIds>"
        f"<instanceType>{instance.machine_type}</instanceType></item>"
        for offer, instance in started
    )
    refused = "".join(
        f"<item>{_template_xml(offer)}<lifecycle>{lifecycle}</lifecycle>"
        f"<errorCode>{refusal.code}</errorCode>"
        f"<errorMessage>{escape(refusal.message)}</errorMessage></item>"
        for offer, refusal in errors
    )
    return wire.answer(
        "CreateFleet",
        f"<fleetId>fleet-{len(core.instances):08d}</fleetId>"
        f"<fleetInstanceSet>{instances}</fleetInstanceSet><errorSet>{refused}</errorSet>",
    )


def _template_xml(offer: FleetOffer) -> str:
    names = {
        "LaunchTemplateId": "launchTemplateId",
        "LaunchTemplateName": "launchTemplateName",
        "Version": "version",
    }
    template = "".join(
        f"<{names[name]}>{escape(value)}</{names[name]}>"
        for name, value in offer.template.items()
        if name in names
    )
    wanted = {
        "InstanceType": "instanceType",
        "SubnetId": "subnetId",
        "AvailabilityZone": "availabilityZone",
    }
    overrides = "".join(
        f"<{wanted[name]}>{escape(value)}</{wanted[name]}>"
        for name, value in offer.override.items()
        if name in wanted
    )
    return (
        f"<launchTemplateAndOverrides><launchTemplateSpecification>{template}"
        f"</launchTemplateSpecification><overrides>{overrides}</overrides>"
        f"</launchTemplateAndOverrides>"
    )
