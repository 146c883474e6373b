"""instances.insert and bulkInsert: what is really asked for, and whether the cloud has it.

A request that makes no sense is refused at once; one that cannot be served now becomes an operation
that fails, as at Google.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from providers.sandbox.capacity import Stock
from providers.sandbox.config import Market
from providers.sandbox.gce.catalogue import ACCELERATORS, TYPES, GceType
from providers.sandbox.gce.state import GceOperation, GceState, OperationError, Refused

MAX_METADATA_BYTES = 262_144
LONGEST_RUN_S = 120 * 86_400
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """An insert request with its template folded in."""

    type: GceType
    accelerator: str
    gpus: int
    stock: Stock
    reservation: str
    body: dict[str, Any]


class Inserts:
    """Reads insert requests and starts what the cloud can give. Called under the cloud's lock."""

    def __init__(self, state: GceState) -> None:
        self._state = state

    def insert(
        self,
        zone: str,
        query: Mapping[str, str],
        body: dict[str, Any],
        failing: OperationError | None,
    ) -> GceOperation:
        """One instance. Raises Refused."""
        name = str(body.get("name", ""))
        self._check_name(zone, name)
        wanted = self._read(zone, {**self._template(query.get("sourceInstanceTemplate")), **body})
        error = failing or self._shortage(wanted, 1)
        if error is not None:
            return self._state.begin("insert", name, zone=zone, error=error)
        return self._start(name, wanted, "insert")

    def bulk(self, zone: str, body: dict[str, Any], failing: OperationError | None) -> GceOperation:
        """Several at once, by ``namePattern``: all of ``minCount``, or none. Raises Refused."""
        count = int(body.get("count") or 0)
        minimum = int(body.get("minCount") or count)
        pattern = str(body.get("namePattern", ""))
        if not 1 <= minimum <= count or "#" not in pattern:
            raise _invalid("count", "needs a count, a minCount up to it, and a namePattern with #")
        template = self._template(body.get("sourceInstanceTemplate"))
        wanted = self._read(zone, {**template, **(body.get("instanceProperties") or {})})
        signs = pattern.count("#")
        shape = pattern.replace("#" * signs, f"{{:0{signs}d}}")
        error = failing or self._shortage(wanted, minimum)
        if error is not None:
            code = error.code
            if code.startswith("ZONE_RESOURCE_POOL"):
                code = "VM_MIN_COUNT_NOT_REACHED"
            failed = OperationError(code, error.message, error.metric)
            return self._state.begin("bulkInsert", shape.format(1), zone=zone, error=failed)
        begun = []
        for number in range(1, count + 1):
            if number > minimum and self._shortage(wanted, 1) is not None:
                break
            name = shape.format(number)
            self._check_name(zone, name)
            begun.append(self._start(name, wanted, "bulkInsert"))
        return begun[-1]

    def _start(self, name: str, wanted: Wanted, kind: str) -> GceOperation:
        state = self._state
        instance = state.add(
            name, wanted.stock, wanted.type, wanted.accelerator, wanted.gpus, wanted.body
        )
        return state.begin(kind, instance, effect=lambda _at: state.run(instance))

    def _shortage(self, wanted: Wanted, count: int) -> OperationError | None:
        if not wanted.reservation:
            return self._state.shortage(wanted.stock, wanted.accelerator, wanted.gpus, count)
        held = sum(
            each.live and _reservation(each.body) == wanted.reservation
            for each in self._state.instances.values()
        )
        if held + count > self._state.config.reservations[wanted.reservation]:
            return OperationError(
                "ZONE_RESOURCE_POOL_EXHAUSTED",
                f"The reservation {wanted.reservation} has no machine left",
            )
        return None

    def _check_name(self, zone: str, name: str) -> None:
        if _NAME.fullmatch(name) is None:
            raise _invalid("resource.name", f"'{name}'")
        if self._state.is_taken(zone, name):
            path = f"projects/{self._state.config.project}/zones/{zone}/instances/{name}"
            raise Refused(409, "alreadyExists", f"The resource '{path}' already exists")

    def _template(self, named: Any) -> dict[str, Any]:
        if not named:
            return {}
        name = str(named).rsplit("/", 1)[-1]
        found = self._state.config.templates.get(name)
        if found is None:
            raise Refused(404, "notFound", f"The resource 'instanceTemplates/{name}' was not found")
        return found

    def _read(self, zone: str, body: dict[str, Any]) -> Wanted:
        machine = TYPES.get(str(body.get("machineType", "")).rsplit("/", 1)[-1])
        if machine is None:
            raise _invalid("resource.machineType", f"'{body.get('machineType', '')}'")
        self._check_disks(body)
        _check_labels(body)
        _check_metadata(body)
        accelerator, gpus = _accelerators(machine, body)
        scheduling = body.get("scheduling") or {}
        spot = scheduling.get("provisioningModel") == "SPOT"
        _check_scheduling(scheduling, gpus)
        reservation = _reservation(body)
        if reservation and reservation not in self._state.config.reservations:
            raise Refused(
                404, "notFound", f"The resource 'reservations/{reservation}' was not found"
            )
        market = Market.SPOT if spot else Market.ON_DEMAND
        stock = Stock(zone, machine.name, market)
        return Wanted(machine, accelerator, gpus, stock, reservation, body)

    def _check_disks(self, body: Mapping[str, Any]) -> None:
        boots = [each for each in body.get("disks") or () if each.get("boot")]
        if len(boots) != 1:
            raise _invalid("resource.disks", "needs one boot disk")
        image = str((boots[0].get("initializeParams") or {}).get("sourceImage", ""))
        if image != self._state.config.image:
            raise Refused(
                404, "notFound", f"The resource '{image}' was not found: machines of this cloud "
                f"boot {self._state.config.image}",
            )  # fmt: skip


def _accelerators(machine: GceType, body: Mapping[str, Any]) -> tuple[str, int]:
    attached = body.get("guestAccelerators") or ()
    if not attached:
        return machine.accelerator, machine.gpus
    if machine.gpus or machine.series != "n1":
        raise _invalid("resource.guestAccelerators", f"{machine.name} takes no attached GPUs")
    name = str(attached[0].get("acceleratorType", "")).rsplit("/", 1)[-1]
    count = int(attached[0].get("acceleratorCount") or 0)
    if name not in ACCELERATORS or count not in (1, 2, 4, 8):
        raise _invalid("resource.guestAccelerators", f"{count} × '{name}'")
    return name, count


def _check_scheduling(scheduling: Mapping[str, Any], gpus: int) -> None:
    if gpus and scheduling.get("onHostMaintenance") != "TERMINATE":
        raise _invalid("scheduling.onHostMaintenance", "instances with GPUs must be TERMINATE")
    longest = int((scheduling.get("maxRunDuration") or {}).get("seconds") or 0)
    if longest and not 30 <= longest <= LONGEST_RUN_S:
        raise _invalid("scheduling.maxRunDuration", "30 seconds to 120 days")


def _check_labels(body: Mapping[str, Any]) -> None:
    for key, value in (body.get("labels") or {}).items():
        if _LABEL.fullmatch(key) is None or _LABEL.fullmatch(str(value)) is None:
            raise _invalid("resource.labels", f"'{key}: {value}'")


def _check_metadata(body: Mapping[str, Any]) -> None:
    for item in (body.get("metadata") or {}).get("items") or ():
        if len(str(item.get("value", "")).encode()) > MAX_METADATA_BYTES:
            raise _invalid(f"metadata.items[{item.get('key')}]", "is too large")


def _reservation(body: Mapping[str, Any]) -> str:
    affinity = body.get("reservationAffinity") or {}
    if affinity.get("consumeReservationType") != "SPECIFIC_RESERVATION":
        return ""
    return str((affinity.get("values") or [""])[0])


def _invalid(field: str, what: str) -> Refused:
    return Refused(400, "invalid", f"Invalid value for field '{field}': {what}")
