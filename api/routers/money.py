"""Budgets, usage and policy."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response

from api.deps import Admin, Product, Viewer
from api.etags import IfMatch, expected, tag
from api.problems import documented
from api.schemas.money import (
    BudgetList,
    PolicyCheck,
    PolicyText,
    ShownBudget,
    ShownDifference,
    ShownPolicy,
    TeamUsage,
    Usage,
)
from api.schemas.shown import instant, usd
from hybrid.ports.store import PolicyVersion

router = APIRouter()


@router.get("/budgets", tags=["money"])
def list_budgets(app: Product, who: Viewer) -> BudgetList:
    """Budgets with what is charged and held in their current period: those of the organisation
    and those that cover you."""
    return BudgetList(budgets=tuple(ShownBudget.of(each) for each in app.spending.budgets(who)))


@router.get("/usage", tags=["money"])
def get_usage(
    app: Product,
    who: Viewer,
    since: Annotated[datetime | None, Query(description="30 days ago if omitted")] = None,
) -> Usage:
    """What each of your teams has used and spent."""
    found = app.spending.usage(who, since=None if since is None else since.timestamp())
    return Usage(
        since=instant(found.since),
        until=instant(found.until),
        teams=tuple(
            TeamUsage(
                team=each.team,
                local_gpu_hours=round(each.local_gpu_s / 3600, 6),
                cloud_gpu_hours=round(each.cloud_gpu_s / 3600, 6),
                cloud_cost_usd=usd(each.charged_micros),
                held_usd=usd(each.held_micros),
                jobs=each.jobs,
            )
            for each in found.teams
        ),
        cloud_cost_usd=usd(sum(each.charged_micros for each in found.teams)),
        held_usd=usd(sum(each.held_micros for each in found.teams)),
    )


@router.get("/policy", tags=["policy"])
def get_policy(app: Product, who: Viewer, response: Response) -> ShownPolicy:  # noqa: ARG001
    """The policy in force, with its version as ETag."""
    stored = app.store.policy()
    tag(response, stored.version)
    return _shown(stored)


@router.put("/policy", tags=["policy"], responses=documented(412, 413, 415))
def put_policy(
    body: PolicyText, app: Product, who: Admin, response: Response, if_match: IfMatch = None
) -> ShownPolicy:
    """Put a policy in force, its budgets with it. With If-Match only over the version that was
    read, else 412."""
    over = expected(if_match)
    stored = app.policies.replace(
        body.document,
        over=app.store.policy().version if over is None else over,
        by=who.name,
        why=body.why,
    )
    tag(response, stored.version)
    return _shown(stored)


@router.post("/policy:check", tags=["policy"], responses=documented(413, 415))
def check_policy(body: PolicyText, app: Product, who: Viewer) -> PolicyCheck:  # noqa: ARG001
    """Whether a text is a policy, and what putting it in force would change. Nothing is kept."""
    version, changes = app.policies.check(body.document)
    return PolicyCheck(
        version=version.version,
        changes=tuple(
            ShownDifference(path=each.path, before=each.before, after=each.after)
            for each in changes
        ),
    )


def _shown(stored: PolicyVersion) -> ShownPolicy:
    return ShownPolicy(
        version=stored.version,
        document=stored.document,
        actor=stored.actor,
        at=instant(stored.at) if stored.version else None,
        why=stored.why,
    )
