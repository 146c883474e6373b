"""Compute Engine's metadata service of every machine, below ``/gce-metadata/<instance id>``.

A question with ``wait_for_change`` is answered when the value is another than that of
``last_etag``, or when ``timeout_sec`` is over.
"""

from __future__ import annotations

import time
from typing import Final
from urllib.parse import parse_qsl

from providers.sandbox.gce.state import GceInstance, GceState
from providers.sandbox.wsgi import Environ, StartResponse

PREFIX: Final = "/gce-metadata/"
FLAVOR: Final = "HTTP_METADATA_FLAVOR"
POLL_S: Final = 0.02
LONGEST_WAIT_S: Final = 60.0


class GceMetadataService:
    """Answers ``/gce-metadata/<id>/computeMetadata/v1/instance/...`` for what is there."""

    def __init__(self, state: GceState) -> None:
        self._state = state

    def __call__(self, environ: Environ, start_response: StartResponse) -> list[bytes]:
        """Answer one metadata call, with an ETag."""
        status, value = self._answer(environ)
        body = value.encode()
        headers = [
            ("Content-Type", "application/text"),
            ("Content-Length", str(len(body))),
            ("Metadata-Flavor", "Google"),
        ]
        if status == 200:
            headers.append(("ETag", _etag(value)))
        phrase = {200: "OK", 403: "Forbidden", 404: "Not Found"}[status]
        start_response(f"{status} {phrase}", headers)
        return [body]

    def _answer(self, environ: Environ) -> tuple[int, str]:
        if environ.get(FLAVOR) != "Google":
            return 403, "the header Metadata-Flavor: Google is missing"
        id_, _, path = environ["PATH_INFO"].removeprefix(PREFIX).partition("/computeMetadata/v1/")
        query = dict(parse_qsl(environ.get("QUERY_STRING", "")))
        until = time.monotonic()
        if query.get("wait_for_change") == "true":
            until += min(float(query.get("timeout_sec") or LONGEST_WAIT_S), LONGEST_WAIT_S)
        while True:
            value = self._value(id_, path)
            if value is None:
                return 404, "not found"
            if _etag(value) != query.get("last_etag") or time.monotonic() >= until:
                return 200, value
            time.sleep(POLL_S)

    def _value(self, id_: str, path: str) -> str | None:
        with self._state.lock:
            self._state.catch_up()
            instance = self._state.instances.get(int(id_)) if id_.isdigit() else None
            if instance is None or instance.deleted_at is not None:
                return None
            return _of(instance, path.removeprefix("instance/"), self._state.config.project)


def _of(instance: GceInstance, path: str, project: str) -> str | None:
    items = (instance.body.get("metadata") or {}).get("items") or ()
    attributes = {f"attributes/{each['key']}": str(each.get("value", "")) for each in items}
    told = {
        "id": str(instance.id),
        "name": instance.name,
        "zone": f"projects/{project}/zones/{instance.zone}",
        "machine-type": f"projects/{project}/machineTypes/{instance.type.name}",
        "preempted": "FALSE" if instance.preempted_at is None else "TRUE",
        "maintenance-event": "NONE",
        **attributes,
    }
    return told.get(path)


def _etag(value: str) -> str:
    return f"{hash(value) & 0xFFFFFFFFFFFFFFFF:016x}"
