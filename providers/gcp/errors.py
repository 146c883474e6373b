"""Compute Engine's error codes → typed errors. Exact codes only; whatever is not here is an unknown
outcome.

One table for both ways in which Compute Engine says no: the ``reason`` of an HTTP error, and the
``code`` of a failed operation ("Troubleshooting VM creation" and "Resource errors", Compute Engine
documentation). Scopes are those of breakers: ``zone:``, ``offer:``, ``quota:``, ``provider:``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from hybrid.ports.errors import (
    AuthFailed,
    CapacityUnavailable,
    Gone,
    InUse,
    InvalidRequest,
    OutcomeUnknown,
    PortError,
    QuotaExceeded,
    RateLimited,
)


class Kind(StrEnum):
    """What a code means to us, and for which scope."""

    CAPACITY_ZONE = "capacity of the zone"
    CAPACITY_OFFER = "capacity of the offer"
    QUOTA = "quota"
    RATE = "rate"
    AUTH = "auth"
    INVALID = "invalid"
    MISSING = "gone; invalid in a launch"
    IN_USE = "in use"


CODES: Final = MappingProxyType(
    {
        "ZONE_RESOURCE_POOL_EXHAUSTED": Kind.CAPACITY_ZONE,
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": Kind.CAPACITY_ZONE,
        "IP_SPACE_EXHAUSTED": Kind.CAPACITY_ZONE,
        "IP_SPACE_EXHAUSTED_WITH_DETAILS": Kind.CAPACITY_ZONE,
        "VM_MIN_COUNT_NOT_REACHED": Kind.CAPACITY_OFFER,
        "UNSUPPORTED_OPERATION": Kind.CAPACITY_OFFER,
        "QUOTA_EXCEEDED": Kind.QUOTA,
        "quotaExceeded": Kind.QUOTA,
        "rateLimitExceeded": Kind.RATE,
        "userRateLimitExceeded": Kind.RATE,
        "RATE_LIMIT_EXCEEDED": Kind.RATE,
        "RESOURCE_OPERATION_RATE_EXCEEDED": Kind.RATE,
        "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED": Kind.RATE,
        "UNAUTHENTICATED": Kind.AUTH,
        "authError": Kind.AUTH,
        "forbidden": Kind.AUTH,
        "insufficientPermissions": Kind.AUTH,
        "accessNotConfigured": Kind.AUTH,
        "SERVICE_DISABLED": Kind.AUTH,
        "PERMISSIONS_ERROR": Kind.AUTH,
        "invalid": Kind.INVALID,
        "badRequest": Kind.INVALID,
        "parseError": Kind.INVALID,
        "required": Kind.INVALID,
        "conditionNotMet": Kind.INVALID,
        "alreadyExists": Kind.INVALID,
        "CONDITION_NOT_MET": Kind.INVALID,
        "INVALID_FIELD_VALUE": Kind.INVALID,
        "INVALID_USAGE": Kind.INVALID,
        "RESOURCE_ALREADY_EXISTS": Kind.INVALID,
        "notFound": Kind.MISSING,
        "RESOURCE_NOT_FOUND": Kind.MISSING,
        "resourceInUseByAnotherResource": Kind.IN_USE,
        "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE": Kind.IN_USE,
    }
)

EXISTS: Final = frozenset({"alreadyExists", "RESOURCE_ALREADY_EXISTS"})
"""In a launch these mean that an instance of the claim's name is there: it may be the claim's."""

RETRY_AFTER_S: Final = 5.0
"""Where Compute Engine does not say when to come again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scopes:
    """Where a refusal would belong: what the call was for. Empty outside a launch."""

    provider: str
    region: str
    zone: str = ""
    offer: str = ""
    family: str = ""
    market: str = ""

    def of(self, kind: Kind, metric: str = "") -> str:
        """The breaker scope of a refusal. ``metric`` is the quota that was named, if any."""
        match kind:
            case Kind.CAPACITY_ZONE if self.zone:
                return f"zone:{self.provider}/{self.zone}"
            case Kind.CAPACITY_OFFER | Kind.INVALID | Kind.MISSING if self.offer:
                return f"offer:{self.offer}"
            case Kind.QUOTA if self.family:
                return f"quota:{self.provider}/{self.region}/{self._quota(metric)}"
            case _:
                return f"provider:{self.provider}"

    def _quota(self, metric: str) -> str:
        """``FAMILY/MARKET``; a quota that all machines share closes all of them."""
        if metric.removeprefix("PREEMPTIBLE_") in ("", self.family):
            return f"{self.family}/{self.market}"
        return "*/*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One error as Compute Engine states it. ``metric`` is the quota's name, upper case."""

    code: str
    message: str
    metric: str = ""
    retry_after_s: float | None = None


def of_http(status: int, body: Any, retry_after_s: float | None = None) -> Said:
    """What an HTTP error says. A 401 has no reason of its own that could be relied on."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        code = "UNAUTHENTICATED" if status == 401 else f"HTTP {status}"
        return Said(code=code, message="", retry_after_s=retry_after_s)
    listed = [each for each in error.get("errors") or () if isinstance(each, Mapping)]
    details = [each for each in error.get("details") or () if isinstance(each, Mapping)]
    reasons = [str(each["reason"]) for each in (*listed, *details) if each.get("reason")]
    code = next((each for each in reasons if each in CODES), reasons[0] if reasons else "")
    if status == 401:
        code = "UNAUTHENTICATED"
    return Said(
        code=code or f"HTTP {status}",
        message=str(error.get("message", "")),
        metric=_metric(details),
        retry_after_s=retry_after_s,
    )


def of_operation(operation: Mapping[str, Any]) -> Said | None:
    """The first error that a finished operation carries; None when it succeeded."""
    errors = (operation.get("error") or {}).get("errors") or ()
    for each in errors:
        details = [d for d in each.get("errorDetails") or () if isinstance(d, Mapping)]
        quotas = [d["quotaInfo"] for d in details if isinstance(d.get("quotaInfo"), Mapping)]
        return Said(
            code=str(each.get("code", "")),
            message=str(each.get("message", "")),
            metric=_metric(quotas),
        )
    return None


def _metric(details: list[Mapping[str, Any]]) -> str:
    """``compute.googleapis.com/nvidia_l4_gpus`` → ``NVIDIA_L4_GPUS``."""
    for each in details:
        name = each.get("metricName") or (each.get("metadata") or {}).get("metricName")
        if name:
            return str(name).rsplit("/", 1)[-1].upper()
    return ""


def typed(said: Said, scopes: Scopes) -> PortError:
    """The typed error of what Compute Engine says."""
    words = f"{said.code}: {said.message}" if said.message else said.code
    kind = CODES.get(said.code)
    if kind is None:
        return OutcomeUnknown(words)
    scope = scopes.of(kind, said.metric)
    match kind:
        case Kind.CAPACITY_ZONE | Kind.CAPACITY_OFFER:
            return CapacityUnavailable(scope, words, code=said.code)
        case Kind.QUOTA:
            return QuotaExceeded(scope, words, code=said.code)
        case Kind.RATE:
            wait_s = RETRY_AFTER_S if said.retry_after_s is None else said.retry_after_s
            return RateLimited(scope, words, retry_after_s=wait_s, code=said.code)
        case Kind.AUTH:
            return AuthFailed(scope, words, code=said.code)
        case Kind.MISSING if not scopes.offer:
            return Gone(words)
        case Kind.IN_USE:
            return InUse(words)
        case _:
            return InvalidRequest(scope, words, code=said.code)
