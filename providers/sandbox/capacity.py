"""What the cloud still has: machines per zone, type and market, and vCPU quotas per market."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from providers.sandbox.catalogue import quota_group
from providers.sandbox.config import CapacityRule, Market, QuotaRule


@dataclass(frozen=True, slots=True)
class Stock:
    """One thing that can run out."""

    zone: str
    machine_type: str
    market: Market


class CapacityBook:
    """How many machines may run at once; unlimited where no rule speaks.

    The most specific rule wins (zone, then type, then market), and among equals the latest.
    """

    def __init__(self, rules: Iterable[CapacityRule] = ()) -> None:
        self._rules: dict[tuple[str | None, str | None, Market | None], int] = {}
        for rule in rules:
            self.set(rule)

    def set(self, rule: CapacityRule) -> None:
        """From now on this rule holds for exactly the scope that it names."""
        self._rules.pop((rule.zone, rule.machine_type, rule.market), None)
        self._rules[(rule.zone, rule.machine_type, rule.market)] = rule.machines

    def clear(self, zone: str | None, machine_type: str | None, market: Market | None) -> None:
        """Forget the rule of exactly this scope."""
        self._rules.pop((zone, machine_type, market), None)

    def rules(self) -> list[CapacityRule]:
        return [
            CapacityRule(zone=zone, machine_type=machine_type, market=market, machines=machines)
            for (zone, machine_type, market), machines in self._rules.items()
        ]

    def limit(self, stock: Stock) -> int | None:
        """The machines that may run at once, or None for no limit."""
        best: tuple[tuple[bool, bool, bool], int] | None = None
        for (zone, machine_type, market), machines in self._rules.items():
            if zone not in (None, stock.zone) or machine_type not in (None, stock.machine_type):
                continue
            if market not in (None, stock.market):
                continue
            weight = (zone is not None, machine_type is not None, market is not None)
            if best is None or weight >= best[0]:
                best = (weight, machines)
        return None if best is None else best[1]

    def free(self, stock: Stock, held: Counter[Stock]) -> int | None:
        """How many more could start now, or None for no limit."""
        limit = self.limit(stock)
        return None if limit is None else max(limit - held[stock], 0)


class QuotaBook:
    """vCPU quotas by EC2's quota group and market; unlimited where none is set."""

    def __init__(self, rules: Iterable[QuotaRule] = ()) -> None:
        self._vcpus: dict[tuple[str, Market], int] = {}
        for rule in rules:
            self.set(rule)

    def set(self, rule: QuotaRule) -> None:
        self._vcpus[(rule.group, rule.market)] = rule.vcpus

    def rules(self) -> list[QuotaRule]:
        return [
            QuotaRule(group=group, market=market, vcpus=vcpus)
            for (group, market), vcpus in self._vcpus.items()
        ]

    def left(
        self, machine_type: str, market: Market, used: Counter[tuple[str, Market]]
    ) -> int | None:
        """vCPUs that may still be started, or None for no limit."""
        key = (quota_group(machine_type), market)
        limit = self._vcpus.get(key)
        return None if limit is None else max(limit - used[key], 0)
