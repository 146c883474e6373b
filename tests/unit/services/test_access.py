"""Tokens, roles, and who may join."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hybrid.domain.claim import ClaimState
from hybrid.domain.ids import ClaimId, NodeId, PoolName
from hybrid.ports.access import Role
from hybrid.ports.join import JoinRefusal
from hybrid.services.access import Access, Principal, sha256_hex
from hybrid.services.errors import NotAllowed, NotAuthenticated, NotFound, Refused
from hybrid.services.joining import Gate, claim_join_token
from tests.doubles.build import a_burst_pool, a_claim, a_job
from tests.unit.services.conftest import Place

SECRET = bytes(range(32))


@pytest.fixture
def access(place: Place) -> Access:
    return Access(place.store, place.store, place.store, place.clock)


@pytest.fixture
def gate(place: Place) -> Gate:
    return Gate(place.store, place.store, SECRET, place.clock)


@pytest.mark.parametrize(
    ("role", "least", "may"),
    [
        (Role.VIEWER, Role.VIEWER, True),
        (Role.VIEWER, Role.SUBMITTER, False),
        (Role.SUBMITTER, Role.OPERATOR, False),
        (Role.OPERATOR, Role.SUBMITTER, True),
        (Role.OPERATOR, Role.ADMIN, False),
        (Role.ADMIN, Role.ADMIN, True),
        (Role.ADMIN, Role.NODE, False),
        (Role.NODE, Role.VIEWER, False),
        (Role.NODE, Role.NODE, True),
    ],
)
def test_each_role_of_people_may_what_those_before_it_may(
    role: Role, least: Role, may: bool
) -> None:
    assert Principal(name="x", role=role).may(least) is may


def test_a_token_says_who_asks_and_its_secret_is_stored_nowhere(
    access: Access, place: Place
) -> None:
    token, secret = access.create(user="ann", role=Role.SUBMITTER, teams=("red",), by="root")
    who = access.principal(secret)
    assert (who.name, who.role, who.teams, who.token_id) == (
        "ann",
        Role.SUBMITTER,
        ("red",),
        token.id,
    )
    assert token.sha256 == sha256_hex(secret)
    raw = place.store._database.path.read_bytes()  # type: ignore[union-attr]
    assert secret.encode() not in raw


def test_an_operator_has_all_teams_and_a_viewer_may_be_limited(access: Access) -> None:
    _, operator = access.create(user="olga", role=Role.OPERATOR, by="root")
    _, viewer = access.create(user="vera", role=Role.VIEWER, teams=("red",), by="root")
    _, wide = access.create(user="vic", role=Role.VIEWER, by="root")
    assert access.principal(operator).teams is None
    assert access.principal(viewer).teams == ("red",)
    assert access.principal(wide).teams is None


@pytest.mark.parametrize("token", ["", "hyb_", "hyb_nobody", "nobody", "ü" * 40])
def test_an_unknown_token_opens_nothing(access: Access, token: str) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        access.principal(token)
    assert caught.value.code == "unknown_token"


def test_a_token_ends_when_it_is_revoked_or_its_time_is_over(access: Access, place: Place) -> None:
    token, secret = access.create(user="ann", role=Role.VIEWER, valid_s=60, by="root")
    assert access.principal(secret).name == "ann"
    place.clock.at += 60
    with pytest.raises(NotAuthenticated) as caught:
        access.principal(secret)
    assert caught.value.code == "token_expired"
    access.revoke(token.id, by="root")
    access.revoke(token.id, by="root")
    with pytest.raises(NotAuthenticated) as caught:
        access.principal(secret)
    assert caught.value.code == "token_revoked"


def test_revoking_what_is_not_there_is_not_found(access: Access) -> None:
    with pytest.raises(NotFound):
        access.revoke("t-none", by="root")


@pytest.mark.parametrize(
    ("role", "teams", "code"),
    [
        (Role.NODE, (), "not_for_people"),
        (Role.SUBMITTER, (), "name_a_team"),
        (Role.ADMIN, ("red",), "role_has_all_teams"),
    ],
)
def test_tokens_that_make_no_sense_are_refused(
    access: Access, role: Role, teams: tuple[str, ...], code: str
) -> None:
    with pytest.raises(Refused) as caught:
        access.create(user="x", role=role, teams=teams, by="root")
    assert caught.value.code == code


def test_what_happens_to_tokens_is_in_the_event_log(access: Access, place: Place) -> None:
    token, _ = access.create(user="ann", role=Role.VIEWER, by="root")
    join, _ = access.create_join(pool=PoolName("rack"), valid_s=60, by="olga")
    access.revoke(join.id, by="root")
    assert [(e.subject, e.what, e.actor) for _, e in place.store.events()] == [
        (token.id, "created", "root"),
        (join.id, "created", "olga"),
        (join.id, "revoked", "root"),
    ]


def test_the_paying_team_is_named_or_the_only_one(ann: Principal, admin: Principal) -> None:
    assert ann.paying_team(None) == "red"
    assert ann.paying_team("red") == "red"
    assert admin.paying_team(None) == "default"
    assert admin.paying_team("blue") == "blue"
    with pytest.raises(NotAllowed) as caught:
        ann.paying_team("blue")
    assert caught.value.code == "team_not_yours"
    with pytest.raises(NotAllowed) as caught:
        replace(ann, teams=("blue", "red")).paying_team(None)
    assert caught.value.code == "name_a_team"


# --- joining -----------------------------------------------------------------------------------


def test_a_claims_machine_joins_by_a_token_that_is_derived_from_its_claim(
    gate: Gate, place: Place
) -> None:
    place.put(a_burst_pool("cloud"), a_job("j1"), a_claim("c1", ClaimState.BOOTING, node_id=None))
    token = claim_join_token(SECRET, ClaimId("c1"))
    decision = gate.check(token, PoolName("elsewhere"), ClaimId("c1"))
    assert (decision.pool, decision.claim_id, decision.refusal) == ("cloud", "c1", None)


@pytest.mark.parametrize("state", [ClaimState.TERMINATING, ClaimState.GONE, ClaimState.LOST])
def test_a_claim_that_waits_for_no_machine_lets_none_in(
    gate: Gate, place: Place, state: ClaimState
) -> None:
    place.put(a_burst_pool("cloud"), a_job("j1"), a_claim("c1", state, node_id=None))
    token = claim_join_token(SECRET, ClaimId("c1"))
    decision = gate.check(token, PoolName("cloud"), ClaimId("c1"))
    assert decision.refusal is JoinRefusal.CLAIM_NOT_WAITING
    other = gate.check(claim_join_token(SECRET, ClaimId("c2")), PoolName("cloud"), ClaimId("c2"))
    assert other.refusal is JoinRefusal.CLAIM_NOT_WAITING


def test_the_token_of_one_claim_is_no_token_for_another(gate: Gate, place: Place) -> None:
    place.put(a_burst_pool("cloud"), a_job("j1"), a_claim("c1", ClaimState.BOOTING, node_id=None))
    for token in (
        claim_join_token(SECRET, ClaimId("c2")),
        claim_join_token(bytes(32), ClaimId("c1")),
        "",
        "ü",
    ):
        decision = gate.check(token, PoolName("cloud"), ClaimId("c1"))
        assert decision.refusal is JoinRefusal.UNKNOWN_TOKEN


def test_an_owned_machine_joins_the_pool_of_its_token(gate: Gate, access: Access) -> None:
    _, secret = access.create_join(pool=PoolName("rack"), valid_s=60, by="olga")
    assert gate.check(secret, PoolName("rack"), None).refusal is None
    wrong = gate.check(secret, PoolName("lab"), None)
    assert (wrong.pool, wrong.refusal) == ("rack", JoinRefusal.WRONG_POOL)
    assert gate.check("hybj_x", PoolName("rack"), None).refusal is JoinRefusal.UNKNOWN_TOKEN


def test_a_join_token_ends_by_time_and_by_being_revoked(
    gate: Gate, access: Access, place: Place
) -> None:
    _, early = access.create_join(pool=PoolName("rack"), valid_s=60, by="olga")
    revoked, secret = access.create_join(pool=PoolName("rack"), valid_s=600, by="olga")
    access.revoke(revoked.id, by="olga")
    assert gate.check(secret, PoolName("rack"), None).refusal is JoinRefusal.UNKNOWN_TOKEN
    place.clock.at += 61
    assert gate.check(early, PoolName("rack"), None).refusal is JoinRefusal.EXPIRED


def test_a_used_join_token_is_the_mailboxes_to_judge_even_when_its_time_is_over(
    gate: Gate, access: Access, place: Place
) -> None:
    token, secret = access.create_join(pool=PoolName("rack"), valid_s=60, by="olga")
    place.store.use_join_token(
        token.sha256, node_id=NodeId("n1"), token_sha256="a" * 64, at=place.clock.now()
    )
    place.clock.at += 61
    assert gate.check(secret, PoolName("rack"), None).refusal is None
