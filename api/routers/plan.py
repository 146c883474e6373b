"""Quotes and the last plan."""

from __future__ import annotations

from collections import Counter

from fastapi import APIRouter

from api.deps import Product, Submitter, Viewer
from api.problems import documented
from api.routers.jobs import Spec
from api.schemas.jobs import alternatives
from api.schemas.plan import PlanSummary, Quote, ShownAction, ShownBundle
from api.schemas.shown import ShownReason, instant, instant_or_none
from hybrid.domain.plan import ActionBundle
from hybrid.services.planned import told

router = APIRouter(tags=["plan"])


@router.post("/quote", responses=documented(413, 415))
def quote_job(spec: Spec, app: Product, who: Submitter) -> Quote:
    """Where, when and at what cost a job would run if it were submitted now. Nothing is kept or
    started; what would be refused is refused here too."""
    team, decision = app.quoting.quote(who, spec)
    return Quote(
        at=instant(decision.at),
        team=team,
        verdict=decision.verdict,
        sentence=decision.sentence,
        chosen=decision.chosen,
        reason=ShownReason.maybe(decision.reason),
        policy_version=decision.policy_version,
        alternatives=alternatives(decision),
    )


@router.get("/plan")
def get_plan(app: Product, who: Viewer) -> PlanSummary:  # noqa: ARG001
    """The last plan that this process made, and how its loop stands."""
    status = app.loop.status()
    plan, snapshot = app.loop.tick.last_plan, app.loop.snapshot
    return PlanSummary(
        leads=status.leads,
        epoch=status.epoch,
        last_tick_at=instant_or_none(status.last_tick_at),
        last_tick_s=round(status.last_tick_s, 6),
        at=None if plan is None else instant(plan.at),
        revision=0 if plan is None else plan.revision,
        policy_version=app.store.policy().version,
        bundles=() if plan is None else tuple(map(_bundle, plan.bundles)),
        verdicts={}
        if plan is None
        else dict(Counter(str(each.verdict) for each in plan.decisions)),
        notes=() if plan is None else plan.notes,
        evaluations=0 if plan is None else plan.evaluations,
        complete=plan is None or plan.complete,
        unknown=()
        if snapshot is None
        else tuple(f"{gap.source}: {gap.cause}" for gap in snapshot.unknown),
    )


def _bundle(bundle: ActionBundle) -> ShownBundle:
    return ShownBundle(
        id=bundle.id,
        actions=tuple(
            ShownAction(kind=kind, subject=subject, words=words)
            for kind, subject, words in map(told, bundle.actions)
        ),
    )
