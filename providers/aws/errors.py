"""EC2's error codes → typed errors. Exact codes only; whatever is not here is an unknown outcome.

Codes and their meaning: "Error codes for the Amazon EC2 API" (API reference). Scopes are those of
breakers: ``zone:``, ``offer:``, ``quota:``, ``provider:``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
    TokenRetrievalError,
)

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

    CAPACITY_OFFER = "capacity of the offer"
    CAPACITY_ZONE = "capacity of the zone"
    QUOTA = "quota"
    RATE = "rate"
    AUTH = "auth"
    INVALID = "invalid"
    GONE = "gone"
    IN_USE = "in use"


CODES: Final = MappingProxyType(
    {
        "InsufficientInstanceCapacity": Kind.CAPACITY_OFFER,
        "InsufficientHostCapacity": Kind.CAPACITY_OFFER,
        "InsufficientReservedInstanceCapacity": Kind.CAPACITY_OFFER,
        "ReservationCapacityExceeded": Kind.CAPACITY_OFFER,
        "UnfulfillableCapacity": Kind.CAPACITY_OFFER,
        "Unsupported": Kind.CAPACITY_OFFER,
        "SpotMaxPriceTooLow": Kind.CAPACITY_OFFER,
        "PlacementGroupLimitExceeded": Kind.CAPACITY_OFFER,
        "InsufficientFreeAddressesInSubnet": Kind.CAPACITY_ZONE,
        "MaxFleetCountExceeded": Kind.QUOTA,
        "VcpuLimitExceeded": Kind.QUOTA,
        "MaxSpotInstanceCountExceeded": Kind.QUOTA,
        "InstanceLimitExceeded": Kind.QUOTA,
        "RequestLimitExceeded": Kind.RATE,
        "Throttling": Kind.RATE,
        "ThrottlingException": Kind.RATE,
        "RequestThrottled": Kind.RATE,
        "SlowDown": Kind.RATE,
        "AuthFailure": Kind.AUTH,
        "UnauthorizedOperation": Kind.AUTH,
        "InvalidClientTokenId": Kind.AUTH,
        "SignatureDoesNotMatch": Kind.AUTH,
        "ExpiredToken": Kind.AUTH,
        "ExpiredTokenException": Kind.AUTH,
        "RequestExpired": Kind.AUTH,
        "OptInRequired": Kind.AUTH,
        "PendingVerification": Kind.AUTH,
        "Blocked": Kind.AUTH,
        "AccessDeniedException": Kind.AUTH,
        "InvalidAMIID.NotFound": Kind.INVALID,
        "InvalidAMIID.Malformed": Kind.INVALID,
        "InvalidAMIID.Unavailable": Kind.INVALID,
        "InvalidBlockDeviceMapping": Kind.INVALID,
        "InvalidGroup.NotFound": Kind.INVALID,
        "InvalidSecurityGroupID.NotFound": Kind.INVALID,
        "InvalidSubnetID.NotFound": Kind.INVALID,
        "InvalidSubnet": Kind.INVALID,
        "InvalidParameter": Kind.INVALID,
        "InvalidParameterValue": Kind.INVALID,
        "InvalidParameterCombination": Kind.INVALID,
        "InvalidInstanceType": Kind.INVALID,
        "InvalidLaunchTemplateId.NotFound": Kind.INVALID,
        "InvalidLaunchTemplateId.Malformed": Kind.INVALID,
        "InvalidLaunchTemplateId.VersionNotFound": Kind.INVALID,
        "InvalidUserData.Malformed": Kind.INVALID,
        "MissingParameter": Kind.INVALID,
        "UnknownParameter": Kind.INVALID,
        "IdempotentParameterMismatch": Kind.INVALID,
        "InvalidInstanceID.NotFound": Kind.GONE,
        "InvalidInstanceID.Malformed": Kind.GONE,
        "InvalidVolume.NotFound": Kind.GONE,
        "InvalidPlacementGroup.Unknown": Kind.GONE,
        "InvalidPlacementGroup.InUse": Kind.IN_USE,
        "VolumeInUse": Kind.IN_USE,
        "IncorrectState": Kind.IN_USE,
    }
)


GROUP_EXISTS: Final = "InvalidPlacementGroup.Duplicate"
"""Whoever makes a group that is there already has what it wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scopes:
    """Where a refusal would belong: what the call was for. Empty outside a launch."""

    provider: str
    region: str
    zone: str = ""
    offer: str = ""
    family: str = ""
    market: str = ""

    def of(self, kind: Kind) -> str:
        """The breaker scope of a refusal of that kind."""
        match kind:
            case Kind.CAPACITY_OFFER if self.offer:
                return f"offer:{self.offer}"
            case Kind.CAPACITY_ZONE if self.zone:
                return f"zone:{self.provider}/{self.zone}"
            case Kind.QUOTA if self.family:
                return f"quota:{self.provider}/{self.region}/{self.family}/{self.market}"
            case Kind.INVALID if self.offer:
                return f"offer:{self.offer}"
            case _:
                return f"provider:{self.provider}"


def typed(code: str, message: str, scopes: Scopes) -> PortError:
    """The typed error of an EC2 code."""
    kind = CODES.get(code)
    if kind is None:
        return OutcomeUnknown(f"{code}: {message}")
    words = f"{code}: {message}"
    scope = scopes.of(kind)
    match kind:
        case Kind.CAPACITY_OFFER | Kind.CAPACITY_ZONE:
            return CapacityUnavailable(scope, words, code=code)
        case Kind.QUOTA:
            return QuotaExceeded(scope, words, code=code)
        case Kind.RATE:
            return RateLimited(scope, words, code=code)
        case Kind.AUTH:
            return AuthFailed(scope, words, code=code)
        case Kind.INVALID:
            return InvalidRequest(scope, words, code=code)
        case Kind.GONE:
            return Gone(words)
        case Kind.IN_USE:
            return InUse(words)


@contextmanager
def translated(scopes: Scopes) -> Iterator[None]:
    """Raises a typed error in place of whatever botocore raises inside.

    A request that never got its answer (a reset, a timeout, a broken body) is an unknown outcome;
    credentials that are not there were never sent.
    """
    try:
        yield
    except ClientError as error:
        said = error.response.get("Error", {})
        raise typed(said.get("Code", ""), said.get("Message", ""), scopes) from error
    except (NoCredentialsError, PartialCredentialsError, TokenRetrievalError) as error:
        raise AuthFailed(scopes.of(Kind.AUTH), str(error)) from error
    except BotoCoreError as error:
        raise OutcomeUnknown(f"{type(error).__name__}: {error}") from error
