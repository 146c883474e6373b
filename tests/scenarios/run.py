"""Plans a YAML world and writes what happened so that a person can read it.

``python -m tests.scenarios.run NAME...`` prints logs; with ``--write`` it renews the golden files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from hybrid.domain.ids import JobId
from hybrid.domain.money import to_usd
from hybrid.domain.plan import (
    Action,
    Alternative,
    CordonClaim,
    CordonNode,
    Decision,
    EndClaim,
    FailJob,
    OpenClaim,
    Place,
    Plan,
    RenewLease,
    Stop,
)
from hybrid.domain.quantities import format_duration
from hybrid.planning.lint import lint
from hybrid.planning.planner import plan
from hybrid.planning.why_not import why_not
from tests.doubles.apply_plan import apply_plan
from tests.scenarios.world import NOW, build

WORLDS = Path(__file__).parent / "worlds"


def names() -> list[str]:
    """All scenarios."""
    return sorted(path.stem for path in WORLDS.glob("*.yaml"))


def log_of(name: str) -> str:
    """The readable log of one scenario: its first plan, and what a second one would still do."""
    world = yaml.safe_load((WORLDS / f"{name}.yaml").read_text())
    lines = [f"# {world['about']}", ""]
    if "strategies" not in world:
        return "\n".join([*lines, *_log(world, whole=True)]) + "\n"
    # one queue under several strategies: a line for each job, to lay them side by side
    for strategy in world["strategies"]:
        policy = {**world.get("policy", {}), "scheduling": strategy}
        lines += [f"## {strategy}", *_log({**world, "policy": policy}, whole=False), ""]
    return "\n".join(lines)


def _log(world: dict[str, Any], *, whole: bool) -> list[str]:
    snapshot, policy = build(world)
    first = plan(snapshot, policy, 1)
    lines = ["actions:", *([f"  {_action(action)}" for action in first.actions] or ["  none"])]
    lines += [f"  NOT CLEAN: {finding}" for finding in lint(snapshot, first)]
    lines.append("")
    for decision in first.decisions:
        lines += _decision(decision) if whole else [_verdict(decision)]
    for job_id, places in world.get("ask", {}).items():
        for where in places:
            told = why_not(snapshot, policy, 1, snapshot.jobs[JobId(job_id)], where)
            lines += ["", f"{job_id}, asked of {where}: {told.sentence}"]
            lines += [f"  {_alternative(a, told.chosen)}" for a in told.alternatives]
    second = plan(apply_plan(snapshot, first), policy, 1)
    return [*lines, "", "planned again: " + _again(second)]


def _again(second: Plan) -> str:
    return "; ".join(_action(action) for action in second.actions) or "nothing"


def _action(action: Action) -> str:
    match action:
        case Place(run=run):
            slots = ", ".join(
                f"{slot.node_id}[{'+'.join(g.rsplit('-', 1)[1] for g in slot.gpu_ids)}]"
                for slot in run.slots
            )
            return f"place {run.job_id} on {slots} at speed {run.speed:.3g}"
        case Stop():
            by = "" if action.by is None else f" by +{format_duration(action.by - NOW)}"
            return f"stop {action.run_id} ({action.cause}){by}: {action.words}"
        case OpenClaim(claim=claim, hold=hold):
            until = format_duration(claim.lease_until - NOW)
            return (
                f"ask for {claim.offer.id} as {claim.id},"
                f" ${to_usd(hold.amount_micros)} held, lease {until}"
            )
        case RenewLease():
            until = format_duration(action.until - NOW)
            return f"renew {action.claim_id} to +{until}, ${to_usd(action.hold.amount_micros)} held"
        case CordonClaim():
            return f"cordon {action.claim_id}: {action.words}"
        case EndClaim():
            return f"end {action.claim_id}: {action.words}"
        case CordonNode():
            return f"cordon {action.node_id}: {action.words}"
        case FailJob():
            word = "cancel" if action.cancelled else "fail"
            return f"{word} {action.job_id}: {action.reason}"


def _verdict(decision: Decision) -> str:
    return f"{decision.job_id}: {decision.verdict} {decision.sentence}"


def _decision(decision: Decision) -> list[str]:
    return [_verdict(decision)] + [
        f"  {_alternative(a, decision.chosen)}" for a in decision.alternatives
    ]


def _alternative(alternative: Alternative, chosen: str) -> str:
    mark = "*" if alternative.option == chosen else "-"
    text = f"{mark} {alternative.label}"
    if alternative.members > 1:
        text += f" ({alternative.members} alike)"
    if "finished run" in alternative.speed:
        text += f"; {alternative.speed}"
    if alternative.refused is not None:
        text += f": no, {alternative.refused}"
    if alternative.terms:
        terms = " ".join(
            f"{'-' if t.micros < 0 else '+'} {t.name} ${abs(to_usd(t.micros))}"
            for t in alternative.terms
        )
        text += f": ${to_usd(alternative.total_micros)} = {terms}"
    if alternative.finish_at is not None:
        text += f"; done in {format_duration(float(round(alternative.finish_at - NOW)))}"
    return text


def main(arguments: list[str]) -> None:
    """Print or write logs."""
    write = "--write" in arguments
    wanted = [a for a in arguments if not a.startswith("--")] or names()
    for name in wanted:
        text = log_of(name)
        if write:
            (WORLDS / f"{name}.log").write_text(text)
        else:
            sys.stdout.write(f"=== {name}\n{text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
