"""Tokens: never their secrets, but once."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from api.schemas.shown import Shown, instant, instant_or_none
from hybrid.domain.job_spec import Name, Written
from hybrid.domain.quantities import Seconds
from hybrid.ports.access import JoinToken, Role, Token

User = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._@+-]+$", max_length=255)]


class TokenRequest(Written):
    """A token for a person or a program, or (role node) for one machine to join a local pool."""

    role: Role
    user: User | None = Field(default=None, description="Whose; not for role node.")
    teams: tuple[Name, ...] = Field(
        default=(),
        max_length=64,
        description="Required for submitters, optional for viewers (then it sees only these).",
    )
    pool: Name | None = Field(default=None, description="For role node: the pool to join.")
    valid_for: Seconds | None = Field(
        default=None, gt=0, description="For ever if omitted; a day for role node."
    )
    note: str = Field(default="", max_length=500)

    @model_validator(mode="after")
    def _for_someone(self) -> Self:
        if self.role is Role.NODE:
            if self.pool is None or self.user is not None or self.teams:
                raise ValueError("a token of role node names a pool, and neither user nor teams")
        elif self.user is None or self.pool is not None:
            raise ValueError("a token names its user, and a pool only with role node")
        return self


class ShownToken(Shown):
    """A token, without its secret."""

    id: str
    kind: Literal["token", "join"]
    role: Role
    user: str | None
    teams: tuple[str, ...]
    pool: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked: bool
    used_by: str | None = Field(description="The node that joined with it")
    note: str

    @classmethod
    def of(cls, token: Token) -> ShownToken:
        """From a person's token."""
        return cls(
            id=token.id,
            kind="token",
            role=token.role,
            user=token.user,
            teams=token.teams,
            pool=None,
            created_at=instant(token.created_at),
            expires_at=instant_or_none(token.expires_at),
            revoked=token.revoked,
            used_by=None,
            note=token.note,
        )

    @classmethod
    def of_join(cls, token: JoinToken) -> ShownToken:
        """From a join token."""
        return cls(
            id=token.id,
            kind="join",
            role=Role.NODE,
            user=None,
            teams=(),
            pool=token.pool,
            created_at=instant(token.created_at),
            expires_at=instant_or_none(token.expires_at),
            revoked=token.revoked,
            used_by=token.used_by,
            note=token.note,
        )


class NewToken(Shown):
    """A token just made. The secret is shown here and never again."""

    token: ShownToken
    secret: str


class TokenList(Shown):
    """All tokens, oldest first."""

    tokens: tuple[ShownToken, ...]


class WhoAmI(Shown):
    """Who the token that asks belongs to."""

    name: str
    role: Role
    teams: tuple[str, ...] | None = Field(description="None: all")
