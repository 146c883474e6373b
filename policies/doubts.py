"""What is valid and still can hardly be meant: what never matches, contradicts itself, or keeps a
class at home for good."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hybrid.domain.budget import Budget, Scope, ThresholdAction
from hybrid.domain.job_spec import BurstRule, Market
from hybrid.domain.money import cents, to_micros
from hybrid.domain.offer import Offer
from hybrid.domain.pool_spec import BurstPool
from hybrid.ledger.caps import falls_under, limit_micros
from hybrid.ledger.charges import hold_micros
from policies.consistency import Path, nearest
from policies.sections import Day, QuietHours

if TYPE_CHECKING:
    from policies.document import PolicyDocument

_WEEK_MINUTES = 7 * 24 * 60


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something worth a second look. ``path`` leads to it; the document is valid all the same."""

    path: Path
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the place has that a document speaks of: what is None is not known and not checked."""

    burst_pools: tuple[BurstPool, ...] | None = None
    offers: tuple[Offer, ...] | None = None
    local_gpus: int | None = None


def doubts(policy: PolicyDocument, there: Surroundings) -> tuple[Doubt, ...]:
    """Everything doubtful, section by section."""
    return (
        *_classes(policy),
        *_teams(policy, there),
        *_budgets(policy),
        *_bursting(policy, there),
        *_never_bursts(policy, there),
        *_reservations(policy),
    )


def _classes(policy: PolicyDocument) -> Iterator[Doubt]:
    ranked = policy.classes_by_rank
    lowest = next(iter(ranked.values())).rank
    for name, group in ranked.items():
        path = ("priority_classes", name)
        if group.preempts and not policy.preemption.enabled:
            yield Doubt(
                (*path, "preempts"),
                f"class {name} may preempt, but preemption is switched off",
                "set preemption.enabled to true, or preempts to false",
            )
        elif group.preempts and group.rank <= lowest:
            yield Doubt(
                (*path, "preempts"),
                f"class {name} may preempt lower ranks, and there is no lower one",
                "give it a higher rank",
            )
        worth_more = [
            other
            for other, c in ranked.items()
            if c.rank < group.rank and c.value_per_hour > group.value_per_hour
        ]
        if worth_more:
            yield Doubt(
                (*path, "value_per_hour"),
                f"class {name} goes before {worth_more[-1]}, but its hours are worth less",
                "what goes first should be worth more, or bursting favours the other one",
            )
    if policy.aging.per_hour > 0 and policy.aging.max == 0:
        yield Doubt(
            ("aging", "max"), "rank grows with age, but by at most 0", "set aging.max above 0"
        )
    preempts = policy.preemption
    if preempts.enabled and not preempts.between_teams and not preempts.within_team:
        yield Doubt(
            ("preemption",),
            "preemption is switched on, but neither between teams nor within one",
            "set enabled to false, or allow one of them",
        )


def _teams(policy: PolicyDocument, there: Surroundings) -> Iterator[Doubt]:
    guaranteed = 0
    for name, team in policy.teams.items():
        path = ("teams", name)
        guaranteed += team.guaranteed_gpus
        for aspect, mine, overall in (
            ("regions", team.regions, policy.burst.regions),
            ("providers", team.providers, policy.burst.providers),
        ):
            if mine and overall and not set(mine) & set(overall):
                yield Doubt(
                    (*path, aspect),
                    f"none of the {aspect} of team {name} is among burst.{aspect}:"
                    " it can never burst",
                    f"burst.{aspect}: {', '.join(overall)}",
                )
    if guaranteed and not (policy.preemption.enabled and policy.preemption.between_teams):
        yield Doubt(
            ("teams",),
            "GPUs are guaranteed, but no run of another team may be stopped to give them back",
            "set preemption.enabled and preemption.between_teams to true",
        )
    if there.local_gpus is not None and guaranteed > there.local_gpus:
        yield Doubt(
            ("teams",),
            f"{guaranteed} GPUs are guaranteed and {there.local_gpus} are there",
            "guarantee no more than what is owned",
        )


def _budgets(policy: PolicyDocument) -> Iterator[Doubt]:
    named = set(policy.teams)
    people = {member for team in policy.teams.values() for member in team.members}
    closed = all(policy.team(name).members for name in (*named, "default"))
    for i, budget in enumerate(policy.budgets):
        path = ("budgets", i)
        if budget.scope is Scope.TEAM and named and budget.subject not in named:
            yield Doubt(
                (*path, "subject"),
                f"budget {budget.name} limits team {budget.subject}, which is not under teams",
                nearest(budget.subject or "", named),
            )
        if budget.scope is Scope.USER and closed and named and budget.subject not in people:
            yield Doubt(
                (*path, "subject"),
                f"budget {budget.name} limits {budget.subject}, who is in no team",
                nearest(budget.subject or "", people),
            )
        yield from _thresholds(budget, path)
        wider = _wider(budget, policy.budgets)
        if wider is not None:
            yield Doubt(
                (*path, "limit_usd"),
                f"budget {budget.name} can never be what limits: {wider.name} covers the same"
                f" spending and more, and allows ${cents(limit_micros(wider))}",
                "lower it, or leave it out",
            )


def _thresholds(budget: Budget, path: Path) -> Iterator[Doubt]:
    seen: set[tuple[float, str]] = set()
    drains = [t.at for t in budget.thresholds if t.action is ThresholdAction.DRAIN]
    for j, threshold in enumerate(budget.thresholds):
        where = (*path, "thresholds", j)
        if (threshold.at, threshold.action) in seen:
            yield Doubt(where, "this threshold is given twice", "keep one")
        seen.add((threshold.at, threshold.action))
        if threshold.at > 1:
            yield Doubt(
                (*where, "at"),
                f"{threshold.at:g} times the limit is reached only by a bill larger than what was"
                " held",
                "thresholds are parts of the limit: 0.8 is 80 %",
            )
        blocked = threshold.action is ThresholdAction.NO_NEW_CLAIMS and any(
            at <= threshold.at for at in drains
        )
        if blocked:
            yield Doubt(
                where,
                "no_new_claims comes after drain, which has closed the budget already",
                "put no_new_claims below drain",
            )


def _wider(budget: Budget, others: tuple[Budget, ...]) -> Budget | None:
    """An organisation's budget of the same period that is spent before this one."""
    for other in others:
        same = (other.period, other.timezone, other.rolling_days) == (
            budget.period,
            budget.timezone,
            budget.rolling_days,
        )
        org = other.scope is Scope.ORG and budget.scope is not Scope.ORG
        if same and org and limit_micros(other) <= limit_micros(budget):
            return other
    return None


def _bursting(policy: PolicyDocument, there: Surroundings) -> Iterator[Doubt]:
    burst = policy.burst
    if not burst.enabled:
        return
    if burst.ceilings.machines == 0 or burst.ceilings.usd_per_hour == 0:
        aspect = "machines" if burst.ceilings.machines == 0 else "usd_per_hour"
        yield Doubt(
            ("burst", "ceilings", aspect),
            "bursting is switched on with a ceiling of nothing",
            "set burst.enabled to false, or raise the ceiling",
        )
    if set(burst.markets) == {Market.SPOT} and policy.spot.max_interruptions_per_hour == 0:
        yield Doubt(
            ("spot", "max_interruptions_per_hour"),
            "only spot is allowed, and no spot machine is never interrupted",
            "allow on_demand, or some interruptions",
        )
    if _always(burst.quiet_hours):
        yield Doubt(
            ("burst", "quiet_hours"),
            "it is always a quiet hour: no machine is ever asked for",
            "leave some hours out, or set burst.enabled to false",
        )
    if there.burst_pools is None:
        return
    for aspect, allowed, known in (
        ("regions", burst.regions, {pool.region for pool in there.burst_pools}),
        ("providers", burst.providers, {pool.provider for pool in there.burst_pools}),
    ):
        for i, name in enumerate(allowed):
            if name not in known:
                yield Doubt(
                    ("burst", aspect, i),
                    f"no burst pool has {name} among its {aspect}",
                    nearest(name, known) if known else "there is no burst pool",
                )


def _always(hours: tuple[QuietHours, ...]) -> bool:
    """Whether the hours leave no minute of the week; only those of one time zone are summed up."""
    for zone in {each.timezone for each in hours}:
        quiet: set[int] = set()
        for each in hours:
            if each.timezone == zone:
                quiet.update(_minutes(each))
        if len(quiet) == _WEEK_MINUTES:
            return True
    return False


def _minutes(hours: QuietHours) -> Iterator[int]:
    first, last = _minute(hours.start), _minute(hours.until)
    length = (last - first) % (24 * 60)
    for number, day in enumerate(Day):
        if not hours.days or day in hours.days:
            begin = number * 24 * 60 + first
            yield from ((begin + i) % _WEEK_MINUTES for i in range(length))


def _minute(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:])


def _never_bursts(policy: PolicyDocument, there: Surroundings) -> Iterator[Doubt]:
    """Classes that may leave and yet never can, whatever their jobs: no budget lets them."""
    if not policy.burst.enabled:
        return
    if not policy.budgets:
        yield Doubt(
            ("budgets",),
            "no job can ever burst: without a budget nothing is spent",
            "add a budget, or set burst.enabled to false",
        )
        return
    least = _least_hold_micros(there)
    for name, group in policy.priority_classes.items():
        if group.burst is BurstRule.NEVER:
            continue
        stopped = [_stops(policy, team, least) for team in _teams_of(policy, name)]
        if not stopped or all(stopped):
            who = "no team may use it" if not stopped else stopped[0]
            yield Doubt(
                ("priority_classes", name),
                f"class {name} can never burst under any budget: {who}",
                "raise a budget, or set its burst to never",
            )


def _teams_of(policy: PolicyDocument, class_name: str) -> list[str]:
    """Teams that may use a class; an empty name stands for those that are not named."""
    teams = [n for n, t in policy.teams.items() if not t.classes or class_name in t.classes]
    others = policy.team("")
    if "default" not in policy.teams and (not others.classes or class_name in others.classes):
        teams.append("")
    # budgets of teams that are not under teams cover what those submit
    unnamed = {b.subject for b in policy.budgets if b.scope is Scope.TEAM} - set(policy.teams)
    if not others.classes or class_name in others.classes:
        teams += sorted(name for name in unnamed if name)
    return teams


def _stops(policy: PolicyDocument, team: str, least_micros: int) -> str:
    """Why nothing that a team submits can be held for; empty if something can. Budgets of users
    and jobs count as allowing: whom they cover is not known here."""
    covering = [b for b in policy.budgets if b.scope in (Scope.USER, Scope.JOB)]
    sure = [b for b in policy.budgets if b not in covering]
    mine = [b for b in sure if falls_under(b, team=team, user="", job_id="")]
    if not mine and not covering:
        return f"no budget covers team {team}" if team else "no budget covers teams not named"
    for budget in mine:
        if limit_micros(budget) < max(least_micros, 1):
            worst = f", below the ${cents(least_micros)} that the cheapest machine may cost"
            return (
                f"budget {budget.name} allows ${cents(limit_micros(budget))}"
                f"{worst if least_micros else ''}"
            )
    ceiling = policy.burst.ceilings.usd_per_hour
    if ceiling is not None and to_micros(ceiling) == 0:
        return "burst.ceilings.usd_per_hour is 0"
    return ""


def _least_hold_micros(there: Surroundings) -> int:
    """The smallest hold that any offer of now takes; 0 where none is known."""
    pools = {pool.name: pool for pool in there.burst_pools or ()}
    holds = [
        hold_micros(
            offer.price_ceiling_micros_per_hour,
            lease_s=pools[offer.pool].lease.duration,
            end_tail_s=pools[offer.pool].lease.end_tail,
            disk_gib=pools[offer.pool].disk,
            disk_usd_per_gib_hour=pools[offer.pool].disk_usd_per_gib_hour,
        )
        for offer in there.offers or ()
        if offer.pool in pools
    ]
    return min(holds, default=0)


def _reservations(policy: PolicyDocument) -> Iterator[Doubt]:
    for i, kept in enumerate(policy.placement.reserved):
        for j, team in enumerate(kept.teams):
            if policy.teams and team not in policy.teams:
                yield Doubt(
                    ("placement", "reserved", i, "teams", j),
                    f"GPUs are kept for team {team}, which is not under teams",
                    nearest(team, policy.teams),
                )
        for j, name in enumerate(kept.classes):
            allowed = [t for t in policy.teams.values() if not t.classes or name in t.classes]
            if policy.teams and "default" in policy.teams and not allowed:
                yield Doubt(
                    ("placement", "reserved", i, "classes", j),
                    f"GPUs are kept for class {name}, which no team may use",
                    "allow it to a team",
                )
