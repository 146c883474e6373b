"""How numbers and instants read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from hybrid.cli.words import ago, dollars, plain, plural, since, size, span

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0s"), (0.25, "250ms"), (59.4, "59s"), (59.6, "1m00s"), (200, "3m20s"),
        (3600, "1h00m"), (3661, "1h01m"), (90_061, "1d01h"), (-5, "-5s"),
    ],
)  # fmt: skip
def test_a_span_has_two_units_at_most(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("usd", "words"),
    [
        ("0", "$0.00"), ("1.25", "$1.25"), ("1234.5", "$1,234.50"), ("0.004", "<$0.01"),
        ("-0.5", "-$0.50"), ("0.005001", "$0.01"),
    ],
)  # fmt: skip
def test_money_is_to_the_cent(usd: str, words: str) -> None:
    assert dollars(Decimal(usd)) == words


def test_money_that_is_not_known_is_a_dash() -> None:
    assert dollars(None) == "–"


def test_instants_are_seen_from_now() -> None:
    assert ago(NOW - timedelta(minutes=3), NOW) == "3m00s ago"
    assert ago(NOW + timedelta(hours=2), NOW) == "in 2h00m"
    assert ago(NOW, NOW) == "now"
    assert ago(None, NOW) == "–"


def test_the_time_between_two_instants() -> None:
    assert since(NOW, NOW + timedelta(seconds=5)) == "5s"
    assert since(NOW, None) == "–"


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**50 * 3, "3.0 PiB")]
)
def test_sizes_have_units(count: int, words: str) -> None:
    assert size(count) == words


def test_text_of_others_cannot_drive_the_terminal() -> None:
    assert plain("a\x1b[31mb\r\nc\x07") == "a·[31mb·\nc·"


def test_one_is_not_many() -> None:
    assert plural(1, "run") == "1 run"
    assert plural(2, "run") == "2 runs"
