"""The REST faces of the sandbox's Compute Engine: instances, operations, types, quotas, prices.

Errors are Google's: a refused request is an HTTP error with a ``reason``; a request that was taken
and then failed is an operation that is done and carries ``error.errors``. What is asked for and is
not there answers 404, as a mistyped URL would.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl

from providers.sandbox.gce.billing import skus
from providers.sandbox.gce.catalogue import ACCELERATORS, TYPES
from providers.sandbox.gce.disks import Disks
from providers.sandbox.gce.inserts import Inserts
from providers.sandbox.gce.listing import masked, matcher
from providers.sandbox.gce.shown import Shown, machine_type
from providers.sandbox.gce.state import (
    ALL_REGIONS,
    GceOperation,
    GceState,
    OperationError,
    Refused,
    Status,
)
from providers.sandbox.wsgi import BodyTooLarge, Environ, Reply, json_reply, read_body

LONGEST_HOLD_S: Final = 120.0
PAGE: Final = 500
UNSCRIPTED_GPUS: Final = 1_000_000

# what Google answers with, where it is not the 400 of a refused request
STATUS_BY_REASON: Final = MappingProxyType(
    {
        "quotaExceeded": 403,
        "rateLimitExceeded": 403,
        "userRateLimitExceeded": 403,
        "forbidden": 403,
        "accessNotConfigured": 403,
        "authError": 401,
        "notFound": 404,
        "alreadyExists": 409,
        "backendError": 503,
        "internalError": 500,
    }
)

_COMPUTE: Final = re.compile(r"/compute/v1/projects/([a-z0-9-]+)(?:/(.*))?")
_ZONAL: Final = re.compile(
    r"zones/([a-z0-9-]+)/(instances|operations|disks)(?:/([a-zA-Z0-9-]+))?(?:/([A-Za-z]+))?"
)


class GceApi:
    """Answers every REST call of one cloud."""

    def __init__(self, state: GceState) -> None:
        self._state = state
        self._inserts = Inserts(state)
        self._shown = Shown(state.config.project)
        self._disks = Disks(state)

    def handle(self, environ: Environ) -> Reply | None:
        """Answer one call; None: the answer is lost."""
        method = environ["REQUEST_METHOD"]
        query = dict(parse_qsl(environ.get("QUERY_STRING", "")))
        try:
            raw = read_body(environ)
            body = json.loads(raw) if raw else {}
        except BodyTooLarge:
            return error_reply(413, "uploadTooLarge", "the body is too large")
        except ValueError:
            return error_reply(400, "parseError", "Parse Error")
        try:
            action, perform = self._route(method, environ["PATH_INFO"], query, body)
        except Refused as refusal:
            return error_reply(refusal.status, refusal.reason, refusal.message)
        return self._suffer(action, self._facts(environ["PATH_INFO"], body), perform, query)

    # -- misfortune -------------------------------------------------------------------------

    def _suffer(
        self,
        action: str,
        facts: Mapping[str, str],
        perform: Callable[[OperationError | None], Any],
        query: Mapping[str, str],
    ) -> Reply | None:
        state = self._state
        with state.lock:
            state.calls[action] += 1
        rule = state.faults.strike(action, facts)
        if rule is None:
            return self._answer(perform, None, query)
        if rule.delay_s > 0 and not rule.execute_then_lose:
            time.sleep(rule.delay_s)
        if rule.code is not None and not rule.code.isupper() and "_" not in rule.code:
            status = rule.http_status or STATUS_BY_REASON.get(rule.code, 400)
            return error_reply(status, rule.code, rule.message)
        failing = None if rule.code is None else OperationError(rule.code, rule.message)
        reply = self._answer(perform, failing, query)
        if not rule.execute_then_lose:
            return reply
        # the deed is done at once, the silence comes after
        time.sleep(rule.delay_s)
        return None

    def _answer(
        self,
        perform: Callable[[OperationError | None], Any],
        failing: OperationError | None,
        query: Mapping[str, str],
    ) -> Reply:
        try:
            document = perform(failing)
        except Refused as refusal:
            return error_reply(refusal.status, refusal.reason, refusal.message)
        try:
            return json_reply(masked(document, query.get("fields", "")))
        except (IndexError, AttributeError):
            return error_reply(400, "invalidParameter", "Invalid field selection")

    def _facts(self, path: str, body: Mapping[str, Any]) -> dict[str, str]:
        """What a fault rule can match of a call."""
        facts = {key: str(value) for key, value in body.items() if isinstance(value, str | int)}
        zone = re.search(r"/zones/([a-z0-9-]+)", path)
        if zone is not None:
            facts["zone"] = zone[1]
        if "machineType" in body:
            facts["machine_type"] = str(body["machineType"]).rsplit("/", 1)[-1]
        spot = (body.get("scheduling") or {}).get("provisioningModel") == "SPOT"
        return {**facts, "market": "spot" if spot else "on_demand"}

    # -- routes -----------------------------------------------------------------------------

    def _route(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any]
    ) -> tuple[str, Callable[[OperationError | None], Any]]:
        if path.startswith("/v1/services/") and path.endswith("/skus"):
            return "skus.list", lambda _: skus(self._state.config, query)
        if path.startswith("/v1/projects/") and path.endswith(":testIamPermissions"):
            return "projects.testIamPermissions", lambda _: self._permissions(body)
        found = _COMPUTE.fullmatch(path)
        if found is None or found[1] != self._state.config.project:
            raise Refused(404, "notFound", f"The requested URL {path} was not found")
        rest = found[2] or ""
        if method == "GET" and rest == "":
            return "projects.get", lambda _: {
                "kind": "compute#project",
                "name": found[1],
                "quotas": [self._quota(ALL_REGIONS)],
            }
        if method == "GET" and rest == f"regions/{self._state.config.region}":
            return "regions.get", lambda _: self._region()
        if method == "GET" and rest.startswith("aggregated/"):
            kind = rest.removeprefix("aggregated/")
            return f"{kind}.aggregatedList", lambda _: self._aggregated(kind, query)
        return self._zonal(method, rest, query, body)

    def _zonal(
        self, method: str, rest: str, query: Mapping[str, str], body: Mapping[str, Any]
    ) -> tuple[str, Callable[[OperationError | None], Any]]:
        found = _ZONAL.fullmatch(rest)
        if found is None:
            raise Refused(404, "notFound", f"The requested URL {rest} was not found")
        zone, collection, name, verb = found.groups()
        if zone not in self._state.config.zones:
            raise Refused(404, "notFound", f"The resource 'zones/{zone}' was not found")
        match (method, collection, name, verb):
            case ("POST", "instances", None, None):
                return "instances.insert", lambda failing: self._once(
                    query,
                    (zone, body),
                    lambda: self._inserts.insert(zone, query, dict(body), failing),
                )
            case ("POST", "instances", "bulkInsert", None):
                return "instances.bulkInsert", lambda failing: self._once(
                    query, (zone, body), lambda: self._inserts.bulk(zone, dict(body), failing)
                )
            case ("GET", "instances", str(), None):
                return "instances.get", lambda _: self._show(zone, name)
            case ("DELETE", "instances", str(), None):
                return "instances.delete", lambda failing: self._once(
                    query, (zone, name), lambda: self._delete(zone, name, failing)
                )
            case ("POST", "instances", str(), "stop"):
                return "instances.stop", lambda failing: self._once(
                    query, (zone, name, verb), lambda: self._stop(zone, name, failing)
                )
            case ("GET", "instances", str(), "serialPort"):
                return "instances.getSerialPortOutput", lambda _: self._console(zone, name)
            case ("DELETE", "disks", str(), None):
                return "disks.delete", lambda failing: self._once(
                    query, (zone, collection, name), lambda: self._disks.delete(zone, name, failing)
                )
            case ("GET" | "POST", "operations", str(), None | "wait"):
                action = "zoneOperations.get" if verb is None else "zoneOperations.wait"
                return action, lambda _: self._operation(zone, name, hold=verb == "wait")
        raise Refused(404, "notFound", f"The requested URL {rest} was not found")

    # -- deeds ------------------------------------------------------------------------------

    def _once(
        self, query: Mapping[str, str], what: Any, perform: Callable[[], GceOperation]
    ) -> dict[str, Any]:
        """Perform a deed once per ``requestId``; a repeat gets the same operation as it is now."""
        request_id = query.get("requestId", "")
        fingerprint = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
        with self._state.lock:
            self._state.catch_up()
            if request_id:
                _check_request_id(request_id)
                earlier = self._state.remembered(request_id, fingerprint)
                if earlier is not None:
                    return self._shown.operation(earlier, self._state.now())
            operation = perform()
            if request_id:
                self._state.remember(request_id, fingerprint, operation)
            return self._shown.operation(operation, self._state.now())

    def _delete(self, zone: str, name: str, failing: OperationError | None) -> GceOperation:
        instance = self._state.named(zone, name)
        if failing is None:
            instance.status = Status.STOPPING if instance.live else instance.status
        return self._state.begin(
            "delete", instance, error=failing, effect=lambda at: self._state.remove(instance, at)
        )

    def _stop(self, zone: str, name: str, failing: OperationError | None) -> GceOperation:
        instance = self._state.named(zone, name)
        return self._state.begin(
            "stop", instance, error=failing, effect=lambda at: self._state.stop(instance, at)
        )

    # -- looks ------------------------------------------------------------------------------

    def _show(self, zone: str, name: str) -> dict[str, Any]:
        with self._state.lock:
            self._state.catch_up()
            return self._shown.instance(self._state.named(zone, name))

    def _console(self, zone: str, name: str) -> dict[str, Any]:
        with self._state.lock:
            self._state.catch_up()
            rows = self._state.named(zone, name).rows
            text = "".join(f"{row}\n" for row in rows)
            return {"kind": "compute#serialPortOutput", "contents": text, "next": str(len(text))}

    def _operation(self, zone: str, name: str, *, hold: bool) -> dict[str, Any]:
        with self._state.lock:
            operation = self._state.operations.get(name)
        if operation is None or operation.zone != zone:
            raise Refused(404, "notFound", f"The resource 'operations/{name}' was not found")
        if hold:
            left_s = operation.done_at - self._state.now()
            time.sleep(min(max(left_s, 0.0), LONGEST_HOLD_S))
        with self._state.lock:
            self._state.catch_up()
            return self._shown.operation(operation, self._state.now())

    def _aggregated(self, kind: str, query: Mapping[str, str]) -> dict[str, Any]:
        with self._state.lock:
            self._state.catch_up()
            rows = self._rows(kind)
            unreachable = sorted(self._state.unreachable)
        fits = matcher(query.get("filter", ""))
        fitting = [(zone, row) for zone, row in rows if fits(row)]
        size = min(int(query.get("maxResults") or PAGE), PAGE)
        skip = int(query.get("pageToken") or 0)
        items: dict[str, Any] = {
            f"zones/{zone}": {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "none"}}
            for zone in self._state.config.zones
        }
        for zone, row in fitting[skip : skip + size]:
            held = items[f"zones/{zone}"]
            held.pop("warning", None)
            held.setdefault(kind, []).append(row)
        for zone in unreachable:
            items[f"zones/{zone}"] = {"warning": {"code": "UNREACHABLE", "message": "no answer"}}
        page: dict[str, Any] = {"kind": f"compute#{kind}AggregatedList", "items": items}
        if len(fitting) > skip + size:
            page["nextPageToken"] = str(skip + size)
        return page

    def _rows(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        state = self._state
        now = state.now()
        match kind:
            case "instances":
                return [
                    (each.zone, self._shown.instance(each))
                    for each in state.instances.values()
                    if each.deleted_at is None
                    and each.visible_at <= now
                    and each.zone not in state.unreachable
                ]
            case "disks":
                return list(self._disks.rows())
            case "operations":
                newest = sorted(state.operations.values(), key=lambda o: (-o.began_at, -o.id))
                return [(each.zone, self._shown.operation(each, now)) for each in newest]
            case "machineTypes":
                return [
                    (zone, machine_type(zone, name))
                    for zone in state.config.zones
                    for name in TYPES
                ]
            case "acceleratorTypes":
                return [
                    (zone, {"name": name, "zone": zone})
                    for zone in state.config.zones
                    for name in ACCELERATORS
                ]
        raise Refused(404, "notFound", f"The requested URL aggregated/{kind} was not found")

    def _region(self) -> dict[str, Any]:
        metrics = sorted({each[2] for each in ACCELERATORS.values()})
        both = [*metrics, *(f"PREEMPTIBLE_{each}" for each in metrics)]
        return {
            "kind": "compute#region",
            "name": self._state.config.region,
            "quotas": [self._quota(each) for each in both],
        }

    def _quota(self, metric: str) -> dict[str, Any]:
        with self._state.lock:
            self._state.catch_up()
            return {
                "metric": metric,
                "limit": float(self._state.quotas.get(metric, UNSCRIPTED_GPUS)),
                "usage": float(self._state.gpus_used[metric]),
            }

    def _permissions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        granted = self._state.config.permissions
        asked = [str(each) for each in body.get("permissions") or ()]
        return {"permissions": [each for each in asked if granted is None or each in granted]}


def _check_request_id(request_id: str) -> None:
    if re.fullmatch(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}", request_id) is None:
        raise Refused(400, "invalid", "Invalid value for field 'requestId': must be a valid UUID")


def error_reply(status: int, reason: str, message: str) -> Reply:
    """An error as Google writes it."""
    domain = "usageLimits" if status == 403 else "global"
    listed = [{"message": message, "domain": domain, "reason": reason}]
    return json_reply({"error": {"code": status, "message": message, "errors": listed}}, status)
