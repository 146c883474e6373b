"""The one place that touches moto's insides.

moto keeps what EC2 would keep: instances, tags, templates, subnets. What it cannot do, or does
differently from EC2, is put right from here: instance states that take time, state reasons, launch
times by the cloud's clock, spot machines marked as such, and the filters ``instance-lifecycle`` and
``client-token``. Each cloud uses an account number of its own, so that several clouds in one
process share nothing.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from moto.backends import get_backend
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.instances import StateReason
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, filter_dict_attribute_mapping, get_prefix

STATE_CODES: Final = MappingProxyType(
    {
        "pending": 0,
        "running": 16,
        "shutting-down": 32,
        "terminated": 48,
        "stopping": 64,
        "stopped": 80,
    }
)

# moto looks filters up in this table and fails on names it lacks; both are plain attributes
filter_dict_attribute_mapping.update(
    {"instance-lifecycle": "lifecycle", "client-token": "client_token"}
)


def _tags_by_resource(resource: Any) -> list[dict[str, str]]:
    """What moto finds by walking all tags there are, for each instance of a listing anew."""
    if not resource.id:
        return []
    kind = EC2_PREFIX_TO_RESOURCE.get(get_prefix(resource.id), "")
    return [
        {"resource_id": resource.id, "key": key, "value": value, "resource_type": kind}
        for key, value in resource.ec2_backend.tags.get(resource.id, {}).items()
    ]


# as untyped as all else of moto here
setattr(TaggedEC2Resource, "get_tags", _tags_by_resource)  # noqa: B010

# moto would fill every new account with 1,300 foreign images and their volumes, which cost more
# than all else at start; a cloud registers the one image that its machines boot
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

_account_lock = threading.Lock()
_accounts_given = 0
_FIRST_ACCOUNT = 100_000_000_001


def new_account_id() -> str:
    """A 12-digit account number that no other cloud of this process has."""
    global _accounts_given
    with _account_lock:
        _accounts_given += 1
        return str(_FIRST_ACCOUNT + _accounts_given)


class MotoEc2:
    """One account's EC2 in one region. Not thread-safe: the cloud calls it under its lock."""

    def __init__(self, account_id: str, region: str) -> None:
        self._account_id = account_id
        self._region = region

    @property
    def _backend(self) -> Any:
        return get_backend("ec2")[self._account_id][self._region]

    def subnets(self) -> dict[str, str]:
        """Zone → its default subnet."""
        return {
            subnet.availability_zone: subnet.id
            for subnet in self._backend.describe_subnets()
            if subnet.default_for_az == "true" or subnet.default_for_az is True
        }

    def register_image(self, image_id: str, name: str) -> None:
        """Register the image that machines boot, under an id that pools can name beforehand."""
        backend = self._backend
        image = backend.register_image(name, "What every sandbox machine boots")
        image.virtualization_type = "hvm"
        image.architecture = "x86_64"
        image.root_device_type = "ebs"
        del backend.amis[image.id]
        image.id = image_id
        backend.amis[image_id] = image

    def has_image(self, image_id: str) -> bool:
        return image_id in self._backend.amis

    def zone_of_subnet(self, subnet_id: str) -> str | None:
        """The zone of a subnet, or None when there is no such subnet."""
        for subnet in self._backend.describe_subnets():
            if subnet.id == subnet_id:
                return str(subnet.availability_zone)
        return None

    def template_data(
        self, template_id: str | None, name: str | None, version: str | None
    ) -> dict[str, Any] | None:
        """A launch template version's data, or None when there is no such version."""
        backend = self._backend
        if template_id is None:
            template_id = backend.launch_template_name_to_ids.get(name)
        template = backend.launch_templates.get(template_id)
        if template is None:
            return None
        wanted = {
            "$Latest": template.latest_version_number,
            "$Default": template.default_version_number,
        }.get(version or "$Default", version)
        for each in template.versions:
            if str(each.number) == str(wanted):
                data: dict[str, Any] = each.data
                return data
        return None

    def instance(self, instance_id: str) -> Any | None:
        """moto's own object for an instance."""
        return self._backend.get_instance_by_id(instance_id)

    def reserved(self, reservation_id: str) -> list[Any]:
        """The instances that one RunInstances call made, without walking all of them."""
        return list(self._backend.reservations[reservation_id].instances)

    @contextmanager
    def hiding(self, instance_ids: Iterable[str]) -> Iterator[None]:
        """While inside, these instances are not listed: listings of a real cloud lag."""
        hidden = set(instance_ids)
        reservations = self._backend.reservations
        if not hidden:
            yield
            return
        shown = reservations.copy()
        for reservation_id, reservation in shown.items():
            if any(instance.id in hidden for instance in reservation.instances):
                del reservations[reservation_id]
        try:
            yield
        finally:
            self._backend.reservations = shown

    def emit(self, kind: str, instance_id: str, detail: dict[str, str], at: float) -> None:
        """Put an event of EC2 on the account's default bus: the rules there send it on."""
        get_backend("events")[self._account_id][self._region].put_events(
            [
                {
                    "Source": "aws.ec2",
                    "DetailType": kind,
                    "Detail": json.dumps({"instance-id": instance_id, **detail}),
                    "Time": at,
                    "Resources": [
                        f"arn:aws:ec2:{self._region}:{self._account_id}:instance/{instance_id}"
                    ],
                }
            ]
        )

    def forget(self) -> None:
        """Drop everything of this account, so that a closed cloud keeps no memory."""
        for service in ("ec2", "s3", "iam", "sts", "sqs", "events"):
            get_backend(service).pop(self._account_id, None)


def stamp_launch(instance: Any, *, at: float, state: str, spot: bool) -> None:
    """Make a new moto instance look as EC2 would show it."""
    instance.launch_time = datetime.fromtimestamp(at, UTC).replace(tzinfo=None)
    instance.lifecycle = "spot" if spot else None
    if spot:
        instance.spot_instance_request_id = "sir-" + instance.id[2:10]
    set_state(instance, state)


def set_state(
    instance: Any, state: str, code: str = "", message: str = "", transition: str = ""
) -> None:
    """Put an instance into an EC2 state, with EC2's reason and who began the transition, when."""
    instance.instance_state.name = state
    instance.instance_state.code = STATE_CODES[state]
    instance.state_reason = StateReason(message, code)
    instance._reason = transition  # noqa: SLF001 - moto offers no way to say why a state changed


def release(instance: Any) -> None:
    """Give back what an instance held (interfaces, volumes), as TerminateInstances does."""
    instance.terminate()


def user_data_of(instance: Any) -> bytes:
    """The decoded user data, empty when there is none."""
    return b"" if instance.user_data is None else base64.b64decode(str(instance.user_data))


def tags_of(instance: Any) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in instance.get_tags()}
