"""Listens to the cloud's metadata service for the word that it takes this machine."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import httpx
import structlog

from hybrid.agent.config import Cloud

_log = structlog.get_logger(__name__)

POLL_S = 0.5
_TIMEOUT_S = 2.0
_TOKEN_TTL_S = 21_600
_GCE_WAIT_S = 60
GCE_NOTICE_S = 30.0
"""Between the word and the end of a preempted machine (Google's documentation: 30 seconds)."""


class MetadataSource(Protocol):
    """One cloud's metadata service."""

    def machine_id(self) -> str | None:
        """The cloud's own name of this machine; raises httpx.HTTPError."""
        ...

    def notice(self) -> float | None:
        """When the machine will be taken, None if nothing is known; may wait for a while. Raises
        httpx.HTTPError or ValueError."""
        ...

    @property
    def rebalance_at(self) -> float | None:
        """Since when the cloud recommends to leave this machine, as far as ``notice`` has heard."""
        ...

    @property
    def pause_s(self) -> float:
        """How long to leave it alone between two questions."""
        ...

    def close(self) -> None:
        """Drop the connections."""
        ...


class AwsMetadata:
    """EC2's, version 2 (token first). A rebalance recommendation is passed on and drains nothing:
    draining on it alone causes endless churn."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=_TIMEOUT_S, trust_env=False)
        self._token = ""
        self._rebalance_at: float | None = None

    def close(self) -> None:
        """Drop the connections."""
        self._http.close()

    @property
    def rebalance_at(self) -> float | None:
        """From ``events/recommendations/rebalance``."""
        return self._rebalance_at

    @property
    def pause_s(self) -> float:
        """EC2 asks for a poll every five seconds at least; the sooner, the more time to act."""
        return POLL_S

    def machine_id(self) -> str | None:
        """``i-…``."""
        return self._get("/latest/meta-data/instance-id")

    def notice(self) -> float | None:
        """From ``spot/instance-action``: stop, hibernate and terminate all take the machine."""
        hint = self._get("/latest/meta-data/events/recommendations/rebalance")
        if hint is not None and self._rebalance_at is None:
            self._rebalance_at = _hinted_at(hint)
            _log.info("the cloud recommends to rebalance this machine", said=hint[:200])
        text = self._get("/latest/meta-data/spot/instance-action")
        if text is None:
            return None
        return _instant(httpx.Response(200, text=text).json())

    def _get(self, path: str) -> str | None:
        for _ in range(2):
            if not self._token:
                answer = self._http.put(
                    "/latest/api/token",
                    headers={"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)},
                )
                answer.raise_for_status()
                self._token = answer.text
            answer = self._http.get(path, headers={"X-aws-ec2-metadata-token": self._token})
            if answer.status_code == 401:
                self._token = ""
                continue
            if answer.status_code == 404:
                return None
            answer.raise_for_status()
            return answer.text
        return None


def _instant(document: object, key: str = "time") -> float:
    if not isinstance(document, dict) or not isinstance(document.get(key), str):
        raise ValueError(f"an instance action without a {key}")
    at = datetime.fromisoformat(document[key])
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _hinted_at(hint: str) -> float:
    """The instant of a recommendation; now, where what it says cannot be read: it must not keep a
    notice of interruption from being asked for."""
    try:
        return _instant(json.loads(hint), "noticeTime")
    except ValueError:
        return time.time()


class GceMetadata:
    """Compute Engine's: a hanging request that answers when the machine is preempted."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(
            base_url=url,
            timeout=httpx.Timeout(_GCE_WAIT_S + 10.0, connect=_TIMEOUT_S),
            headers={"Metadata-Flavor": "Google"},
            trust_env=False,
        )
        self._etag = ""

    def close(self) -> None:
        """Drop the connections."""
        self._http.close()

    @property
    def rebalance_at(self) -> float | None:
        """Compute Engine gives no such hint."""
        return None

    @property
    def pause_s(self) -> float:
        """None to speak of: the request itself waits."""
        return 0.1

    def machine_id(self) -> str | None:
        """The numeric id."""
        answer = self._http.get("/computeMetadata/v1/instance/id", timeout=_TIMEOUT_S)
        answer.raise_for_status()
        return answer.text.strip() or None

    def notice(self) -> float | None:
        """Waits up to a minute for a change since the last answer."""
        parameters: dict[str, str | int] = {}
        if self._etag:
            parameters = {
                "wait_for_change": "true",
                "last_etag": self._etag,
                "timeout_sec": _GCE_WAIT_S,
            }
        answer = self._http.get("/computeMetadata/v1/instance/preempted", params=parameters)
        answer.raise_for_status()
        self._etag = answer.headers.get("ETag", "")
        return time.time() + GCE_NOTICE_S if answer.text.strip().upper() == "TRUE" else None


def metadata_source(cloud: Cloud, url: str) -> MetadataSource | None:
    """The source of a cloud; None where there is none."""
    match cloud:
        case Cloud.AWS:
            return AwsMetadata(url)
        case Cloud.GCP:
            return GceMetadata(url)
        case Cloud.NONE:
            return None


class MetadataWatcher(threading.Thread):
    """Asks again and again; tells ``on_notice`` once per instant it is told, and ``on_rebalance``
    once."""

    def __init__(
        self,
        source: MetadataSource,
        *,
        on_notice: Callable[[float], None],
        on_machine_id: Callable[[str], None],
        stopping: threading.Event,
        on_rebalance: Callable[[float], None] = lambda _at: None,
    ) -> None:
        super().__init__(name="metadata", daemon=True)
        self._source = source
        self._on_notice, self._on_rebalance = on_notice, on_rebalance
        self._on_machine_id = on_machine_id
        self._stopping = stopping
        self._told: float | None = None
        self._hinted = False
        self._knows_machine = False
        self._silent = False

    def run(self) -> None:
        """Until the agent stops."""
        while not self._stopping.is_set():
            try:
                self._ask()
                self._silent = False
                pause_s = self._source.pause_s
            except (httpx.HTTPError, ValueError) as error:
                if not self._silent:
                    _log.warning("the metadata service is silent", error=type(error).__name__)
                self._silent = True
                pause_s = POLL_S
            # Spread, so that the machines of a fleet do not ask in step.
            self._stopping.wait(pause_s * random.uniform(0.8, 1.2))  # noqa: S311
        self._source.close()

    def _ask(self) -> None:
        if not self._knows_machine and (machine_id := self._source.machine_id()):
            self._knows_machine = True
            self._on_machine_id(machine_id)
        at = self._source.notice()
        hint = self._source.rebalance_at
        if hint is not None and not self._hinted:
            self._hinted = True
            self._on_rebalance(hint)
        # An earlier instant is news; Compute Engine's comes from our own clock and would creep.
        if at is not None and (self._told is None or at < self._told - 1.0):
            self._told = at
            _log.warning("the cloud takes this machine", in_s=round(at - time.time(), 1))
            self._on_notice(at)
