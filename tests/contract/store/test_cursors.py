"""How far readers of the event log have come."""

from __future__ import annotations

from tests.contract.store.conftest import Place

NEEDS_EVERY_PORT = True


def test_a_cursor_is_kept_and_never_goes_back(place: Place) -> None:
    store = place.open()
    assert store.cursor("webhook:a") is None
    store.move_cursor("webhook:a", 7)
    store.move_cursor("webhook:b", 1)
    store.move_cursor("webhook:a", 5)
    assert (store.cursor("webhook:a"), store.cursor("webhook:b")) == (7, 1)
    assert place.open().cursor("webhook:a") == 7
    store.move_cursor("webhook:a", 2**40)
    assert store.cursor("webhook:a") == 2**40
