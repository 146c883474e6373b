"""Versions as ETags."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Header, Response

from hybrid.services.errors import Fault, Refused

_ETAG = re.compile(r'"?(\d{1,18})"?')

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=64,
        description="The ETag that was read; * for whatever is there.",
        examples=['"3"'],
    ),
]


def expected(if_match: str | None) -> int | None:
    """The version that If-Match wants; None for any."""
    if if_match is None or if_match.strip() == "*":
        return None
    match = _ETAG.fullmatch(if_match.strip())
    if match is None:
        said = "an ETag here is a version in quotes"
        raise Refused("bad_etag", said, errors=[Fault("header.If-Match", said, 'for example "3"')])
    return int(match[1])


def tag(response: Response, version: int) -> None:
    """Give an answer its ETag."""
    response.headers["ETag"] = f'"{version}"'
