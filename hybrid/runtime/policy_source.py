"""The policy in force, parsed once per version."""

from __future__ import annotations

from dataclasses import dataclass

from hybrid.ports.store import Store
from policies.document import PolicyDocument
from policies.loading import parse_policy


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """A parsed policy and its version."""

    document: PolicyDocument
    version: int


class PolicySource:
    """Reads the stored document again only when its version has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._current = PolicyInForce(PolicyDocument(), 0)

    def current(self, version: int) -> PolicyInForce:
        """The policy of that version. Stored documents were valid when they were stored."""
        if version != self._current.version:
            stored = self._store.policy()
            self._current = PolicyInForce(parse_policy(stored.document), stored.version)
        return self._current
