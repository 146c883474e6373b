"""Rows of tokens, join tokens and uploads."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from hybrid.domain.ids import NodeId, PoolName
from hybrid.ports.access import Artifact, JoinToken, Role, Token
from hybrid.store.database import Database
from hybrid.store.questions import nameable
from hybrid.store.tables import artifacts, join_tokens, tokens


class AccessRows:
    """Implements :class:`~hybrid.ports.access.TokenStore` and
    :class:`~hybrid.ports.access.ArtifactIndex`."""

    _database: Database

    # --- tokens -------------------------------------------------------------------------------

    def add_token(self, token: Token) -> None:
        """Keep a new token; ValueError when its id or digest is there already."""
        values = {
            "id": token.id,
            "sha256": token.sha256,
            "role": token.role.value,
            "user_name": token.user,
            "teams": json.dumps(token.teams),
            "created_at": token.created_at,
            "expires_at": token.expires_at,
            "revoked": int(token.revoked),
            "note": token.note,
        }
        self._add(tokens, values, f"there is a token {token.id} already")

    def find_token(self, sha256: str) -> Token | None:
        """The token of a digest, revoked and expired ones included."""
        if not nameable(sha256):
            return None
        question = select(tokens).where(tokens.c.sha256 == sha256)
        row = self._database.read(lambda connection: connection.execute(question).first())
        return None if row is None else _token(row)

    def tokens(self) -> tuple[Token, ...]:
        """All tokens, oldest first."""
        question = select(tokens).order_by(tokens.c.created_at, tokens.c.id)
        rows = self._database.read(lambda connection: connection.execute(question).all())
        return tuple(_token(row) for row in rows)

    def revoke_token(self, token_id: str) -> bool:
        """End a token now; False when there is none of that id."""
        change = update(tokens).where(tokens.c.id == token_id).values(revoked=1)
        return nameable(token_id) and self._touches(change)

    # --- join tokens --------------------------------------------------------------------------

    def add_join_token(self, token: JoinToken) -> None:
        """Keep a new join token; ValueError when its id or digest is there already."""
        values = {
            "sha256": token.sha256,
            "id": token.id,
            "pool": token.pool,
            "derived": 0,
            "created_at": token.created_at,
            "expires_at": token.expires_at,
            "revoked": int(token.revoked),
            "used_by": token.used_by,
            "used_token_sha256": None,
            "used_at": token.used_at,
            "note": token.note,
        }
        self._add(join_tokens, values, f"there is a join token {token.id} already")

    def find_join_token(self, sha256: str) -> JoinToken | None:
        """The join token of a digest, used, revoked and expired ones included."""
        if not nameable(sha256):
            return None
        question = select(join_tokens).where(
            join_tokens.c.sha256 == sha256, join_tokens.c.derived == 0
        )
        row = self._database.read(lambda connection: connection.execute(question).first())
        return None if row is None else _join_token(row)

    def join_tokens(self) -> tuple[JoinToken, ...]:
        """All join tokens, oldest first."""
        question = (
            select(join_tokens)
            .where(join_tokens.c.derived == 0)
            .order_by(join_tokens.c.created_at, join_tokens.c.id)
        )
        rows = self._database.read(lambda connection: connection.execute(question).all())
        return tuple(_join_token(row) for row in rows)

    def revoke_join_token(self, token_id: str) -> bool:
        """End a join token now; False when there is none of that id."""
        change = (
            update(join_tokens)
            .where(join_tokens.c.id == token_id, join_tokens.c.derived == 0)
            .values(revoked=1)
        )
        return nameable(token_id) and self._touches(change)

    def use_join_token(self, sha256: str, *, node_id: NodeId, token_sha256: str, at: float) -> bool:
        """Mark a join token used by a node under its own token; False when it is used otherwise,
        revoked or expired."""
        return self._database.write_twice(
            lambda connection: use_join_token(
                connection,
                sha256,
                pool=None,
                node_id=node_id,
                token_sha256=token_sha256,
                at=at,
            )
        )

    # --- artifacts ----------------------------------------------------------------------------

    def add_artifact(self, artifact: Artifact) -> None:
        """Note an upload; one that is noted already stays as it is."""

        def work(connection: Connection) -> None:
            if connection.execute(_the_artifact(artifact.digest, artifact.team)).first() is None:
                connection.execute(
                    insert(artifacts).values(
                        digest=artifact.digest,
                        team=artifact.team,
                        size_bytes=artifact.size_bytes,
                        created_at=artifact.created_at,
                    )
                )

        self._database.write_twice(work)

    def artifact(self, digest: str, team: str) -> Artifact | None:
        """The upload of a team."""
        if not nameable(digest, team):
            return None
        question = _the_artifact(digest, team)
        row = self._database.read(lambda connection: connection.execute(question).first())
        return None if row is None else _artifact(row)

    def artifacts(
        self, *, team: str | None = None, before: float | None = None
    ) -> tuple[Artifact, ...]:
        """Uploads, oldest first."""
        if not nameable(team):
            return ()
        question = select(artifacts).order_by(
            artifacts.c.created_at, artifacts.c.digest, artifacts.c.team
        )
        if team is not None:
            question = question.where(artifacts.c.team == team)
        if before is not None:
            question = question.where(artifacts.c.created_at < before)
        rows = self._database.read(lambda connection: connection.execute(question).all())
        return tuple(_artifact(row) for row in rows)

    def remove_artifact(self, digest: str, team: str) -> bool:
        """Forget a team's upload; True when no other team has the same bytes."""

        def work(connection: Connection) -> bool:
            same = artifacts.c.digest == digest
            connection.execute(delete(artifacts).where(same, artifacts.c.team == team))
            return connection.execute(select(artifacts.c.team).where(same)).first() is None

        return not nameable(digest, team) or self._database.write(work)

    # --- rows ---------------------------------------------------------------------------------

    def _add(self, table: Any, values: dict[str, Any], there: str) -> None:
        try:
            self._database.write(
                lambda connection: connection.execute(insert(table).values(values))
            )
        except IntegrityError as problem:
            raise ValueError(there) from problem

    def _touches(self, change: Any) -> bool:
        return bool(self._database.write(lambda connection: connection.execute(change).rowcount))


def use_join_token(
    connection: Connection,
    sha256: str,
    *,
    pool: str | None,
    node_id: NodeId,
    token_sha256: str,
    at: float,
) -> bool:
    """The rule of :meth:`~hybrid.ports.access.TokenStore.use_join_token`, in a transaction; with
    ``pool``, a token that was made for another pool opens nothing."""
    same = join_tokens.c.sha256 == sha256
    row = connection.execute(select(join_tokens).where(same).with_for_update()).first()
    if row is None:
        connection.execute(
            insert(join_tokens).values(
                sha256=sha256,
                id=f"derived:{sha256}",
                pool=pool or "",
                derived=1,
                created_at=at,
                expires_at=None,
                revoked=0,
                used_by=node_id,
                used_token_sha256=token_sha256,
                used_at=at,
                note="",
            )
        )
        return True
    if row.used_by is not None:
        return (row.used_by, row.used_token_sha256) == (node_id, token_sha256)
    if row.revoked or (row.expires_at is not None and at >= row.expires_at):
        return False
    if pool is not None and row.pool != pool:
        return False
    connection.execute(
        update(join_tokens)
        .where(same)
        .values(used_by=node_id, used_token_sha256=token_sha256, used_at=at)
    )
    return True


def _token(row: Row[Any]) -> Token:
    return Token(
        id=row.id,
        sha256=row.sha256,
        role=Role(row.role),
        user=row.user_name,
        teams=tuple(json.loads(row.teams)),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked=bool(row.revoked),
        note=row.note,
    )


def _join_token(row: Row[Any]) -> JoinToken:
    return JoinToken(
        id=row.id,
        sha256=row.sha256,
        pool=PoolName(row.pool),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked=bool(row.revoked),
        used_by=None if row.used_by is None else NodeId(row.used_by),
        used_at=row.used_at,
        note=row.note,
    )


def _the_artifact(digest: str, team: str) -> Any:
    return select(artifacts).where(artifacts.c.digest == digest, artifacts.c.team == team)


def _artifact(row: Row[Any]) -> Artifact:
    return Artifact(
        digest=row.digest, team=row.team, size_bytes=row.size_bytes, created_at=row.created_at
    )
