"""Who a node is: an id and a token of its own, drawn once and kept."""

from __future__ import annotations

import contextlib
import re
import secrets
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from hybrid.agent.config import AgentConfig
from hybrid.agent.desk import node_id_of_claim, sha256_of
from hybrid.agent.guardian.durable import read_record, write_record

_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """``token`` is the node's own: the server knows only its digest. ``joined`` tells that the
    server has let it in."""

    node_id: str
    token: str
    pool: str
    claim_id: str | None
    joined: bool = False

    @property
    def token_sha256(self) -> str:
        """What the server keeps of the token."""
        return sha256_of(self.token)

    def __repr__(self) -> str:
        return f"Identity({self.node_id!r}, joined={self.joined})"


class IdentityFile:
    """The identity in ``identity.json`` (0600) of the state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "identity.json"

    def load(self) -> Identity | None:
        """What is kept; None when nothing readable is."""
        record = read_record(self._path)
        try:
            assert record is not None
            claim_id = record["claim_id"]
            return Identity(
                node_id=str(record["node_id"]),
                token=str(record["token"]),
                pool=str(record["pool"]),
                claim_id=None if claim_id is None else str(claim_id),
                joined=bool(record["joined"]),
            )
        except (AssertionError, KeyError, TypeError, ValueError):
            return None

    def save(self, identity: Identity) -> None:
        """Keep it durably; raises OSError."""
        write_record(
            self._path,
            {
                "node_id": identity.node_id,
                "token": identity.token,
                "pool": identity.pool,
                "claim_id": identity.claim_id,
                "joined": identity.joined,
            },
        )
        with contextlib.suppress(OSError):
            self._path.chmod(0o600)

    def of(self, config: AgentConfig) -> Identity:
        """The kept identity if it fits the configuration, else a fresh one, kept before it is
        used: repeating a join that lost its answer must be the same join.

        A disk image that was used before carries the identity of another claim's machine; that
        one is replaced.
        """
        kept = self.load()
        if (
            kept is not None
            and kept.claim_id == config.claim_id
            and (kept.claim_id is not None or kept.pool == config.pool)
        ):
            return kept
        fresh = Identity(
            node_id=_node_id(config),
            token=secrets.token_urlsafe(_TOKEN_BYTES),
            pool=config.pool,
            claim_id=config.claim_id,
        )
        self.save(fresh)
        return fresh

    def joined(self, identity: Identity) -> None:
        """The server has let it in: no join token is needed any more."""
        self.save(replace(identity, joined=True))


def _node_id(config: AgentConfig) -> str:
    if config.claim_id is not None:
        return node_id_of_claim(config.claim_id)
    host = re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().split(".")[0].lower()).strip("-")
    return f"{host[:40] or 'node'}-{secrets.token_hex(4)}"
