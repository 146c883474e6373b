"""Balances as the ledger itself says, to verify those kept for speed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hybrid.domain.budget import Balance, Budget
from hybrid.domain.ids import BudgetName, ClaimId
from hybrid.domain.ledger_entry import LedgerEntry
from hybrid.ledger.caps import after, charged_change_micros, held_change_micros
from hybrid.ledger.periods import period_start_at


def replay(
    budgets: Iterable[Budget], entries: Iterable[LedgerEntry], *, now: float
) -> tuple[Balance, ...]:
    """Every budget with what the whole ledger comes to in the period of ``now``."""
    balances = [
        Balance(budget=budget, period_start_at=period_start_at(budget, now)) for budget in budgets
    ]
    for entry in entries:
        balances = [after(balance, entry) for balance in balances]
    return tuple(balances)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A kept balance that is not what the ledger says."""

    budget: BudgetName
    kept_charged_micros: int
    true_charged_micros: int
    kept_held_micros: int
    true_held_micros: int

    def __str__(self) -> str:
        return (
            f"budget {self.budget}: kept charged {self.kept_charged_micros} and held"
            f" {self.kept_held_micros} micro-dollars, the ledger says {self.true_charged_micros}"
            f" and {self.true_held_micros}"
        )


def mismatches(kept: Sequence[Balance], true: Sequence[Balance]) -> tuple[Mismatch, ...]:
    """Where two lists of balances of the same instant differ, by name."""
    by_name = {balance.name: balance for balance in true}
    nothing = dict.fromkeys(by_name, (0, 0))
    nothing |= {balance.name: (balance.charged_micros, balance.held_micros) for balance in kept}
    found = []
    for name in sorted(nothing):
        have = nothing[name]
        said = by_name.get(name)
        want = (said.charged_micros, said.held_micros) if said else (0, 0)
        if have != want:
            found.append(
                Mismatch(
                    budget=name,
                    kept_charged_micros=have[0],
                    true_charged_micros=want[0],
                    kept_held_micros=have[1],
                    true_held_micros=want[1],
                )
            )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class ClaimMoney:
    """What the ledger says of one claim: money still held for it, and what it has cost."""

    held_micros: int = 0
    charged_micros: int = 0


def by_claim(entries: Iterable[LedgerEntry]) -> dict[ClaimId, ClaimMoney]:
    """What is held and charged for every claim."""
    money: dict[ClaimId, ClaimMoney] = {}
    for entry in entries:
        was = money.get(entry.claim_id, ClaimMoney())
        money[entry.claim_id] = ClaimMoney(
            was.held_micros + held_change_micros(entry),
            was.charged_micros + charged_change_micros(entry),
        )
    return money
