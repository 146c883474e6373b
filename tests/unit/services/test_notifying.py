"""Events brought to a real HTTP server: signed, in order, once under one id."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import pytest
import tenacity

from hybrid.domain.event import Event, EventKind
from hybrid.ports.store import Bundle, Note
from hybrid.services.notifying import BACK_OFF_S, GIVE_UP_S, TRIES, Notifier
from policies.sections import Webhook
from tests.doubles.build import NOW
from tests.doubles.scripted_server import Asked, Reply, ScriptedServer
from tests.unit.services.conftest import Place

SECRET = "correct horse"


@pytest.fixture
def receiver() -> Iterator[ScriptedServer]:
    with ScriptedServer(script=lambda _: Reply(204)) as server:
        yield server


def a_notifier(place: Place, url: str, **fields: Any) -> Notifier:
    hook = Webhook(name="finance", url=url, secret_env="HOOK", **fields)
    return Notifier(
        place.store,
        place.clock,
        "inst",
        webhooks=lambda: (hook,),
        leads=lambda: True,
        environ={"HOOK": SECRET},
        wait=tenacity.wait_none(),
    )


def happen(place: Place, what: str, kind: EventKind = EventKind.BUDGET) -> None:
    event = Event(kind=kind, subject="budget:all", what=what, at=place.clock.now(), words="w")
    done = place.store.commit([Bundle(id="e", changes=(Note(event),))], at=place.clock.now())
    assert not done.dropped


def whats(receiver: ScriptedServer) -> list[str]:
    return [json.loads(each.body)["what"] for each in receiver.asked]


def test_events_of_its_kinds_are_delivered_in_order_and_signed(
    place: Place, receiver: ScriptedServer
) -> None:
    notifier = a_notifier(place, receiver.url + "/hook?x=1")
    happen(place, "before it was there")
    assert notifier.once() == 0
    for what, kind in (("first", "budget"), ("of no interest", "job"), ("second", "budget")):
        happen(place, what, EventKind(kind))
    assert (notifier.once(), notifier.once()) == (2, 0)
    assert whats(receiver) == ["first", "second"]
    asked = receiver.asked[0]
    assert (asked.method, asked.path) == ("POST", "/hook?x=1")
    body = json.loads(asked.body)
    assert (body["seq"], body["subject"], body["kind"]) == (2, "budget:all", "budget")
    assert asked.headers["X-Hybrid-Delivery"] == body["delivery"] == "inst-2"
    signed = f"{asked.headers['X-Hybrid-Timestamp']}.".encode() + asked.body
    wanted = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert asked.headers["X-Hybrid-Signature"] == f"sha256={wanted}"


def test_a_successor_goes_on_where_the_last_one_stopped(
    place: Place, receiver: ScriptedServer
) -> None:
    a_notifier(place, receiver.url).once()
    happen(place, "one")
    assert a_notifier(place, receiver.url).once() == 1
    happen(place, "two")
    assert a_notifier(place, receiver.url).once() == 1
    assert whats(receiver) == ["one", "two"]


def test_a_delivery_that_fails_is_tried_again_under_the_same_id(place: Place) -> None:
    with ScriptedServer(Reply(503), Reply(500), script=lambda _: Reply(200)) as receiver:
        notifier = a_notifier(place, receiver.url)
        notifier.once()
        happen(place, "one")
        assert notifier.once() == 1
        assert {each.headers["X-Hybrid-Delivery"] for each in receiver.asked} == {"inst-1"}
        assert len(receiver.asked) == 3


def test_who_does_not_take_it_is_asked_again_later_and_nothing_is_passed_over(
    place: Place,
) -> None:
    answers = {"status": 500}

    def script(_: Asked) -> Reply:
        return Reply(answers["status"])

    with ScriptedServer(script=script) as receiver:
        notifier = a_notifier(place, receiver.url)
        notifier.once()
        happen(place, "one")
        happen(place, "two")
        assert notifier.once() == 0
        assert len(receiver.asked) == TRIES
        assert notifier.once() == 0
        assert len(receiver.asked) == TRIES  # not yet
        answers["status"] = 200
        place.clock.at += BACK_OFF_S[0]
        assert notifier.once() == 2
        assert whats(receiver)[-2:] == ["one", "two"]


def test_nobody_there_is_a_failure_and_not_an_end(place: Place, receiver: ScriptedServer) -> None:
    gone = ScriptedServer(script=lambda _: Reply(200))
    gone.stop()
    notifier = a_notifier(place, gone.url)
    notifier.once()
    happen(place, "one")
    assert notifier.once() == 0
    later = a_notifier(place, receiver.url)
    assert later.once() == 1


def test_what_is_a_day_old_is_not_brought_any_more(place: Place, receiver: ScriptedServer) -> None:
    notifier = a_notifier(place, receiver.url)
    notifier.once()
    happen(place, "old")
    place.clock.at += GIVE_UP_S
    happen(place, "new")
    assert notifier.once() == 1
    assert whats(receiver) == ["new"]


def test_nothing_is_sent_unsigned(place: Place, receiver: ScriptedServer) -> None:
    notifier = a_notifier(place, receiver.url)
    notifier.environ = {}
    notifier.once()
    happen(place, "one")
    assert notifier.once() == 0
    assert receiver.asked == []


def test_only_the_leader_delivers(place: Place, receiver: ScriptedServer) -> None:
    notifier = a_notifier(place, receiver.url)
    notifier.leads = lambda: False
    happen(place, "one")
    assert notifier.once() == 0
    assert place.store.cursor("webhook:finance") is None


def test_it_runs_by_itself_until_it_is_stopped(place: Place, receiver: ScriptedServer) -> None:
    notifier = a_notifier(place, receiver.url)
    notifier.once()
    happen(place, "one")
    notifier.start()
    try:
        assert _until(lambda: len(receiver.asked) == 1)
    finally:
        notifier.stop()
    assert place.clock.now() == NOW


def _until(holds: Any, seconds: float = 10.0) -> bool:
    import time

    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.01)
    return False
