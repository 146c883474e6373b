"""A document that is fetched rarely, kept with its age, and renewed in the background."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hybrid.ports.errors import OutcomeUnknown
from providers.kept import AFTER_FAILURE_S, Keeper

DAY_S = 86_400.0


class Shelf:
    """A keeper, what it fetches, and its clock."""

    def __init__(self, folder: Path) -> None:
        self.at = 1_000_000.0
        self.fetched = 0
        self.says: Callable[[], Mapping[str, Any]] = lambda: {"g5": self.fetched}
        self.path = folder / "prices.json"
        self.keeper = self.restarted()

    def restarted(self) -> Keeper:
        def fetch() -> Mapping[str, Any]:
            self.fetched += 1
            return self.says()

        return Keeper(self.path, fetch, lasts_s=DAY_S, now=lambda: self.at, spread=lambda: 0.0)

    def later(self, seconds: float) -> Mapping[str, Any]:
        """What is there after a while, once a fetch that this begins has ended."""
        self.at += seconds
        self.keeper.get(5)
        self.keeper.settle(5)
        kept = self.keeper.get(5)
        assert kept is not None
        return kept.document


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_the_first_fetch_is_waited_for_and_outlives_a_restart_with_its_age(shelf: Shelf) -> None:
    first = shelf.keeper.get(5)
    assert first is not None
    assert (first.document, first.at) == ({"g5": 1}, shelf.at)
    shelf.keeper.settle(5)
    shelf.at += 3600
    assert shelf.restarted().get(5) == first
    assert shelf.fetched == 1


@pytest.mark.parametrize("error", [OutcomeUnknown("lost"), ValueError("no JSON"), KeyError("usd")])
def test_what_cannot_be_fetched_anew_stands_is_stale_and_is_asked_for_again_later(
    shelf: Shelf, error: Exception
) -> None:
    def broken() -> Mapping[str, Any]:
        raise error

    good = shelf.says
    shelf.later(0)
    shelf.says = broken
    assert shelf.later(DAY_S + 1) == {"g5": 1}
    kept = shelf.keeper.get(5)
    assert kept is not None
    assert shelf.keeper.is_stale(kept)
    assert shelf.later(1) == {"g5": 1}
    assert shelf.fetched == 2, "not asked again at once"
    shelf.says = good
    assert shelf.later(AFTER_FAILURE_S) == {"g5": 3}


def test_a_document_that_will_not_do_is_fetched_and_waited_for(shelf: Shelf) -> None:
    shelf.keeper.get(5)
    shelf.says = lambda: {"g5": 2, "p5": 2}
    kept = shelf.keeper.get(5, lambda document: "p5" in document)
    assert kept is not None
    assert kept.document == {"g5": 2, "p5": 2}


def test_a_file_that_cannot_be_read_is_no_cache(shelf: Shelf) -> None:
    shelf.path.write_text("{")
    kept = shelf.restarted().get(5)
    assert kept is not None
    assert kept.document == {"g5": 1}
