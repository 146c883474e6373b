"""How the demo ended: the closing table, the totals beside two other ways, and the checks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from hybrid.client import answers as said
from hybrid.client import logs
from hybrid.demo import proof, scene
from hybrid.demo.mishaps import SERVER_KILLS
from hybrid.demo.proof import Check
from hybrid.demo.what_if import Lived, WhatIf, all_local, all_on_demand
from hybrid.domain.money import to_usd

if TYPE_CHECKING:
    from hybrid.demo.story import Sent, Story

BOOT_S = 6.0


@dataclass(frozen=True, slots=True)
class Ended:
    """One job as it went."""

    sent: Sent
    job: said.Job | None
    log: str
    resumed: tuple[int, ...]
    why: str
    """What was decided for it when it was first sent somewhere."""

    @property
    def run_s(self) -> float:
        """How long its runs took in all."""
        runs = self.job.runs if self.job is not None else ()
        return sum(_seconds(run) for run in runs)

    @property
    def came_home(self) -> bool:
        """Whether a run was stopped to return, and a later one ran here."""
        runs = self.job.runs if self.job is not None else ()
        return any(
            before.stop_cause == "return" and after.pool == "local"
            for before, after in itertools.pairwise(runs)
        )


@dataclass(frozen=True, slots=True)
class Ending:
    """All there is to say at the end."""

    jobs: tuple[Ended, ...]
    machines_left: int
    agents_left: int
    spent_usd: Decimal
    billed_usd: Decimal
    interruptions: int
    elapsed_s: float
    others: tuple[WhatIf, ...]
    checks: tuple[Check, ...]
    killed: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every check held."""
        return all(check.ok for check in self.checks)

    @classmethod
    def of(cls, story: Story, *, chaos: bool, keep_server: bool) -> Ending:
        """Collect what happened, end the stage, and check."""
        stage = story.stage
        assert stage.cloud is not None
        jobs = tuple(_ended(story, each) for each in story.sent)
        gpus = _gpu_positions(story)
        budget = story.client.budgets().budgets[0]
        with stage.cloud.control() as control:
            bill = control.bill()
            ends = {line.instance_id: line.ended_at for line in bill.lines}
        machines_left = _machines_left(story)
        stage.end_nodes(keep_server=keep_server)
        agents_left = len(stage.agents_left())
        lived = proof.lives(stage.folder, {k: v for k, v in ends.items() if v is not None})
        interruptions = sum(
            run.stop_cause == "interruption"
            for each in jobs
            for run in (each.job.runs if each.job else ())
        )
        checks = [
            *_outcome_checks(jobs, gpus),
            Check("no machine is left", machines_left == 0, f"{machines_left} by EC2's own list"),
            Check("no agent is left", agents_left == 0, f"{agents_left} by this machine's list"),
            Check(
                "the cap holds",
                budget.charged_usd <= scene.CAP_USD and budget.held_usd == 0,
                f"${budget.charged_usd:.2f} spent, ${budget.held_usd:.2f} still held"
                f" of ${scene.CAP_USD}",
            ),
            Check(
                "a spot machine was taken", interruptions >= 1, f"{interruptions} interruption(s)"
            ),
            *_interruption_checks(jobs),
            _home_check(jobs),
            _once_check(lived),
            *([_chaos_check(stage.killed)] if chaos else []),
        ]
        return cls(
            jobs=jobs,
            machines_left=machines_left,
            agents_left=agents_left,
            spent_usd=budget.charged_usd,
            billed_usd=bill.total_usd,
            interruptions=interruptions,
            elapsed_s=story.elapsed_s,
            others=_others(jobs),
            checks=tuple(checks),
            killed=tuple(stage.killed),
        )


def _ended(story: Story, sent: Sent) -> Ended:
    if not sent.id:
        return Ended(sent, None, "", (), sent.refusal)
    job = story.client.job(sent.id)
    texts = [
        b"".join(logs(story.client, sent.id, run=run.id)).decode(errors="replace")
        for run in job.runs
    ]
    resumed = tuple(itertools.chain.from_iterable(map(proof.resumed_from, texts)))
    decided = [
        event.words
        for event in story.client.timeline(sent.id).events
        if event.what in ("decided: burst", "decided: place")
    ]
    return Ended(sent, job, "".join(texts), resumed, decided[0] if decided else "")


def _machines_left(story: Story) -> int:
    """Instances that EC2 itself lists as not terminated."""
    import boto3

    assert story.stage.cloud is not None
    ec2: Any = boto3.client(
        "ec2",
        region_name=scene.REGION,
        endpoint_url=story.stage.cloud.url,
        aws_access_key_id="sandbox",
        aws_secret_access_key="sandbox",
    )
    pages = ec2.get_paginator("describe_instances").paginate()
    states = [
        instance["State"]["Name"]
        for page in pages
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
    ]
    return sum(state != "terminated" for state in states)


def _gpu_positions(story: Story) -> dict[str, int]:
    nodes = story.nodes.nodes if story.nodes is not None else ()
    return {gpu.id: gpu.index for node in nodes for gpu in node.gpus}


# --- checks -----------------------------------------------------------------------------------


def _outcome_checks(jobs: tuple[Ended, ...], gpus: dict[str, int]) -> Iterator[Check]:
    wrong = [
        f"{each.sent.job.name}: {each.job.state} ({each.job.reason})"
        for each in jobs
        if each.job is not None and each.job.state != "succeeded"
    ]
    yield Check("every job that can run has succeeded", not wrong, "; ".join(wrong) or "all")
    expected = {each.sent.job.name for each in jobs if each.sent.job.refused}
    refused = {each.sent.job.name for each in jobs if each.sent.refusal}
    words = "; ".join(each.sent.refusal for each in jobs if each.sent.refusal)
    yield Check("what nobody has is refused at once", refused == expected, words)
    strays = [
        f"{each.sent.job.name} ran in {run.pool}"
        for each in jobs
        if each.sent.job.document.get("where", {}).get("burst") == "never"
        for run in (each.job.runs if each.job else ())
        if run.pool != "local"
    ]
    yield Check("what may not leave stays", not strays, "; ".join(strays) or "all at home")
    yield _gang_check(jobs)
    yield _pair_check(jobs, gpus)


def _gang_check(jobs: tuple[Ended, ...]) -> Check:
    nodes = {
        slot.node_id
        for each in jobs
        if each.sent.job.document["resources"].get("nodes", 1) == 2 and each.job
        for run in each.job.runs[-1:]
        for slot in run.slots
    }
    return Check("the gang ran on two machines", len(nodes) == 2, ", ".join(sorted(nodes)))


def _pair_check(jobs: tuple[Ended, ...], gpus: dict[str, int]) -> Check:
    """NVLink joins GPUs 0 and 1, and 2 and 3."""
    chosen = [
        sorted(gpus.get(gpu, -1) for gpu in run.slots[0].gpu_ids)
        for each in jobs
        if each.sent.job.name == "nvlink-pair" and each.job
        for run in each.job.runs
    ]
    good = bool(chosen) and all(pair in ([0, 1], [2, 3]) for pair in chosen)
    return Check("the NVLink job got a linked pair", good, f"GPUs {chosen}")


def _interruption_checks(jobs: tuple[Ended, ...]) -> Iterator[Check]:
    taken = [
        each
        for each in jobs
        if each.job and any(run.stop_cause == "interruption" for run in each.job.runs)
    ]
    steps = {each.sent.job.name: each.resumed for each in taken}
    resumed = bool(taken) and all(any(step > 0 for step in found) for found in steps.values())
    words = "; ".join(f"{name} from step {found}" for name, found in steps.items())
    yield Check("the interrupted job resumed from its checkpoint", resumed, words or "none")
    for each in taken[:1]:
        yield proof.same_bits(each.sent.job, each.log)


def _home_check(jobs: tuple[Ended, ...]) -> Check:
    names = [each.sent.job.name for each in jobs if each.came_home]
    return Check("a burst job came home", bool(names), ", ".join(names) or "none")


def _once_check(lived: dict[str, list[proof.Life]]) -> Check:
    twice = proof.overlaps(lived)
    runs = sum(len(each) for each in lived.values())
    words = "; ".join(twice) or f"{runs} lives of {len(lived)} ranks by the guardians' records"
    return Check("no job ran twice at the same time", not twice and runs > 0, words)


def _chaos_check(killed: list[str]) -> Check:
    servers, agents = killed.count("server"), killed.count("agent")
    good = servers == SERVER_KILLS and agents == 1
    words = f"server {servers} times, agent {agents} time(s), by SIGKILL"
    return Check("server and agent were killed and came back", good, words)


def _others(jobs: tuple[Ended, ...]) -> tuple[WhatIf, ...]:
    lived = [
        Lived(each.sent.job.document, each.sent.at, max(1.0, each.run_s))
        for each in jobs
        if each.job is not None and each.job.state == "succeeded"
    ]
    return (all_local(lived), all_on_demand(lived, BOOT_S))


# --- telling ----------------------------------------------------------------------------------


def as_document(ending: Ending) -> dict[str, Any]:
    """The ending as one JSON object."""
    refused = [
        {
            "name": each.sent.job.name,
            "code": each.sent.refusal_code,
            "reason": each.sent.refusal,
        }
        for each in ending.jobs
        if each.sent.refusal
    ]
    return {
        "jobs": [_job_document(each) for each in ending.jobs if each.job is not None],
        "refused": refused,
        "machines_left": ending.machines_left,
        "agents_left": ending.agents_left,
        "spent_usd": _dollars(ending.spent_usd),
        "billed_usd": _dollars(ending.billed_usd),
        "cap_usd": _dollars(scene.CAP_USD),
        "interruptions": ending.interruptions,
        "resumed": [
            {"job": each.sent.job.name, "step": step}
            for each in ending.jobs
            for step in each.resumed
        ],
        "returned_home": sum(each.came_home for each in ending.jobs),
        "killed": list(ending.killed),
        "elapsed_s": round(ending.elapsed_s, 1),
        "scale": {
            "seconds_per_minute": 1,
            "prices_times": scene.TIME_SCALE,
            "spot_notice_s": scene.NOTICE_S,
        },
        "totals": {
            "this": _totals(ending),
            **{
                other.name.replace(" ", "_"): {
                    "cost_usd": _dollars(to_usd(other.cost_micros)),
                    "mean_wait_s": round(other.mean_wait_s, 1),
                    "makespan_s": round(other.makespan_s, 1),
                    "jobs_that_cannot_run": other.unrun,
                }
                for other in ending.others
            },
        },
        "checks": [
            {"name": check.name, "ok": check.ok, "detail": check.detail} for check in ending.checks
        ],
    }


def _dollars(amount: Decimal) -> float:
    """Dollars as a JSON number: micro-dollars are exact in a double up to billions."""
    return float(round(amount, 6))


def _totals(ending: Ending) -> dict[str, Any]:
    waits = [each.job.wait_s or 0.0 for each in ending.jobs if each.job is not None]
    return {
        "cost_usd": _dollars(ending.spent_usd),
        "mean_wait_s": round(sum(waits) / len(waits), 1) if waits else 0.0,
        "makespan_s": round(ending.elapsed_s, 1),
    }


def _job_document(each: Ended) -> dict[str, Any]:
    assert each.job is not None
    explained = each.sent.explained
    return {
        "id": each.job.id,
        "name": each.job.name,
        "shows": each.sent.job.shows,
        "state": str(each.job.state),
        "placements": [
            {
                "run": run.id,
                "pool": run.pool,
                "nodes": [slot.node_id for slot in run.slots],
                "gpus": [list(slot.gpu_ids) for slot in run.slots],
                "run_s": round(_seconds(run), 1),
                "stop_cause": run.stop_cause,
            }
            for run in each.job.runs
        ],
        "wait_s": each.job.wait_s,
        "run_s": round(each.run_s, 1),
        "cost_usd": _dollars(each.job.cost_usd),
        "decision": each.why,
        "alternatives": [
            {
                "label": option.label,
                "total_usd": None if option.total_usd is None else _dollars(option.total_usd),
                "refused": None if option.refused is None else option.refused.text,
            }
            for option in (explained.alternatives if explained is not None else ())
        ],
    }


def show_ending(ending: Ending, console: Console) -> None:
    """The closing table, the totals and the checks, for people."""
    console.print(_job_table(ending))
    console.print(_totals_table(ending))
    for check in ending.checks:
        mark = "[green]✓[/]" if check.ok else "[red]✗[/]"
        console.print(f"{mark} {check.name} [dim]({check.detail})[/]", highlight=False)


def _job_table(ending: Ending) -> Table:
    table = Table(title="Jobs", title_justify="left")
    for column in ("job", "where", "why", "wait s", "run s", "cost $", "otherwise"):
        table.add_column(column, overflow="fold")
    for each in ending.jobs:
        if each.job is None:
            table.add_row(each.sent.job.name, "refused", each.sent.refusal, "", "", "", "")
            continue
        where = " → ".join(run.pool for run in each.job.runs)
        wait = "" if each.job.wait_s is None else f"{each.job.wait_s:.1f}"
        explained = each.sent.explained
        table.add_row(
            each.sent.job.name,
            where,
            each.why,
            wait,
            f"{each.run_s:.1f}",
            f"{each.job.cost_usd:.2f}",
            _otherwise(explained),
        )
    return table


def _otherwise(explained: said.Explanation | None) -> str:
    if explained is None:
        return ""
    options = [
        f"{option.label}: ${option.total_usd:.2f}"
        for option in explained.alternatives
        if not option.chosen and option.total_usd is not None
    ]
    return "; ".join(options[:3])


def _totals_table(ending: Ending) -> Table:
    table = Table(title="Beside two other ways", title_justify="left")
    for column in ("", "cost $", "mean wait s", "all done after s", "cannot run"):
        table.add_column(column)
    ours = _totals(ending)
    table.add_row(
        "this", f"{ending.spent_usd:.2f}", str(ours["mean_wait_s"]), str(ours["makespan_s"]), "0"
    )
    for other in ending.others:
        table.add_row(
            other.name,
            f"{to_usd(other.cost_micros):.2f}",
            f"{other.mean_wait_s:.1f}",
            f"{other.makespan_s:.1f}",
            str(other.unrun),
        )
    return table


def _seconds(run: said.Run) -> float:
    if run.started_at is None or run.ended_at is None:
        return 0.0
    return max(0.0, (run.ended_at - run.started_at).total_seconds())
