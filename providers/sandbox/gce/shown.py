"""How the sandbox's Compute Engine shows instances, operations and machine types."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from providers.sandbox.gce.catalogue import TYPES
from providers.sandbox.gce.state import GceInstance, GceOperation, OperationError


class Shown:
    """Views of what belongs to one project."""

    def __init__(self, project: str) -> None:
        self._project = project

    def _base(self, zone: str) -> str:
        return f"https://www.googleapis.com/compute/v1/projects/{self._project}/zones/{zone}"

    def instance(self, instance: GceInstance) -> dict[str, Any]:
        """An instance as ``instances.get`` answers."""
        base = self._base(instance.zone)
        shown = {
            **instance.body,
            "kind": "compute#instance",
            "id": str(instance.id),
            "name": instance.name,
            "zone": base,
            "status": str(instance.status),
            "machineType": f"{base}/machineTypes/{instance.type.name}",
            "creationTimestamp": timestamp(instance.created_at),
            "networkInterfaces": [{"networkIP": "127.0.0.1"}],
        }
        if instance.gpus:
            accelerator = f"{base}/acceleratorTypes/{instance.accelerator}"
            shown["guestAccelerators"] = [
                {"acceleratorType": accelerator, "acceleratorCount": instance.gpus}
            ]
        if instance.stopped_at is not None:
            shown["lastStopTimestamp"] = timestamp(instance.stopped_at)
        return shown

    def operation(self, operation: GceOperation, now: float) -> dict[str, Any]:
        """An operation as it is at ``now``."""
        done = operation.done_at <= now
        base = self._base(operation.zone)
        view: dict[str, Any] = {
            "kind": "compute#operation",
            "id": str(operation.id),
            "name": operation.name,
            "zone": base,
            "operationType": operation.kind,
            "targetLink": f"{base}/{operation.collection}/{operation.target}",
            "targetId": str(operation.target_id),
            "status": "DONE" if done else "RUNNING",
            "progress": 100 if done else 0,
            "insertTime": timestamp(operation.began_at),
        }
        if done:
            view["endTime"] = timestamp(operation.done_at)
            if operation.error is not None:
                view["error"] = {"errors": [_failure(operation.error)]}
                view["httpErrorStatusCode"] = 503
        return view


def _failure(error: OperationError) -> dict[str, Any]:
    shown: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.metric:
        quota = {"metricName": f"compute.googleapis.com/{error.metric}", "limitName": error.metric}
        shown["errorDetails"] = [{"quotaInfo": quota}]
    return shown


def machine_type(zone: str, name: str) -> dict[str, Any]:
    """A machine type as a zone lists it."""
    known = TYPES[name]
    shown: dict[str, Any] = {
        "name": name,
        "zone": zone,
        "guestCpus": known.vcpus,
        "memoryMb": known.memory_mib,
        "architecture": "X86_64",
    }
    if known.gpus:
        shown["accelerators"] = [
            {"guestAcceleratorType": known.accelerator, "guestAcceleratorCount": known.gpus}
        ]
    return shown


def timestamp(at: float) -> str:
    """RFC 3339 with milliseconds, as Compute Engine writes instants."""
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
