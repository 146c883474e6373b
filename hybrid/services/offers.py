"""What the clouds last offered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from hybrid.domain.offer import Offer
from hybrid.ports.observation import Known, Observation, Unknown


class Ignoring(Protocol):
    """Whoever asks for offers and keeps what was ignored."""

    @property
    def ignored_offers(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """By provider, what is ignored, each with the reason."""
        ...


@dataclass(frozen=True, slots=True)
class OffersSeen:
    """Usable offers by id; ignored ones with the reason; providers that could not be read."""

    usable: tuple[Offer, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Offered:
    """Reads what the loop's last observation brought. A process that stands by has none."""

    observation: Callable[[], Observation | None]
    observer: Ignoring

    def seen(self) -> OffersSeen:
        """The offers of the last observation."""
        observation = self.observation()
        if observation is None:
            return OffersSeen(unknown=(("offers", "this server has not looked yet"),))
        usable: list[Offer] = []
        unknown: list[tuple[str, str]] = []
        for name, source in sorted(observation.offers.items()):
            match source:
                case Known(value=found):
                    usable += found
                case Unknown(cause=cause):
                    unknown.append((name, cause))
        ignored = self.observer.ignored_offers
        return OffersSeen(
            usable=tuple(sorted(usable, key=lambda offer: offer.id)),
            ignored=tuple(each for name in sorted(ignored) for each in ignored[name]),
            unknown=tuple(unknown),
        )
