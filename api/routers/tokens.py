"""Tokens of people, programs and machines to come."""

from __future__ import annotations

from fastapi import APIRouter, status

from api.deps import Admin, IdPath, Operator, Product, Viewer
from api.problems import documented
from api.schemas.tokens import NewToken, ShownToken, TokenList, TokenRequest, WhoAmI
from hybrid.domain.ids import PoolName
from hybrid.domain.pool_spec import LocalPool
from hybrid.ports.access import Role
from hybrid.services.errors import Fault, NotAllowed, Refused

router = APIRouter(tags=["tokens"])

JOIN_VALID_S = 86_400.0


@router.post("/tokens", status_code=status.HTTP_201_CREATED, responses=documented(409, 413, 415))
def create_token(body: TokenRequest, app: Product, who: Operator) -> NewToken:
    """Make a token; its secret is in the answer and nowhere else. Operators make join tokens
    (role node), admins all."""
    if body.role is not Role.NODE:
        if not who.may(Role.ADMIN):
            raise NotAllowed("role_too_low", f"a token of role {body.role} takes an admin to make")
        assert body.user is not None
        token, secret = app.access.create(
            user=body.user,
            role=body.role,
            teams=body.teams,
            valid_s=body.valid_for,
            note=body.note,
            by=who.name,
        )
        return NewToken(token=ShownToken.of(token), secret=secret)
    assert body.pool is not None
    pool = app.pools.get(PoolName(body.pool)).pool
    if not isinstance(pool.spec, LocalPool):
        said = f"machines of burst pool {pool.name} join by their claims"
        raise Refused("not_a_local_pool", said, errors=[Fault("pool", said)])
    join, secret = app.access.create_join(
        pool=pool.name, valid_s=body.valid_for or JOIN_VALID_S, note=body.note, by=who.name
    )
    return NewToken(token=ShownToken.of_join(join), secret=secret)


@router.get("/tokens")
def list_tokens(app: Product, who: Admin) -> TokenList:  # noqa: ARG001
    """All tokens, revoked and expired ones too, without their secrets."""
    people, joins = app.access.listing()
    return TokenList(
        tokens=(*map(ShownToken.of, people), *map(ShownToken.of_join, joins)),
    )


@router.delete(
    "/tokens/{token_id}", status_code=status.HTTP_204_NO_CONTENT, responses=documented(404)
)
def revoke_token(token_id: IdPath, app: Product, who: Admin) -> None:
    """End a token now. Twice is as once."""
    app.access.revoke(token_id, by=who.name)


@router.get("/whoami")
def who_am_i(who: Viewer) -> WhoAmI:
    """Whose token this is."""
    return WhoAmI(name=who.name, role=who.role, teams=who.teams)
