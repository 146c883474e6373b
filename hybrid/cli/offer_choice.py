"""Which offers ``hybrid offers`` shows, in which order, and what they cost for the work they do."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum

from hybrid.cli.exits import CliError, Exit
from hybrid.client import answers as said
from hybrid.domain.job_spec import Profile
from hybrid.estimation.speed import guess_speed
from hybrid.hardware import UnknownGpuModel, resolve


class Order(StrEnum):
    """What is cheapest first: the machine, a GPU of it, or the work that it does."""

    PRICE = "price"
    GPU = "gpu"
    SPEED = "speed"


def chosen(
    found: said.OfferList, *, gpu: str | None, market: str | None, order: Order, profile: Profile
) -> said.OfferList:
    """Offers of a GPU (by any name it goes by) and market, cheapest first.

    Raises CliError for a GPU that nobody knows.
    """
    try:
        wanted = None if gpu is None else resolve(gpu)
    except UnknownGpuModel as problem:
        raise CliError(Exit.USAGE, f"--gpu: {problem}") from problem
    fitting = [
        offer
        for offer in found.offers
        if market in (None, offer.market)
        and (wanted is None or (offer.gpus and wanted.intersection(models(offer))))
    ]

    def key(offer: said.Offer) -> tuple[bool, Decimal, str]:
        price = {
            Order.PRICE: offer.price_usd_per_hour,
            Order.GPU: per_gpu(offer),
            Order.SPEED: per_speed(offer, profile),
        }[order]
        return (price is None, price or Decimal(0), offer.id)

    return found.model_copy(update={"offers": tuple(sorted(fitting, key=key))})


def models(offer: said.Offer) -> tuple[str, ...]:
    """The model of each GPU."""
    return offer.gpu_models or (offer.gpu_model,) * offer.gpus


def per_gpu(offer: said.Offer) -> Decimal | None:
    """USD for an hour of one GPU; None for a machine without any."""
    return offer.price_usd_per_hour / offer.gpus if offer.gpus else None


def per_speed(offer: said.Offer, profile: Profile) -> Decimal | None:
    """USD for an hour of work as the reference GPU (A100 SXM4 80 GB) does it, on all GPUs of the
    machine, guessed for a profile; None where nothing can be guessed."""
    try:
        speed = sum(guess_speed(profile, model) for model in models(offer))
    except UnknownGpuModel:
        return None
    return offer.price_usd_per_hour / Decimal(str(speed)) if speed > 0 else None
