"""``hybrid offers``: what the clouds offer now."""

from __future__ import annotations

from typing import Annotated

import typer

from hybrid.cli.lazy import new_app
from hybrid.cli.offer_choice import Order, chosen
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of
from hybrid.domain.job_spec import Market, Profile

app = new_app()


@app.command()
@takes(session=session_of)
def offers(
    session: Session,
    pool: Annotated[str | None, typer.Option(help="Only of this burst pool.")] = None,
    gpu: Annotated[str | None, typer.Option(help="Only with this GPU, by any name: a100.")] = None,
    market: Annotated[Market | None, typer.Option(help="Only of this market.")] = None,
    sort: Annotated[
        Order, typer.Option(help="Cheapest first: the machine, one GPU, or the work done.")
    ] = Order.PRICE,
    profile: Annotated[
        Profile, typer.Option(help="What bounds the work, for guessing how fast it goes.")
    ] = Profile.BALANCED,
) -> None:
    """Show what could be had from the clouds, as last read, and what is ignored and why.

    Prices are of the machine, of one GPU, and of as much work as an A100 does in an hour.
    """
    from hybrid.cli import place_views

    found = chosen(session.client.offers(pool), gpu=gpu, market=market, order=sort, profile=profile)
    session.show(found, lambda: place_views.offers(found, profile))
