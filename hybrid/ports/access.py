"""The ports to who may ask, which machines may join, and which uploads there are.

Secrets never reach these rows: a token is known by the SHA-256 of its text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from hybrid.domain.ids import NodeId, PoolName


class Role(StrEnum):
    """What a token is for. Each role of people may do what those before it may.

    ``viewer`` reads; ``submitter`` submits and cancels for its teams; ``operator`` runs the
    place: pools, nodes, everybody's jobs; ``admin`` sets policy, budgets and tokens. ``node`` is
    a machine's own token and stands apart.
    """

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"
    NODE = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One person's or program's token. ``teams`` empty: every team (for a role that has no teams
    of its own)."""

    id: str
    sha256: str
    role: Role
    user: str
    created_at: float
    teams: tuple[str, ...] = ()
    expires_at: float | None = None
    revoked: bool = False
    note: str = ""

    def valid(self, now: float) -> bool:
        """Whether it opens anything at ``now``."""
        return not self.revoked and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinToken:
    """Lets one machine join one pool, once. ``used_by`` is the node that did."""

    id: str
    sha256: str
    pool: PoolName
    created_at: float
    expires_at: float | None = None
    revoked: bool = False
    used_by: NodeId | None = None
    used_at: float | None = None
    note: str = ""

    def valid(self, now: float) -> bool:
        """Whether a machine could still join with it at ``now``."""
        fresh = self.expires_at is None or now < self.expires_at
        return fresh and not self.revoked and self.used_by is None


class TokenStore(Protocol):
    """Rows of tokens, and of join tokens for owned machines."""

    def add_token(self, token: Token) -> None:
        """Keep a new token; ValueError when its id or digest is there already."""
        ...

    def find_token(self, sha256: str) -> Token | None:
        """The token of a digest, revoked and expired ones included."""
        ...

    def tokens(self) -> tuple[Token, ...]:
        """All tokens, oldest first."""
        ...

    def revoke_token(self, token_id: str) -> bool:
        """End a token now; False when there is none of that id. Revoking twice changes nothing."""
        ...

    def add_join_token(self, token: JoinToken) -> None:
        """Keep a new join token; ValueError when its id or digest is there already."""
        ...

    def find_join_token(self, sha256: str) -> JoinToken | None:
        """The join token of a digest, used, revoked and expired ones included."""
        ...

    def join_tokens(self) -> tuple[JoinToken, ...]:
        """All join tokens, oldest first."""
        ...

    def revoke_join_token(self, token_id: str) -> bool:
        """End a join token now; False when there is none of that id."""
        ...

    def use_join_token(self, sha256: str, *, node_id: NodeId, token_sha256: str, at: float) -> bool:
        """Mark a join token used by a node under its own token.

        True the first time and for the same node with the same token again; False for anybody
        else, and for a join token that is revoked or expired. A digest that has no row (the token
        of a claim, which is derived and not kept) gets one by its first use.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One upload of one team. ``digest`` is ``sha256:<64 hex digits>`` of its bytes."""

    digest: str
    team: str
    size_bytes: int
    created_at: float


class ArtifactIndex(Protocol):
    """Which uploads there are, and whose. Two teams with the same bytes have a row each."""

    def add_artifact(self, artifact: Artifact) -> None:
        """Note an upload; one that is noted already stays as it is."""
        ...

    def artifact(self, digest: str, team: str) -> Artifact | None:
        """The upload of a team."""
        ...

    def artifacts(
        self, *, team: str | None = None, before: float | None = None
    ) -> tuple[Artifact, ...]:
        """Uploads, oldest first: of one team, or of all; created before an instant, or ever."""
        ...

    def remove_artifact(self, digest: str, team: str) -> bool:
        """Forget a team's upload; True when no other team has the same bytes, so that they may
        be deleted."""
        ...
