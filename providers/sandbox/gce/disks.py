"""The boot disks of one sandbox Compute Engine: there as long as their instances, and longer where
they were not made to go with them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from providers.sandbox.gce.shown import timestamp
from providers.sandbox.gce.state import (
    GceInstance,
    GceOperation,
    GceState,
    OperationError,
    Refused,
)


class Disks:
    """Looked at and changed under the cloud's lock."""

    def __init__(self, state: GceState) -> None:
        self._state = state
        self._deleted: set[int] = set()

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Zone and view of every disk that is there."""
        base = f"https://www.googleapis.com/compute/v1/projects/{self._state.config.project}"
        for instance in self._state.instances.values():
            disk = self._disk(instance)
            if disk is None:
                continue
            zone = f"{base}/zones/{instance.zone}"
            row: dict[str, Any] = {
                "kind": "compute#disk",
                "name": instance.name,
                "zone": zone,
                "creationTimestamp": timestamp(instance.created_at),
                "labels": (disk.get("initializeParams") or {}).get("labels") or {},
            }
            if instance.deleted_at is None:
                row["users"] = [f"{zone}/instances/{instance.name}"]
            yield instance.zone, row

    def delete(self, zone: str, name: str, failing: OperationError | None) -> GceOperation:
        """Delete a disk. Raises Refused."""
        for instance in self._state.instances.values():
            if (instance.zone, instance.name) != (zone, name) or self._disk(instance) is None:
                continue
            if instance.deleted_at is None:
                words = f"The disk resource 'zones/{zone}/disks/{name}' is already being used"
                raise Refused(400, "resourceInUseByAnotherResource", words)
            return self._state.begin(
                "delete",
                name,
                zone=zone,
                error=failing,
                effect=partial(self._forget, instance.id),
                collection="disks",
            )
        raise Refused(404, "notFound", f"The resource 'zones/{zone}/disks/{name}' was not found")

    def _forget(self, instance_id: int, _at: float) -> None:
        self._deleted.add(instance_id)

    def _disk(self, instance: GceInstance) -> dict[str, Any] | None:
        """The boot disk of an instance, if it is there."""
        boots = (each for each in instance.body.get("disks") or () if each.get("boot"))
        disk: dict[str, Any] | None = next(boots, None)
        gone = instance.deleted_at is not None and disk is not None and disk.get("autoDelete")
        return None if gone or instance.id in self._deleted else disk
