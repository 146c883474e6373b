"""Tokens by their digests, join tokens used once, and the index of uploads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hybrid.domain.ids import NodeId, PoolName
from hybrid.ports.access import Artifact, JoinToken, Role, Token
from tests.contract.store.conftest import WholeStore
from tests.doubles.build import NOW

NEEDS_EVERY_PORT = True

TOKEN = Token(
    id="t1",
    sha256="digest",
    role=Role.SUBMITTER,
    user="ann",
    teams=("red", "blue"),
    created_at=NOW,
    expires_at=NOW + 60,
    note="laptop",
)
JOIN = JoinToken(id="jt1", sha256="join", pool=PoolName("rack"), created_at=NOW, note="rack 4")
ARTIFACT = Artifact(digest="sha256:aa", team="red", size_bytes=2**40, created_at=NOW)
N1 = NodeId("n1")


def test_a_token_is_found_by_its_digest(store: WholeStore) -> None:
    store.add_token(TOKEN)
    assert store.find_token("digest") == TOKEN
    assert store.find_token("other") is None


def test_tokens_are_listed_oldest_first(store: WholeStore) -> None:
    older = replace(TOKEN, id="t0", sha256="older", created_at=NOW - 1, teams=())
    store.add_token(TOKEN)
    store.add_token(older)
    assert store.tokens() == (older, TOKEN)


def test_a_revoked_token_stays_known_and_opens_nothing(store: WholeStore) -> None:
    store.add_token(TOKEN)
    assert store.revoke_token("t1")
    assert store.revoke_token("t1")
    assert not store.revoke_token("t2")
    found = store.find_token("digest")
    assert found is not None
    assert (found.revoked, found.valid(NOW)) == (True, False)


def test_a_token_is_valid_until_it_expires() -> None:
    assert TOKEN.valid(NOW + 59.9)
    assert not TOKEN.valid(NOW + 60)
    assert replace(TOKEN, expires_at=None).valid(NOW * 2)


@pytest.mark.parametrize("twin", [replace(TOKEN, id="t2"), replace(TOKEN, sha256="other")])
def test_a_token_is_added_once(store: WholeStore, twin: Token) -> None:
    store.add_token(TOKEN)
    with pytest.raises(ValueError, match="already"):
        store.add_token(twin)
    assert store.tokens() == (TOKEN,)


def test_a_join_token_is_used_by_one_node(store: WholeStore) -> None:
    store.add_join_token(JOIN)
    assert store.use_join_token("join", node_id=N1, token_sha256="n1", at=NOW + 1)
    assert store.use_join_token("join", node_id=N1, token_sha256="n1", at=NOW + 2)
    assert not store.use_join_token("join", node_id=N1, token_sha256="other", at=NOW + 2)
    assert not store.use_join_token("join", node_id=NodeId("n2"), token_sha256="n1", at=NOW + 2)
    assert store.join_tokens() == (replace(JOIN, used_by=N1, used_at=NOW + 1),)


def test_the_token_of_a_claim_is_used_once_without_having_been_kept(store: WholeStore) -> None:
    assert store.use_join_token("derived", node_id=N1, token_sha256="n1", at=NOW)
    assert not store.use_join_token("derived", node_id=NodeId("n2"), token_sha256="n2", at=NOW)
    assert store.join_tokens() == ()
    assert store.find_join_token("derived") is None


def test_a_revoked_or_expired_join_token_is_not_used(store: WholeStore) -> None:
    store.add_join_token(JOIN)
    store.add_join_token(replace(JOIN, id="jt2", sha256="late", expires_at=NOW + 5))
    assert store.revoke_join_token("jt1")
    assert not store.revoke_join_token("jt9")
    assert not store.use_join_token("join", node_id=N1, token_sha256="n1", at=NOW)
    assert not store.use_join_token("late", node_id=N1, token_sha256="n1", at=NOW + 5)
    assert store.use_join_token("late", node_id=N1, token_sha256="n1", at=NOW + 4)
    revoked = store.find_join_token("join")
    assert revoked is not None
    assert not revoked.valid(NOW)


def test_a_join_token_is_added_once(store: WholeStore) -> None:
    store.add_join_token(JOIN)
    with pytest.raises(ValueError, match="already"):
        store.add_join_token(replace(JOIN, id="jt2"))


def test_an_upload_is_noted_once_per_team(store: WholeStore) -> None:
    store.add_artifact(ARTIFACT)
    store.add_artifact(replace(ARTIFACT, created_at=NOW + 9))
    blue = replace(ARTIFACT, team="blue", created_at=NOW + 1)
    store.add_artifact(blue)
    assert store.artifact("sha256:aa", "red") == ARTIFACT
    assert store.artifact("sha256:aa", "green") is None
    assert store.artifacts() == (ARTIFACT, blue)
    assert store.artifacts(team="blue") == (blue,)
    assert store.artifacts(before=NOW + 1) == (ARTIFACT,)


def test_bytes_may_be_deleted_when_the_last_team_has_forgotten_them(store: WholeStore) -> None:
    store.add_artifact(ARTIFACT)
    store.add_artifact(replace(ARTIFACT, team="blue"))
    assert not store.remove_artifact("sha256:aa", "red")
    assert store.remove_artifact("sha256:aa", "blue")
    assert store.artifacts() == ()


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800"])
def test_nothing_of_a_name_that_cannot_be_written_is_there(store: WholeStore, text: str) -> None:
    assert store.find_token(text) is None
    assert store.find_join_token(text) is None
    assert store.artifact(text, "red") is None
    assert store.artifacts(team=text) == ()
    assert not store.revoke_token(text)
    assert not store.revoke_join_token(text)
