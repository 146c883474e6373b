"""Listings, timelines, and input that nothing is called."""

from __future__ import annotations

import base64
import json

import pytest

from hybrid.domain.claim import ClaimState
from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import ClaimId, JobId, NodeId
from hybrid.domain.job import JobState
from hybrid.domain.run import RunState
from hybrid.ports.store import JobFilter, Note, SetPolicy
from tests.contract.store.conftest import WholeStore
from tests.doubles.build import NOW, a_claim, a_job, a_run, a_spec
from tests.doubles.committing import change, put

UNNAMEABLE = ("\0", "a\0b", "\ud800")


def listed(store: WholeStore, which: JobFilter, limit: int = 3) -> list[str]:
    """All jobs of a listing, page by page."""
    ids: list[str] = []
    cursor = None
    while True:
        page = store.jobs(which, limit=limit, cursor=cursor)
        assert len(page.jobs) <= limit
        ids += [job.id for job in page.jobs]
        cursor = page.next_cursor
        if cursor is None:
            return ids
        assert len(page.jobs) == limit


@pytest.fixture
def queue(store: WholeStore) -> WholeStore:
    """Ten jobs; pairs were submitted at the same moment."""
    put(
        store,
        *(
            a_job(
                f"j{i}",
                (JobState.PENDING, JobState.RUNNING, JobState.FAILED)[i % 3],
                version=0,
                submitted_at=NOW + i // 2,
                team=("red", "blue")[i % 2],
                user=("ann", "bob", "eve")[i % 3],
                spec=a_spec(name=f"name{i % 4}", priority=("normal", "urgent")[i % 2]),
            )
            for i in range(10)
        ),
    )
    return store


def test_jobs_come_newest_first_over_pages(queue: WholeStore) -> None:
    for limit in (1, 2, 3, 10, 11):
        assert listed(queue, JobFilter(), limit) == [f"j{i}" for i in reversed(range(10))]


@pytest.mark.parametrize(
    ("which", "ids"),
    [
        (JobFilter(states=(JobState.RUNNING,)), ["j7", "j4", "j1"]),
        (JobFilter(states=(JobState.RUNNING, JobState.FAILED), team="blue"), ["j7", "j5", "j1"]),
        (JobFilter(team="red"), ["j8", "j6", "j4", "j2", "j0"]),
        (JobFilter(teams=("blue",), user="eve"), ["j5"]),
        (JobFilter(teams=("blue", "red"), user="eve"), ["j8", "j5", "j2"]),
        (JobFilter(teams=("blue",), team="red"), []),
        (JobFilter(teams=()), []),
        (JobFilter(name="name3"), ["j7", "j3"]),
        (JobFilter(priority="urgent", name="name1"), ["j9", "j5", "j1"]),
        (JobFilter(user="nobody"), []),
    ],
)
def test_a_listing_has_what_its_filter_says(
    queue: WholeStore, which: JobFilter, ids: list[str]
) -> None:
    assert listed(queue, which) == ids


def test_jobs_submitted_meanwhile_do_not_disturb_a_listing(queue: WholeStore) -> None:
    first = queue.jobs(JobFilter(), limit=4)
    put(queue, a_job("late", version=0, submitted_at=NOW + 100))
    rest = queue.jobs(JobFilter(), limit=100, cursor=first.next_cursor)
    assert [job.id for job in (*first.jobs, *rest.jobs)] == [f"j{i}" for i in reversed(range(10))]


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "!",
        "é",
        "AAAA",
        encoded(7),
        encoded([]),
        encoded([1]),
        encoded({"at": 1}),
        encoded([None, "j1"]),
        encoded([float("nan"), "j1"]),
        encoded([float("inf"), "j1"]),
        encoded([10**400, "j1"]),
        encoded([1.0, "\0"]),
        "[" * 4,
        base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    ],
)
def test_a_cursor_that_is_none_is_refused(queue: WholeStore, cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        queue.jobs(JobFilter(), limit=3, cursor=cursor)


def test_a_page_has_at_least_one_job(queue: WholeStore) -> None:
    with pytest.raises(ValueError, match="at least one"):
        queue.jobs(JobFilter(), limit=0)


@pytest.mark.parametrize("text", UNNAMEABLE)
def test_nothing_has_a_name_that_cannot_be_written(queue: WholeStore, text: str) -> None:
    for which in (
        JobFilter(team=text),
        JobFilter(teams=(text,)),
        JobFilter(user=text),
        JobFilter(name=text),
        JobFilter(priority=text),
    ):
        assert queue.jobs(which, limit=1).jobs == ()
    assert queue.job(JobId(text)) is None
    assert queue.claim(ClaimId(text)) is None
    assert queue.node(NodeId(text)) is None
    assert queue.decision(JobId(text)) is None
    assert queue.runs_of(JobId(text)) == ()
    assert queue.events(job_id=JobId(text)) == ()
    assert queue.entries(claim_id=ClaimId(text)) == ()
    assert queue.remembered("red", text, now=NOW) is None


def test_runs_come_in_the_order_of_their_attempts(store: WholeStore) -> None:
    ended = [a_run("j1", n, version=0).to(RunState.ENDED, at=NOW) for n in (10, 2, 1)]
    put(store, a_job("j1", version=0), *ended)
    assert [run.attempt for run in store.runs_of(JobId("j1"))] == [1, 2, 10]


def test_claims_come_newest_first_and_by_state(store: WholeStore) -> None:
    states = (ClaimState.BOOTING, ClaimState.READY, ClaimState.GONE)
    put(
        store,
        *(
            a_claim(f"c{i}", state, version=0, requested_at=NOW + i)
            for i, state in enumerate(states)
        ),
    )
    assert [claim.id for claim in store.claims()] == ["c2", "c1", "c0"]
    some = store.claims(states=(ClaimState.BOOTING, ClaimState.GONE))
    assert [claim.id for claim in some] == ["c2", "c0"]
    assert [claim.id for claim in store.claims(limit=1)] == ["c2"]


def test_events_are_numbered_and_kept_in_order(store: WholeStore) -> None:
    said = [
        Event(
            kind=EventKind.JOB,
            subject=f"j{i % 2}",
            what="placed",
            at=NOW - i,
            words=f"event {i}",
            job_id=f"j{i % 2}",
            actor="loop",
        )
        for i in range(6)
    ]
    for event in said:
        change(store, Note(event))
    numbered = store.events()
    assert [event for _, event in numbered] == said
    numbers = [number for number, _ in numbered]
    assert numbers == sorted(set(numbers))
    assert store.events(after=numbers[3]) == numbered[4:]
    assert store.events(limit=2) == numbered[:2]
    assert [event for _, event in store.events(job_id=JobId("j1"))] == said[1::2]
    assert store.events(job_id=JobId("j1"), after=numbers[2], limit=1) == (numbered[3],)
    assert store.events(after=10**30) == ()


# --- policies ------------------------------------------------------------------------------------


def test_every_version_of_the_policy_is_kept(store: WholeStore) -> None:
    assert (store.policies(limit=9), store.policy_of(0)) == ((), store.policy())
    for version, text in enumerate(("a: 1", "b: 2", "c: 3")):
        change(store, SetPolicy(text, version, actor="ann", at=NOW + version, why=f"w{version}"))
    assert [(p.version, p.document, p.why) for p in store.policies(limit=2)] == [
        (3, "c: 3", "w2"),
        (2, "b: 2", "w1"),
    ]
    assert [p.version for p in store.policies(limit=9, before=3)] == [2, 1]
    assert store.policies(limit=9, before=2**40) == store.policies(limit=9)
    found = store.policy_of(2)
    assert found is not None
    assert (found.document, found.actor, found.at) == ("b: 2", "ann", NOW + 1)
    assert [store.policy_of(n) for n in (-1, 4, 2**40)] == [None, None, None]
