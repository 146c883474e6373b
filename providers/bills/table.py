"""CSV files row by row, with the place of what is wrong."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from hybrid.domain.bill import Bill, BillLine, summed
from hybrid.domain.money import to_micros

CLAIM_TAG, INSTALLATION_TAG = "hybrid_claim", "hybrid_installation"
_MOST_USD = Decimal(10) ** 9
_MOST_UNSUMMED = 50_000
"""Lines kept before they are summed: most are parts of few sums."""


class BillError(Exception):
    """The file is no bill that can be read: where, what, and what to do. ``row`` counts from 1,
    the heading included."""

    def __init__(self, row: int, column: str, message: str, hint: str = ""):
        self.row, self.column, self.message, self.hint = row, column, message, hint
        where = f"row {row}" + (f", column {column}" if column else "")
        super().__init__(f"{where}: {message}" + (f" ({hint})" if hint else ""))


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its number, and its cells by the plain names of their columns."""

    number: int
    cells: Mapping[str, str]

    def text(self, *names: str) -> str:
        """The first of these columns that has something in it."""
        return next((self.cells[n] for n in names if self.cells.get(n)), "")

    def usd_micros(self, *names: str) -> int:
        """An amount of US dollars; BillError."""
        name = next((n for n in names if self.cells.get(n)), names[-1])
        try:
            amount = Decimal(self.cells.get(name) or "0")
        except InvalidOperation as problem:
            said = f"{self.cells[name]!r} is not an amount"
            raise BillError(self.number, name, said, "write a number such as 0.0412") from problem
        if not amount.is_finite() or abs(amount) > _MOST_USD:
            raise BillError(self.number, name, f"{self.cells[name]!r} is not an amount of money")
        return to_micros(amount)

    def instant(self, name: str) -> float:
        """An instant, UTC where it names no zone; BillError."""
        text = self.cells.get(name, "").strip().removesuffix(" UTC")
        try:
            found = datetime.fromisoformat(text)
        except ValueError as problem:
            said = f"{text!r} is not an instant"
            raise BillError(self.number, name, said, "such as 2026-11-01T00:00:00Z") from problem
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()

    def mapping(self, name: str) -> Mapping[str, str]:
        """A cell that holds JSON: an object, or a list of ``{"key": …, "value": …}``."""
        text = self.cells.get(name, "").strip()
        if not text:
            return {}
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise BillError(
                self.number, name, "its tags are not JSON", "export it anew"
            ) from problem
        return {plain(key): str(value) for key, value in _pairs(found)}

    def dollars_only(self, name: str) -> None:
        """Refuse what is billed in another currency; BillError."""
        currency = self.cells.get(name, "")
        if currency and currency != "USD":
            said = f"billed in {currency}"
            raise BillError(self.number, name, said, "only bills in USD are compared")


def _pairs(found: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(found, dict):
        yield from found.items()
    elif isinstance(found, list):
        for each in found:
            if isinstance(each, dict) and "key" in each:
                yield str(each["key"]), each.get("value", "")


def plain(name: str) -> str:
    """A column's or tag's name with everything but letters and digits as ``_``, and without the
    prefix that a cloud gives to tags of users."""
    words = re.sub(r"[^a-z0-9]+", "_", name.strip().lower().lstrip("\ufeff")).strip("_")
    return re.sub(
        r"^(?:resource_?tags?_|labels?_|system_labels?_)?(?:user_)?(?=hybrid_)", "", words
    )


def rows(lines: Iterable[str], needed: Sequence[str], what: str) -> Iterator[Row]:
    """The rows of a CSV file that must have the ``needed`` columns; BillError."""
    reader = csv.reader(lines, strict=True)
    number = 0
    heading: list[str] = []
    try:
        for number, cells in enumerate(reader, start=1):
            if number == 1:
                heading = [plain(cell) for cell in cells]
                missing = [name for name in needed if name not in heading]
                if missing:
                    hint = f"export {what} with them"
                    raise BillError(1, "", f"no column {', '.join(missing)}", hint)
                continue
            if not cells:
                continue
            if len(cells) != len(heading):
                said = f"{len(cells)} cells under {len(heading)} columns"
                raise BillError(number, "", said, "is the file whole?")
            yield Row(number, dict(zip(heading, cells, strict=True)))
    except csv.Error as problem:
        raise BillError(number + 1, "", f"not CSV: {problem}", "export it as CSV") from problem
    if number == 0:
        raise BillError(1, "", "the file is empty", f"export {what} as CSV")


def bill_of(found: Iterable[Row], line: Callable[[Row], BillLine], *, currency: str) -> Bill:
    """The bill in these rows, each read by ``line``; raises BillError, also where the column
    ``currency`` names another than dollars."""
    lines: list[BillLine] = []
    horizon_at = 0.0
    for row in found:
        row.dollars_only(currency)
        lines.append(line(row))
        horizon_at = max(horizon_at, lines[-1].ended_at)
        if len(lines) > _MOST_UNSUMMED:
            lines = list(summed(lines))
    return Bill(lines=summed(lines), horizon_at=horizon_at)
