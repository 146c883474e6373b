"""A life about money: budgets of every scope and period, around the hours in which months end and
clocks are changed, with bills that say something else and a second writer of the same budgets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

from hybrid.domain.bill import Bill, BillLine, LineKind
from hybrid.domain.event import EventKind
from hybrid.domain.ids import ClaimId, JobId
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.ledger.replay import by_claim
from hybrid.ports.capacity import Machine
from hybrid.ports.store import Bundle, Post, Store
from hybrid.services.bills import Bills
from tests.doubles.life import Life


def at(text: str) -> float:
    """An instant of UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


TURNS = {
    "month ends in Berlin": at("2026-10-31T22:35"),
    "year ends in Berlin": at("2026-12-31T22:35"),
    "month ends in New York": at("2026-12-01T04:35"),
    "clocks go forward in Berlin": at("2026-03-29T00:35"),
    "clocks go back in Berlin": at("2026-10-25T00:35"),
    "clocks go forward in New York": at("2026-03-08T06:35"),
    "clocks go back in New York": at("2026-11-01T05:35"),
    "a week ends in UTC": at("2026-11-15T23:35"),
}
"""Half an hour before something happens to calendars."""

POLICY = """
budgets:
  - {{name: all, limit_usd: {all_usd}, period: month, timezone: Europe/Berlin}}
  - {{name: today, limit_usd: {day_usd}, period: day, timezone: America/New_York}}
  - {{name: weekly, limit_usd: {all_usd}, period: week}}
  - {{name: blues, limit_usd: {blue_usd}, scope: team, subject: blue, period: rolling,
      rolling_days: 1}}
  - {{name: ann, limit_usd: {day_usd}, scope: user, subject: ann, period: day,
      timezone: Europe/Berlin}}
  - {{name: third, limit_usd: 0.6, scope: job, subject: j3, period: lifetime,
      thresholds: [{{at: 0.5, action: no_new_claims}}, {{at: 0.9, action: drain}}]}}
priority_classes:
  normal: {{value_per_hour: {value}}}
preemption: {{min_run: 2m}}
return_home: {{margin_usd: 0.01, min_stay: 1m}}
"""

OTHER_MICROS = 300_000
"""What the second writer holds at a time."""


@dataclass(slots=True)
class MoneyLife(Life):
    """See the module. ``other`` is a second connection to the same rows."""

    other: Store | None = None
    others: dict[str, LedgerEntry] = field(default_factory=dict)
    _written: int = 0

    def policy(self) -> str:
        """Budgets of all scopes and periods."""
        return POLICY.format(
            all_usd=self.all_usd,
            day_usd=self.all_usd / 2,
            blue_usd=self.blue_usd,
            value=self.value,
        )

    # --- a second writer ------------------------------------------------------------------------

    def write_at_once(self, count: int) -> None:
        """Others hold money under the same budgets while the loop ticks."""
        store = self.other or self.store
        now = self.now
        holds = [self._hold(now) for _ in range(count)]

        def write(entry: LedgerEntry) -> bool:
            done = store.commit([Bundle(id=entry.id, changes=(Post(entry),))], at=now)
            return bool(done.applied)

        with ThreadPoolExecutor(max_workers=2) as threads:
            written = [threads.submit(write, entry) for entry in holds]
            self.tick()
            for entry, done in zip(holds, written, strict=True):
                if done.result():
                    self.others[entry.id] = entry

    def give_back(self) -> None:
        """They release what they hold."""
        changes = tuple(
            Bundle(id=f"{id_}:back", changes=(Post(self._release(entry)),))
            for id_, entry in self.others.items()
        )
        if changes:
            assert not self.store.commit(changes, at=self.now).dropped
        self.others.clear()

    def _hold(self, now: float) -> LedgerEntry:
        self._written += 1
        name = f"other-{self._written}"
        return LedgerEntry(
            id=f"hold:{name}",
            kind=EntryKind.HOLD,
            claim_id=ClaimId(name),
            amount_micros=OTHER_MICROS,
            at=now,
            team=("red", "blue")[self._written % 2],
            user="bob",
            job_id=JobId("elsewhere"),
        )

    def _release(self, entry: LedgerEntry) -> LedgerEntry:
        return LedgerEntry(
            id=f"release:{entry.claim_id}",
            kind=EntryKind.RELEASE,
            claim_id=entry.claim_id,
            amount_micros=entry.amount_micros,
            at=self.now,
            team=entry.team,
            user=entry.user,
            job_id=entry.job_id,
        )

    # --- bills ----------------------------------------------------------------------------------

    def import_bill(self, percent: int) -> None:
        """The cloud's bill so far, by its own clock, ``percent`` of what we expect it to be. Twice
        is as once."""
        bills = Bills(self.store, self.world.clock, "sim")
        bill = self._bill(percent)
        bills.settle(bill, provider="aws", by="ann")
        before = self.store.entries()
        assert bills.settle(bill, provider="aws", by="ann").settled == 0
        assert self.store.entries() == before

    def _bill(self, percent: int) -> Bill:
        lines = [
            line
            for machine in self.cloud.machines.values()
            if machine.id not in self.strays
            for line in self._lines(machine, percent)
        ]
        return Bill(lines=tuple(lines), horizon_at=self.now)

    def _lines(self, machine: Machine, percent: int) -> Iterator[BillLine]:
        """A machine's line in each month (of UTC) that it lived in; the last has what is left."""
        until = machine.ended_at if machine.ended_at is not None else self.now
        seconds = max(60, math.ceil(until - machine.launched_at))
        price = int(self.cloud.requests[machine.id]["price"])
        left = -(-price * seconds // 3600) * percent // 100
        length = until - machine.launched_at
        for start, end, name in _months(machine.launched_at, until):
            last = until < end or length <= 0
            lived = min(until, end) - max(machine.launched_at, start)
            part = left if last else int(left * lived / length)
            left -= part
            yield BillLine(
                claim_id=machine.claim_id,
                installation="sim",
                kind=LineKind.MACHINE,
                micros=part,
                began_at=max(machine.launched_at, start),
                ended_at=min(until, end),
                period=name,
                period_start_at=start,
                period_end_at=end,
            )
            if last:
                return

    def billed_otherwise(self) -> set[ClaimId]:
        """Those that a bill has settled."""
        entries = self.store.entries()
        return {entry.claim_id for entry in entries if entry.kind is EntryKind.SETTLEMENT}

    def settle_up(self) -> None:
        """The last bill is the true one."""
        self.give_back()
        self.import_bill(100)

    # --- what must never be ---------------------------------------------------------------------

    def broken(self) -> list[str]:
        """Everything that must never be and is."""
        return [
            *Life.broken(self),
            *self._lost_holds(),
            *self._charged_twice(),
            *self._told_twice(),
        ]

    def _lost_holds(self) -> Iterator[str]:
        """What the ledger holds for a claim is what the claim says; for one that is over nothing,
        and for others what they hold."""
        money = by_claim(self.store.entries())
        for claim in self.store.claims():
            held = money[claim.id].held_micros if claim.id in money else 0
            if held != claim.held_micros or (claim.state.over and held):
                yield f"claim {claim.id} ({claim.state}) says {claim.held_micros}, held is {held}"
        theirs = {entry.claim_id: entry.amount_micros for entry in self.others.values()}
        for claim_id, sums in money.items():
            if claim_id.startswith("other-") and sums.held_micros != theirs.get(claim_id, 0):
                yield f"{claim_id} holds {sums.held_micros}, not {theirs.get(claim_id, 0)}"

    def _charged_twice(self) -> Iterator[str]:
        charges = Counter(
            entry.claim_id for entry in self.store.entries() if entry.kind is EntryKind.CHARGE
        )
        for claim_id, count in charges.items():
            if count > 1:
                yield f"claim {claim_id} was charged {count} times"

    def _told_twice(self) -> Iterator[str]:
        """No threshold of the one lifetime budget is told of twice."""
        told = Counter(
            event.words.split(":")[0]
            for _, event in self.store.events(limit=100_000)
            if event.kind is EventKind.BUDGET
            and event.subject == "budget:third"
            and event.what.startswith("threshold")
        )
        for words, count in told.items():
            if count > 1:
                yield f"{words} was told {count} times"


def _months(since: float, until: float) -> Iterator[tuple[float, float, str]]:
    day = datetime.fromtimestamp(since, UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    while day.timestamp() <= until:
        following = day.replace(year=day.year + day.month // 12, month=day.month % 12 + 1)
        yield day.timestamp(), following.timestamp(), day.strftime("%Y-%m")
        day = following
