"""Who asks, and what they may do."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import PoolName
from hybrid.ports.access import JoinToken, Role, Token, TokenStore
from hybrid.ports.clock import Clock
from hybrid.ports.mailbox import NodeMailbox, NodeToken
from hybrid.ports.store import Bundle, Note, Store
from hybrid.services.errors import Conflict, NotAllowed, NotAuthenticated, NotFound, Refused

__all__ = ["DEFAULT_TEAM", "Access", "Principal", "Role", "sha256_hex"]

DEFAULT_TEAM = "default"
"""Who pays for jobs of people who are in no team."""

_PEOPLE = (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN)
_PREFIX = "hyb_"
_JOIN_PREFIX = "hybj_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks. ``teams`` are those whose things they may see and touch; None means all."""

    name: str
    role: Role
    teams: tuple[str, ...] | None = None
    node: NodeToken | None = None
    token_id: str = ""

    def may(self, least: Role) -> bool:
        """Whether the role reaches that far."""
        if Role.NODE in (self.role, least):
            return self.role is least
        return _PEOPLE.index(self.role) >= _PEOPLE.index(least)

    def sees(self, team: str) -> bool:
        """Whether things of the team are theirs to see."""
        return self.teams is None or team in self.teams

    def paying_team(self, named: str | None) -> str:
        """The team that pays for what is submitted: the named one, or the token's only one.

        Raises NotAllowed for a team that is not theirs, and when there are several to choose from.
        """
        if named is not None:
            if not self.sees(named):
                mine = ", ".join(self.teams or ()) or "none"
                raise NotAllowed("team_not_yours", f"team {named} is not one of yours: {mine}")
            return named
        if self.teams is None:
            return DEFAULT_TEAM
        if len(self.teams) != 1:
            choice = ", ".join(self.teams) or "none"
            raise NotAllowed("name_a_team", f"say which team it is for: one of {choice}")
        return self.teams[0]


def sha256_hex(secret: str) -> str:
    """A token as it is kept: it is long and random, so that needs no salt."""
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Access:
    """Tokens: who they are, new ones, the end of old ones."""

    store: Store
    tokens: TokenStore
    mailbox: NodeMailbox
    clock: Clock

    def principal(self, token: str) -> Principal:
        """Whose token it is; NotAuthenticated if it is nobody's, revoked or expired."""
        digest = sha256_hex(token)
        if token.startswith(_PREFIX):
            found = self.tokens.find_token(digest)
            if found is not None and hmac.compare_digest(found.sha256, digest):
                return self._person(found)
        else:
            node = self.mailbox.node_of(digest)
            if node is not None:
                return Principal(name=f"node:{node.node_id}", role=Role.NODE, node=node)
        raise NotAuthenticated("unknown_token", "nobody has this token")

    def _person(self, token: Token) -> Principal:
        if not token.valid(self.clock.now()):
            ended = "revoked" if token.revoked else "expired"
            raise NotAuthenticated(f"token_{ended}", f"this token is {ended}")
        limited = token.teams or token.role is Role.SUBMITTER
        return Principal(
            name=token.user,
            role=token.role,
            teams=token.teams if limited else None,
            token_id=token.id,
        )

    def create(
        self,
        *,
        user: str,
        role: Role,
        teams: tuple[str, ...] = (),
        valid_s: float | None = None,
        note: str = "",
        by: str,
    ) -> tuple[Token, str]:
        """A new token and its secret, which is nowhere to be had again."""
        if role is Role.NODE:
            raise Refused("not_for_people", "machines get their tokens by joining")
        if role is Role.SUBMITTER and not teams:
            raise Refused("name_a_team", "a submitter's token names the teams it submits for")
        if role in (Role.OPERATOR, Role.ADMIN) and teams:
            raise Refused("role_has_all_teams", f"an {role}'s token is for all teams: name none")
        now = self.clock.now()
        secret = _PREFIX + secrets.token_urlsafe(32)
        token = Token(
            id=f"t-{secrets.token_hex(6)}",
            sha256=sha256_hex(secret),
            role=role,
            user=user,
            created_at=now,
            teams=tuple(sorted(set(teams))),
            expires_at=None if valid_s is None else now + valid_s,
            note=note,
        )
        _added(lambda: self.tokens.add_token(token))
        self._note(token.id, "created", f"{role} token for {user}", by)
        return token, secret

    def create_join(
        self, *, pool: PoolName, valid_s: float, note: str = "", by: str
    ) -> tuple[JoinToken, str]:
        """A token with which one machine may join an owned pool, once, and its secret."""
        now = self.clock.now()
        secret = _JOIN_PREFIX + secrets.token_urlsafe(32)
        token = JoinToken(
            id=f"t-{secrets.token_hex(6)}",
            sha256=sha256_hex(secret),
            pool=pool,
            created_at=now,
            expires_at=now + valid_s,
            note=note,
        )
        _added(lambda: self.tokens.add_join_token(token))
        self._note(token.id, "created", f"join token for pool {pool}", by)
        return token, secret

    def listing(self) -> tuple[tuple[Token, ...], tuple[JoinToken, ...]]:
        """All tokens of people, and all join tokens, oldest first."""
        return self.tokens.tokens(), self.tokens.join_tokens()

    def revoke(self, token_id: str, *, by: str) -> None:
        """End a token now; NotFound when there is none."""
        if not (self.tokens.revoke_token(token_id) or self.tokens.revoke_join_token(token_id)):
            raise NotFound("no_such_token", f"there is no token {token_id}")
        self._note(token_id, "revoked", "", by)

    def _note(self, token_id: str, what: str, words: str, by: str) -> None:
        now = self.clock.now()
        event = Event(
            kind=EventKind.TOKEN, subject=token_id, what=what, at=now, words=words, actor=by
        )
        self.store.commit([Bundle(id=f"token:{token_id}:{what}", changes=(Note(event),))], at=now)


def _added(add: Callable[[], None]) -> None:
    try:
        add()
    except ValueError as problem:
        raise Conflict("token_exists", "that token is there already; try again") from problem
