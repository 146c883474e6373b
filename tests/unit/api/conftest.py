"""The application over a product whose loop does not run: what a test writes stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI

from api.app import create_app
from hybrid.bootstrap import App, build
from hybrid.config import Settings
from hybrid.ports.access import Role
from hybrid.ports.store import Bundle, Put
from hybrid.services.log_lines import log_to_stderr
from tests.doubles.asgi_client import AsgiClient

ClientOf = Callable[..., AsgiClient]


@pytest.fixture(scope="session", autouse=True)
def _logs_as_in_life() -> None:
    log_to_stderr()


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """A product on an empty state directory, one for the tests of a file: they use names of their
    own."""
    state_dir = tmp_path_factory.mktemp("state")
    app = build(Settings(state_dir=state_dir), url="http://127.0.0.1:8440")
    yield app
    app.stop()


@pytest.fixture(scope="module")
def asgi(product: App) -> FastAPI:
    return create_app(product)


@pytest.fixture
def client_of(product: App, asgi: FastAPI) -> ClientOf:
    """Makes clients with a token of a role and teams; role None: without a token."""

    def make(role: Role | None = Role.ADMIN, *teams: str, user: str = "ann") -> AsgiClient:
        client = AsgiClient(asgi)
        if role is not None:
            if role is Role.SUBMITTER and not teams:
                teams = ("red",)
            _, secret = product.access.create(user=user, role=role, teams=teams, by="test")
            client.headers["Authorization"] = f"Bearer {secret}"
        return client

    return make


@pytest.fixture
def admin(client_of: ClientOf) -> AsgiClient:
    return client_of(Role.ADMIN, user="root")


@pytest.fixture
def put(product: App) -> Callable[..., None]:
    """Write new rows, whatever version the builders gave them."""

    def write(*entities: Any) -> None:
        changes = tuple(Put(replace(each, version=0)) for each in entities)
        done = product.store.commit([Bundle(id="given", changes=changes)], at=0.0)
        assert done.dropped == ()

    return write
