"""What routes are given: the running product, and who asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Path, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from hybrid.bootstrap import App
from hybrid.ports.access import Role
from hybrid.services.access import Principal
from hybrid.services.errors import NotAllowed, NotAuthenticated

_bearer = HTTPBearer(
    auto_error=False, description="A token from `hybrid token create`, or the admin token."
)
_Credentials = Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]


def product(request: Request) -> App:
    """The product that this application is the face of."""
    app: App = request.app.state.product
    return app


Product = Annotated[App, Depends(product)]


def principal(request: Request, app: Product, given: _Credentials) -> Principal:
    """Who asks; NotAuthenticated."""
    if given is None:
        raise NotAuthenticated("no_token", "send a token: Authorization: Bearer …")
    who = app.access.principal(given.credentials)
    request.state.who = who.name
    return who


def least(role: Role) -> Callable[..., Principal]:
    """A dependency that lets those through whose role reaches that far, and says who it is."""

    def check(who: Annotated[Principal, Depends(principal)]) -> Principal:
        if not who.may(role):
            raise NotAllowed("role_too_low", f"this takes the role {role}; yours is {who.role}")
        return who

    check.least_role = role  # type: ignore[attr-defined]
    return check


Anyone = Annotated[Principal, Depends(principal)]
"""Any valid token, a node's too."""
Viewer = Annotated[Principal, Depends(least(Role.VIEWER))]
Submitter = Annotated[Principal, Depends(least(Role.SUBMITTER))]
Operator = Annotated[Principal, Depends(least(Role.OPERATOR))]
Admin = Annotated[Principal, Depends(least(Role.ADMIN))]

IdPath = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", examples=["j7k2m9q4x8a"])
]


def metrics_reader(request: Request, app: Product, given: _Credentials) -> None:
    """Lets a viewer read the metrics, and everybody where the settings say so."""
    if not app.settings.open_metrics:
        least(Role.VIEWER)(principal(request, app, given))
