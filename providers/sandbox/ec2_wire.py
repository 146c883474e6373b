"""EC2's query protocol on the wire: requests as flat parameters, answers as XML."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from urllib.parse import parse_qsl, urlencode
from xml.sax.saxutils import escape

from providers.sandbox.moto_ec2 import STATE_CODES
from providers.sandbox.rules import http_status
from providers.sandbox.wsgi import Environ, Reply

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
_REQUEST_ID = "sandbox-request"
_SCOPE = re.compile(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/aws4_request")
_LAUNCH_TIME_XML = re.compile(rb"<launchTime>[^<]*</launchTime>")
_STATE_XML = re.compile(r"<instanceState>.*?</instanceState>", re.DOTALL)
_RESERVATION_XML = re.compile(r"<reservationId>([^<]+)</reservationId>")


@dataclass(frozen=True, slots=True)
class AwsRequest:
    """What a call asks of which service. ``parameters`` is empty for non-query protocols."""

    service: str
    region: str
    action: str
    parameters: Mapping[str, str]


def signed_scope(environ: Environ) -> tuple[str, str]:
    """Region and service from the signature's scope, both empty when the call is unsigned."""
    found = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    return (found[1], found[2].lower()) if found else ("", "")


def is_query(environ: Environ) -> bool:
    """Whether the body is a query-protocol form."""
    return bool(environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"))


def read_form(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def rewrite(environ: Environ, parameters: Mapping[str, str]) -> Environ:
    """The same call with other parameters."""
    return with_body(environ, urlencode(parameters).encode())


def with_body(environ: Environ, body: bytes) -> Environ:
    """The same call with this body, however much of it was read before."""
    return {**environ, "CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}


def error_reply(service: str, code: str, message: str, status: int | None = None) -> Reply:
    """An error as the service would spell it."""
    status = http_status(code) if status is None else status
    code, message = escape(code), escape(message)
    if service == "s3":
        body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    elif service == "ec2":
        body = (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error>"
            f"</Errors><RequestID>{_REQUEST_ID}</RequestID></Response>"
        )
    else:
        body = (
            f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code>"
            f"<Message>{message}</Message></Error><RequestId>{_REQUEST_ID}</RequestId>"
            f"</ErrorResponse>"
        )
    return Reply(status, "text/xml", f'<?xml version="1.0" encoding="UTF-8"?>{body}'.encode())


def answer(action: str, inner: str) -> Reply:
    """A successful EC2 answer round its inner XML."""
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?><{action}Response xmlns="{NAMESPACE}">'
        f"<requestId>{_REQUEST_ID}</requestId>{inner}</{action}Response>"
    )
    return Reply(200, "text/xml", body.encode())


def state_changes(action: str, changes: Iterable[tuple[str, str, str]]) -> Reply:
    """Terminate-, Stop- and StartInstances: (instance id, state before, state now)."""
    items = "".join(
        f"<item><instanceId>{instance_id}</instanceId>"
        f"<currentState>{_state(now)}</currentState>"
        f"<previousState>{_state(before)}</previousState></item>"
        for instance_id, before, now in changes
    )
    return answer(action, f"<instancesSet>{items}</instancesSet>")


def spot_history(
    points: Iterable[tuple[str, str, float, Decimal]], product: str, next_token: str
) -> Reply:
    """DescribeSpotPriceHistory: (type, zone, instant, USD per hour)."""
    items = "".join(
        f"<item><instanceType>{machine_type}</instanceType>"
        f"<productDescription>{escape(product)}</productDescription>"
        f"<spotPrice>{price:.6f}</spotPrice><timestamp>{timestamp(at)}</timestamp>"
        f"<availabilityZone>{zone}</availabilityZone></item>"
        for machine_type, zone, at, price in points
    )
    return answer(
        "DescribeSpotPriceHistory",
        f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{next_token}</nextToken>",
    )


def reservation_of(run_instances_xml: bytes) -> str:
    """The reservation id in moto's RunInstances answer."""
    found = _RESERVATION_XML.search(run_instances_xml.decode())
    if found is None:
        raise ValueError("moto answered RunInstances without a reservation id")
    return found[1]


def with_states(run_instances_xml: bytes, states: Iterable[str]) -> bytes:
    """A stored RunInstances answer showing the states that its instances have now."""
    left = iter(states)
    text = _STATE_XML.sub(
        lambda _: f"<instanceState>{_state(next(left))}</instanceState>",
        run_instances_xml.decode(),
    )
    return text.encode()


def with_launch_time(run_instances_xml: bytes, at: float) -> bytes:
    """A RunInstances answer with the cloud's own instant in place of moto's."""
    written = f"<launchTime>{timestamp(at)}</launchTime>".encode()
    return _LAUNCH_TIME_XML.sub(lambda _: written, run_instances_xml)


def timestamp(at: float) -> str:
    """An instant as AWS writes it, to the millisecond, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def read_timestamp(text: str) -> float:
    """An instant as a client writes it. Raises ``ValueError``."""
    instant = datetime.fromisoformat(text)
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()


def numbered(parameters: Mapping[str, str], name: str) -> list[str]:
    """The values of a numbered list parameter (``InstanceId.1``, ``InstanceId.2``, …)."""
    found = {
        int(key[len(name) + 1 :]): value
        for key, value in parameters.items()
        if key.startswith(f"{name}.") and key[len(name) + 1 :].isdigit()
    }
    return [found[index] for index in sorted(found)]


def filters_of(parameters: Mapping[str, str]) -> dict[str, list[str]]:
    """The request's filters: name → accepted values."""
    found: dict[str, list[str]] = {}
    index = 1
    while (name := parameters.get(f"Filter.{index}.Name")) is not None:
        found[name] = numbered(parameters, f"Filter.{index}.Value")
        index += 1
    return found


def _state(name: str) -> str:
    return f"<code>{STATE_CODES[name]}</code><name>{name}</name>"
