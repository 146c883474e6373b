"""Nodes, pools, offers and claims."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query, Response, status

from api.deps import IdPath, Operator, Product, Viewer
from api.etags import IfMatch, expected, tag
from api.problems import documented
from api.schemas.machines import (
    ClaimList,
    CordonRequest,
    DrainRequest,
    IgnoredOffer,
    NodeList,
    OfferList,
    PoolList,
    ShownClaim,
    ShownDrain,
    ShownNode,
    ShownOffer,
    ShownPool,
)
from hybrid.domain.claim import ClaimState
from hybrid.domain.ids import ClaimId, NodeId, PoolName
from hybrid.domain.job_spec import Name
from hybrid.domain.pool_spec import PoolSpec

router = APIRouter()

_POOL_EXAMPLES = {
    "local": {"value": {"kind": "local", "name": "rack"}},
    "burst": {
        "value": {
            "kind": "burst",
            "name": "spot-a100",
            "provider": "aws",
            "region": "us-east-1",
            "zones": [{"name": "us-east-1a"}],
            "template": {"id": "lt-0a1b2c3d4e5f60718"},
            "machine_types": ["p4d.24xlarge"],
            "markets": ["spot"],
            "ceilings": {"machines": 4, "usd_per_hour": "60"},
        }
    },
}


@router.get("/nodes", tags=["nodes"])
def list_nodes(app: Product, who: Viewer) -> NodeList:  # noqa: ARG001
    """All nodes that are not gone, with their devices and who holds them."""
    return NodeList(nodes=tuple(ShownNode.of(use) for use in app.nodes.listing()))


@router.get("/nodes/{node_id}", tags=["nodes"], responses=documented(404))
def get_node(node_id: IdPath, app: Product, who: Viewer) -> ShownNode:  # noqa: ARG001
    """One node, gone or not."""
    return ShownNode.of(app.nodes.get(NodeId(node_id)))


@router.post("/nodes/{node_id}:cordon", tags=["nodes"], responses=documented(404, 409, 415, 503))
def cordon_node(
    node_id: IdPath, app: Product, who: Operator, body: CordonRequest | None = None
) -> ShownNode:
    """Let nothing else start on a node; what runs there goes on."""
    why = "" if body is None else body.why
    return ShownNode.of(app.nodes.cordon(NodeId(node_id), by=who.name, why=why))


@router.post("/nodes/{node_id}:uncordon", tags=["nodes"], responses=documented(404, 409, 503))
def uncordon_node(node_id: IdPath, app: Product, who: Operator) -> ShownNode:
    """Let a node take new runs again."""
    return ShownNode.of(app.nodes.uncordon(NodeId(node_id), by=who.name))


@router.get("/drains/{target}", tags=["nodes"], responses=documented(404, 409))
def get_drain(target: IdPath, app: Product, who: Viewer) -> ShownDrain:  # noqa: ARG001
    """How far a node, or an owned pool, has been emptied."""
    return ShownDrain.of(app.draining.status(target))


@router.put("/drains/{target}", tags=["nodes"], responses=documented(404, 409, 415, 503))
def put_drain(
    target: IdPath, app: Product, who: Operator, body: DrainRequest | None = None
) -> ShownDrain:
    """Empty a node, or an owned pool, for maintenance: nothing else starts there. Runs that end in
    time are let be; those that save their work go on elsewhere at once; others go on as long as the
    time allows."""
    wanted = body or DrainRequest()
    return ShownDrain.of(
        app.draining.drain(target, within_s=wanted.within_s, by=who.name, why=wanted.why)
    )


@router.delete("/drains/{target}", tags=["nodes"], responses=documented(404, 409, 503))
def delete_drain(target: IdPath, app: Product, who: Operator) -> ShownDrain:
    """Let a node, or a pool's nodes, take new runs again."""
    return ShownDrain.of(app.draining.undrain(target, by=who.name))


@router.get("/pools", tags=["pools"])
def list_pools(app: Product, who: Viewer) -> PoolList:  # noqa: ARG001
    """All pools by name, with what is in them."""
    return PoolList(pools=tuple(ShownPool.of(use) for use in app.pools.listing()))


@router.get("/pools/{name}", tags=["pools"], responses=documented(404))
def get_pool(name: Name, app: Product, who: Viewer, response: Response) -> ShownPool:  # noqa: ARG001
    """One pool, with its version as ETag."""
    use = app.pools.get(PoolName(name))
    tag(response, use.pool.version)
    return ShownPool.of(use)


@router.put(
    "/pools/{name}",
    tags=["pools"],
    responses={
        201: {"model": ShownPool, "description": "The pool is new"},
        **documented(409, 412, 413, 415, 503),
    },
)
def put_pool(
    name: Name,
    spec: Annotated[PoolSpec, Body(openapi_examples=_POOL_EXAMPLES)],
    app: Product,
    who: Operator,
    response: Response,
    if_match: IfMatch = None,
) -> ShownPool:
    """Make a pool be as the document says. With If-Match only over the version that was read
    (`"0"`: only if there is none), else 412."""
    use, new = app.pools.apply(PoolName(name), spec, over=expected(if_match), by=who.name)
    if new:
        response.status_code = status.HTTP_201_CREATED
    tag(response, use.pool.version)
    return ShownPool.of(use)


@router.delete(
    "/pools/{name}",
    tags=["pools"],
    status_code=status.HTTP_204_NO_CONTENT,
    responses=documented(404, 409, 412, 503),
)
def delete_pool(name: Name, app: Product, who: Operator, if_match: IfMatch = None) -> None:
    """Remove a pool; 409 while nodes, machines or runs are in it."""
    app.pools.remove(PoolName(name), over=expected(if_match), by=who.name)


@router.get("/offers", tags=["pools"])
def list_offers(
    app: Product,
    who: Viewer,  # noqa: ARG001
    pool: Annotated[Name | None, Query()] = None,
) -> OfferList:
    """What could be had from the clouds, as last read, and what is ignored and why."""
    seen = app.offers()
    return OfferList(
        offers=tuple(
            ShownOffer.of(each, seen.closed.get(each.id))
            for each in seen.usable
            if pool in (None, each.pool)
        ),
        ignored=tuple(IgnoredOffer(what=what, why=why) for what, why in seen.ignored),
        unknown=tuple(f"{name}: {cause}" for name, cause in seen.unknown),
    )


@router.get("/claims", tags=["claims"])
def list_claims(
    app: Product,
    who: Viewer,
    state: Annotated[list[ClaimState] | None, Query(description="Any of these")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> ClaimList:
    """Claims of your teams, newest first, over or not."""
    found = app.claims.listing(who, states=tuple(state or ()), limit=limit)
    return ClaimList(claims=tuple(ShownClaim.of(each) for each in found))


@router.get("/claims/{claim_id}", tags=["claims"], responses=documented(404))
def get_claim(claim_id: IdPath, app: Product, who: Viewer) -> ShownClaim:
    """One claim, over or not."""
    return ShownClaim.of(app.claims.get(who, ClaimId(claim_id)))
