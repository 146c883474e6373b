"""Placement groups of the sandbox's EC2, which moto does not have."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from typing import Final
from xml.sax.saxutils import escape

from providers.sandbox import ec2_wire as wire
from providers.sandbox.launch import Refused
from providers.sandbox.wsgi import Reply

ACTIONS: Final = frozenset(
    {"CreatePlacementGroup", "DescribePlacementGroups", "DeletePlacementGroup"}
)
LIMIT: Final = 500
"""Per account and region, as in EC2."""


class PlacementGroups:
    """Groups by name; ``in_use`` says which hold an instance that is not terminated. Called under
    the cloud's lock."""

    def __init__(self, in_use: Callable[[], Collection[str]]) -> None:
        self._in_use = in_use
        self._tags: dict[str, dict[str, str]] = {}

    def require(self, name: str) -> None:
        """Raises Refused when there is no such group to launch into."""
        if name not in self._tags:
            raise Refused(
                "InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown."
            )

    def act(self, action: str, parameters: Mapping[str, str]) -> Reply:
        """One call. Raises Refused."""
        if parameters.get("DryRun", "").lower() == "true":
            raise Refused(
                "DryRunOperation",
                "Request would have succeeded, but DryRun flag is set.",
            )
        name = parameters.get("GroupName", "")
        match action:
            case "CreatePlacementGroup":
                return self._create(name, parameters)
            case "DeletePlacementGroup":
                self.require(name)
                if name in self._in_use():
                    raise Refused(
                        "InvalidPlacementGroup.InUse",
                        f"The placement group '{name}' is in use and may not be deleted.",
                    )
                del self._tags[name]
                return wire.answer(action, "<return>true</return>")
            case _:
                return self._listed(parameters)

    def _create(self, name: str, parameters: Mapping[str, str]) -> Reply:
        if parameters.get("Strategy") not in ("cluster", "spread", "partition"):
            raise Refused("InvalidParameterValue", "Invalid value for strategy")
        if name in self._tags:
            raise Refused(
                "InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists."
            )
        if len(self._tags) >= LIMIT:
            raise Refused("PlacementGroupLimitExceeded", f"The maximum number of groups is {LIMIT}")
        self._tags[name] = _tags(parameters)
        return wire.answer("CreatePlacementGroup", f"<return>true</return>{self._item(name)}")

    def _listed(self, parameters: Mapping[str, str]) -> Reply:
        filters = wire.filters_of(parameters)
        found = [
            name
            for name, tags in sorted(self._tags.items())
            if all(
                tags.get(field.removeprefix("tag:")) in accepted
                for field, accepted in filters.items()
                if field.startswith("tag:")
            )
        ]
        items = "".join(f"<item>{self._item(name)}</item>" for name in found)
        return wire.answer(
            "DescribePlacementGroups", f"<placementGroupSet>{items}</placementGroupSet>"
        )

    def _item(self, name: str) -> str:
        tags = "".join(
            f"<item><key>{escape(key)}</key><value>{escape(value)}</value></item>"
            for key, value in self._tags[name].items()
        )
        return (
            f"<groupName>{escape(name)}</groupName><strategy>cluster</strategy>"
            f"<state>available</state><tagSet>{tags}</tagSet>"
        )


def _tags(parameters: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for index in itertools.count(1):
        key = parameters.get(f"TagSpecification.1.Tag.{index}.Key")
        if key is None:
            return found
        found[key] = parameters.get(f"TagSpecification.1.Tag.{index}.Value", "")
    return found
