"""What one observation of the outside brought. A source that failed is unknown, never empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hybrid.domain.offer import Offer
from hybrid.ports.capacity import Leftover, Machine, Notice
from hybrid.ports.engine import NodeReport, RankReport

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """What a source said, and when it was asked: facts older than a row must not judge it."""

    value: T
    asked_at: float


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why a source could not be read."""

    cause: str
    since: float


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine's nodes and the ranks they know of."""

    nodes: tuple[NodeReport, ...]
    ranks: tuple[RankReport, ...]


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """One cloud's machines of ours and its notices."""

    machines: tuple[Machine, ...]
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """All sources, each known or unknown, by engine or provider name.

    ``leftovers`` holds what was listed just now: each listing is acted on once.

    ``heard_since`` is the earliest instant from which silence of a node counts: the start of this
    server, or of its being able to hear, if that was later than the node's last heartbeat.
    """

    at: float
    heard_since: float
    engines: Mapping[str, Known[EngineFacts] | Unknown] = field(default_factory=dict)
    machines: Mapping[str, Known[MachineFacts] | Unknown] = field(default_factory=dict)
    offers: Mapping[str, Known[tuple[Offer, ...]] | Unknown] = field(default_factory=dict)
    leftovers: Mapping[str, Known[tuple[Leftover, ...]] | Unknown] = field(default_factory=dict)
