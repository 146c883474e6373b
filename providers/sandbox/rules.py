"""Scripted misfortune: which call fails, how, and how often."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from providers.sandbox.config import FaultRule

# What EC2 answers with, where it is not the 400 of a refused request.
STATUS_BY_CODE: Final = MappingProxyType(
    {
        "InsufficientInstanceCapacity": 500,
        "InsufficientHostCapacity": 500,
        "InsufficientReservedInstanceCapacity": 500,
        "InternalError": 500,
        "InternalFailure": 500,
        "RequestLimitExceeded": 503,
        "ServiceUnavailable": 503,
        "Unavailable": 503,
        "AuthFailure": 401,
        "UnauthorizedOperation": 403,
        "SlowDown": 503,
    }
)


def http_status(code: str) -> int:
    """The HTTP status that EC2 sends with an error code."""
    return STATUS_BY_CODE.get(code, 400)


@dataclass(slots=True)
class ArmedFault:
    """A rule and what became of it. ``left`` None: until removed."""

    fault_id: str
    rule: FaultRule
    left: int | None
    hits: int = 0


class FaultBook:
    """The armed rules, in the order they were armed; the first that matches strikes."""

    def __init__(self, rules: Iterable[FaultRule] = (), *, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._random = random.Random(seed)  # noqa: S311 - repeatable misfortune, not a secret
        self._armed: list[ArmedFault] = []
        self._count = 0
        for rule in rules:
            self.arm(rule)

    def arm(self, rule: FaultRule) -> str:
        """Arm a rule and return its id."""
        with self._lock:
            self._count += 1
            fault = ArmedFault(f"fault-{self._count}", rule, rule.times)
            self._armed.append(fault)
            return fault.fault_id

    def disarm(self, fault_id: str | None = None) -> int:
        """Remove one rule, or all of them; returns how many were removed."""
        with self._lock:
            before = len(self._armed)
            self._armed = [fault for fault in self._armed if fault_id not in (None, fault.fault_id)]
            return before - len(self._armed)

    def armed(self) -> list[ArmedFault]:
        """Every rule that was armed and not removed, spent ones included."""
        with self._lock:
            return [
                ArmedFault(fault.fault_id, fault.rule, fault.left, fault.hits)
                for fault in self._armed
            ]

    def strike(self, action: str, parameters: Mapping[str, str]) -> FaultRule | None:
        """The misfortune of this call, if any; it is used up by asking."""
        with self._lock:
            for fault in self._armed:
                rule = fault.rule
                if fault.left == 0 or rule.action not in ("*", action):
                    continue
                if any(parameters.get(name) != value for name, value in rule.match.items()):
                    continue
                if rule.probability < 1 and self._random.random() >= rule.probability:
                    continue
                fault.hits += 1
                if fault.left is not None:
                    fault.left -= 1
                return rule
        return None
