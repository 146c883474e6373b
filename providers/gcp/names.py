"""Names and labels as Compute Engine allows them, and how a pool writes a machine type.

An instance is named after its claim, so that a second insert of the same claim can never make a
second machine, and so that an operation (which bears no labels) still tells whose machine it ended.
Names: RFC 1035, 1 to 63 characters; labels: lower case letters, digits, ``_`` and ``-``.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass
from typing import Final

from hybrid.domain.ids import ClaimId

LABEL_INSTALLATION: Final = "hybrid-installation"
LABEL_CLAIM: Final = "hybrid-claim"
LABEL_TOKEN: Final = "hybrid-token"
LABEL_TOKEN_REST: Final = "hybrid-token-rest"
LABEL_POOL: Final = "hybrid-pool"
LABEL_TEAM: Final = "hybrid-team"

LABEL_LENGTH: Final = 63
_NAME_LENGTH: Final = 63
_PLAIN_CLAIM: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_EXACT: Final = re.compile(r"[a-z0-9_-]*")
_REQUEST_IDS: Final = uuid.UUID("9f1c1e0a-6d0b-5a43-9d7e-8f5a5b0c2f11")


@dataclass(frozen=True, slots=True)
class WrittenType:
    """A machine type as a pool writes it: ``g2-standard-8``, or with GPUs attached to it,
    ``n1-standard-8+2xnvidia-tesla-t4``. ``accelerator`` is empty where the type has its own."""

    base: str
    accelerator: str = ""
    count: int = 0


_WRITTEN: Final = re.compile(r"(?P<base>[a-z0-9-]+)\+(?:(?P<count>\d{1,2})x)?(?P<gpu>[a-z0-9-]+)")


def read_type(written: str) -> WrittenType:
    """The machine type that a pool means. What cannot be read is taken for a plain name."""
    found = _WRITTEN.fullmatch(written)
    if found is None:
        return WrittenType(written)
    return WrittenType(found["base"], found["gpu"], int(found["count"] or 1))


def name_prefix(installation: str) -> str:
    """What the names of an installation's instances begin with."""
    return f"hybrid-{_digest(installation, 8)}-"


def instance_name(installation: str, claim: ClaimId) -> str:
    """The name of a claim's instance. A claim whose id does not fit goes by a digest of it."""
    name = f"{name_prefix(installation)}{claim}"
    if len(name) <= _NAME_LENGTH and _PLAIN_CLAIM.fullmatch(claim):
        return name
    return f"{name_prefix(installation)}-{_digest(claim, 24)}"


def claim_of(installation: str, name: str) -> ClaimId | None:
    """The claim that an instance is named after; None when its name does not tell."""
    prefix = name_prefix(installation)
    rest = name.removeprefix(prefix)
    if rest == name or _PLAIN_CLAIM.fullmatch(rest) is None:
        return None
    return ClaimId(rest)


def request_id(token: str) -> str:
    """The ``requestId`` of a claim's token: the API takes a UUID."""
    return str(uuid.uuid5(_REQUEST_IDS, token))


def exact_label(what: str, value: str) -> str:
    """A label that has to read back as it was written. Raises ValueError when it cannot."""
    if len(value) > LABEL_LENGTH or _EXACT.fullmatch(value) is None:
        raise ValueError(
            f"{what} {value!r} cannot be a label: Compute Engine takes up to {LABEL_LENGTH} lower"
            " case letters, digits, _ and -"
        )
    return value


def loose_label(value: str) -> str:
    """A label for people: what Compute Engine does not take becomes ``-``."""
    return re.sub(r"[^a-z0-9_-]", "-", value.lower())[:LABEL_LENGTH]


def token_labels(token: str) -> dict[str, str]:
    """A token as labels; 64 hex digits are one more than a label holds."""
    labels = {LABEL_TOKEN: exact_label("token", token[:LABEL_LENGTH])}
    if len(token) > LABEL_LENGTH:
        labels[LABEL_TOKEN_REST] = exact_label("token", token[LABEL_LENGTH:])
    return labels


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
