"""Budgets, usage and policy."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from api.deps import Admin, IdPath, Operator, Product, Viewer
from api.etags import IfMatch, expected, tag
from api.problems import documented
from api.schemas.money import BudgetList, ShownBudget, TeamUsage, Usage
from api.schemas.policy import (
    PolicyCheck,
    PolicyHistory,
    PolicyRollback,
    PolicyText,
    PolicyTrial,
    ShownPolicy,
)
from api.schemas.shown import instant, usd
from hybrid.ports.store import PolicyVersion
from hybrid.services.policy import HISTORY_PAGE

router = APIRouter()


@router.get("/budgets", tags=["money"])
def list_budgets(app: Product, who: Viewer) -> BudgetList:
    """Budgets with what is charged and held in their current period, how fast they go, and who and
    what uses them: those of the organisation and those that cover you."""
    return BudgetList(budgets=tuple(ShownBudget.of(each) for each in app.budgets.listing(who)))


@router.get("/budgets/{name}", tags=["money"], responses=documented(404))
def get_budget(app: Product, who: Viewer, name: IdPath) -> ShownBudget:
    """One budget."""
    return ShownBudget.of(app.budgets.one(who, name))


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
                local_cost_usd=usd(each.local_micros),
                cloud_cost_usd=usd(each.charged_micros),
                total_cost_usd=usd(each.local_micros + each.charged_micros),
                saved_usd=usd(each.saved_micros),
                machines_weighed=each.weighed,
                machines_without_home=each.unweighed,
                held_usd=usd(each.held_micros),
                jobs=each.jobs,
            )
            for each in found.teams
        ),
        local_cost_usd=usd(sum(each.local_micros for each in found.teams)),
        cloud_cost_usd=usd(sum(each.charged_micros for each in found.teams)),
        total_cost_usd=usd(sum(each.local_micros + each.charged_micros for each in found.teams)),
        saved_usd=usd(sum(each.saved_micros for each in found.teams)),
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
    return PolicyCheck.of(app.trials.check(body.document))


@router.post("/policy:diff", tags=["policy"], responses=documented(413, 415))
def diff_policy(body: PolicyText, app: Product, who: Operator) -> PolicyTrial:
    """What a policy would decide for the jobs that are there now, beside what is decided: each
    job's decision before and after, in dollars and minutes. Nothing is kept or acted upon."""
    return PolicyTrial.of(app.trials.trial(who, body.document))


@router.get("/policy/versions", tags=["policy"])
def list_policy_versions(
    app: Product,
    who: Viewer,  # noqa: ARG001
    limit: Annotated[int, Query(ge=1, le=HISTORY_PAGE)] = 50,
    before: Annotated[
        int | None, Query(ge=1, le=2**31 - 1, description="Only versions under this one")
    ] = None,
) -> PolicyHistory:
    """Who put what in force, when and why; newest first."""
    found = app.policies.history(limit=limit, before=before)
    more = len(found) == limit and found[-1].version > 1
    return PolicyHistory(
        versions=tuple(map(_shown, found)), next_before=found[-1].version if more else None
    )


@router.get("/policy/versions/{version}", tags=["policy"], responses=documented(404))
def get_policy_version(
    app: Product,
    who: Viewer,  # noqa: ARG001
    version: Annotated[int, Path(ge=0, le=2**31 - 1)],
) -> ShownPolicy:
    """One version of the policy, in force or not. Decisions name the version they were made
    under."""
    return _shown(app.policies.version(version))


@router.post("/policy:rollback", tags=["policy"], responses=documented(404, 412, 413, 415))
def roll_policy_back(
    body: PolicyRollback, app: Product, who: Admin, response: Response, if_match: IfMatch = None
) -> ShownPolicy:
    """Put an earlier version in force again, as a version of its own. With If-Match only over the
    version that was read, else 412."""
    over = expected(if_match)
    stored = app.policies.rollback(
        body.version,
        over=app.store.policy().version if over is None else over,
        by=who.name,
        why=body.why,
    )
    tag(response, stored.version)
    return _shown(stored)


def _shown(stored: PolicyVersion) -> ShownPolicy:
    return ShownPolicy(
        version=stored.version,
        document=stored.document,
        actor=stored.actor,
        at=instant(stored.at) if stored.version else None,
        why=stored.why,
    )
