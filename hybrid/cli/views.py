"""Answers of the server as tables."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from hybrid.cli.tables import line, pairs, stack, table
from hybrid.cli.words import ago, clock, dollars, plural, since, span
from hybrid.client import answers as said
from hybrid.domain.money import cents_that_add_up, to_micros

_WORTH_SAYING = timedelta(seconds=5)


def jobs(found: Iterable[said.JobLine], *, empty: str = "no jobs") -> Any:
    """A listing of jobs."""
    now = datetime.now(UTC)
    return table(
        ("id", "name", "state", "where", ">gpus", "team", "priority", "submitted", ">cost", "why"),
        (
            (
                job.id,
                job.name,
                job.state,
                job.pool or "–",
                gang(job),
                job.team,
                job.priority,
                ago(job.submitted_at, now),
                dollars(job.cost_usd),
                why(job, now),
            )
            for job in found
        ),
        empty=empty,
    )


def gang(job: said.JobLine) -> str:
    """GPUs of a job; nodes × GPUs for a gang."""
    return str(job.gpus) if job.nodes == 1 else f"{job.nodes}×{job.gpus}"


_FRESH = timedelta(minutes=1)
"""So old what was decided tells its times well enough."""


def why(job: said.JobLine, now: datetime) -> str:
    """Why a job is where it is, in one line. What was decided is said anew only when it changes,
    and the times in it are those of then."""
    if job.state.ended:
        return job.reason.partition("\n")[0].removesuffix("; its last lines:")
    if job.cancel_requested:
        return "being cancelled"
    if job.decision is None:
        return ""
    fresh = now - job.decision.at < _FRESH
    return job.decision.sentence + ("" if fresh else f" (as of {ago(job.decision.at, now)})")


def job(found: said.Job) -> Any:
    """A job, whole."""
    now = datetime.now(UTC)
    ended = found.ended_at
    command = " ".join(str(part) for part in found.spec.get("command", ()))
    about = pairs(
        (
            ("job", found.id),
            ("name", found.name),
            ("state", found.state),
            ("why", found.reason if found.state.ended else why(found, now)),
            ("team, user", f"{found.team}, {found.user}"),
            ("priority", found.priority),
            ("command", command),
            ("asks for", asked(found)),
            ("submitted", f"{clock(found.submitted_at)} ({ago(found.submitted_at, now)})"),
            ("waited", span(found.wait_s) if found.wait_s is not None else "not started yet"),
            ("ended", f"{clock(ended)} ({ago(ended, now)})" if ended else ""),
            ("exit code", "" if found.exit_code is None else str(found.exit_code)),
            ("cloud cost", dollars(found.cost_usd)),
            ("checkpoint", _checkpoint(found.checkpoint)),
            ("saves", _saves(found)),
        )
    )
    runs = table(
        ("run", "state", "where", "gpus", "price/h", "began", "ran", "step", "exit", "stopped for"),
        (_run(run, now) for run in found.runs),
    )
    return stack(about, runs if found.runs else None)


def asked(found: said.JobLine) -> str:
    """What a job asks for, in words."""
    gpus = plural(found.gpus, "GPU") if found.gpus else "no GPU"
    return gpus if found.nodes == 1 else f"{plural(found.nodes, 'node')} with {gpus} each"


def _checkpoint(saved: said.Checkpoint | None) -> str:
    return "" if saved is None else f"step {saved.step}, {ago(saved.committed_at)}"


def _saves(found: said.Job) -> str:
    """That what its last run saves does not arrive, and why."""
    problem = found.runs[-1].checkpoint_problem if found.runs else ""
    return f"not safe: {problem}" if problem else ""


def _run(run: said.Run, now: datetime) -> tuple[str, ...]:
    price = "–" if run.price_usd_per_hour == 0 else dollars(run.price_usd_per_hour)
    return (
        run.id,
        run.state,
        f"{run.pool}: {', '.join(slot.node_id for slot in run.slots)}",
        gpu_name(run.gpu_model) or "none",
        price,
        clock(run.started_at),
        since(run.started_at, run.ended_at or now),
        _step(run.progress),
        "" if run.exit_code is None else str(run.exit_code),
        run.stop_cause or "",
    )


def _step(progress: said.Progress | None) -> str:
    if progress is None:
        return ""
    return f"{progress.step}/{progress.total}" if progress.total else str(progress.step)


def gpu_name(key: str) -> str:
    """A GPU model as it is sold; what the catalogue does not know stays as it is."""
    from hybrid.hardware import UnknownGpuModel, gpu_model

    try:
        return gpu_model(key).name if key else ""
    except UnknownGpuModel:
        return key


def timeline(found: said.Timeline) -> Any:
    """What happened to a job."""
    return table(
        ("at", "what", "about", "words", "by"),
        (
            (clock(each.at), f"{each.kind} {each.what}", each.subject, each.words, each.actor)
            for each in found.events
        ),
        empty="nothing has happened yet",
    )


def explanation(found: said.Explanation) -> Any:
    """Why a job is where it is: the sentence, and every option."""
    under = f" under policy version {found.policy_version}" if found.policy_version else ""
    decided = "" if found.at is None else f", decided {ago(found.at)}{under}"
    about = f"({found.job_id}, {found.state}{decided})"
    told = _sentence(found.verdict, found.sentence)
    if found.state.ended:  # the sentence is of the last time that anything was decided
        told = f"The job has ended: it is {found.state}. What was decided last: {told}"
    return stack(line(told), options(found.alternatives), line(about))


def quote(found: said.Quote) -> Any:
    """What a job would cost, where and when it would start."""
    about = f"(team {found.team} would pay)"
    return stack(
        line(_sentence(found.verdict, found.sentence)), options(found.alternatives), line(about)
    )


def _sentence(verdict: str | None, words: str) -> str:
    """The decision as a sentence, with a capital letter."""
    told = words or verdict or "nothing has been decided yet"
    return told[:1].upper() + told[1:] + ("" if told.endswith(".") else ".")


def options(found: Iterable[said.Alternative]) -> Any:
    """Options with their costs, or what refused them."""
    listed = list(found)
    if not listed:
        return None
    columns = ("", "option", "starts", "finishes", ">cost", "of which, or why not")
    return table(columns, map(option_cells, listed))


def option_cells(option: said.Alternative) -> tuple[str, ...]:
    """One line of the table of options; its terms add up to its cost as both are shown."""
    alike = f" (and {option.members - 1} like it)" if option.members > 1 else ""
    return (
        "→" if option.chosen else "",
        option.label + alike + (f"; {option.speed}" if "finished run" in option.speed else ""),
        _between(option.start_p50_at, option.start_p90_at),
        ago(option.finish_at),
        dollars(option.total_usd),
        _terms(option),
    )


def _between(p50: datetime | None, p90: datetime | None) -> str:
    if p50 is None:
        return "–"
    late = "" if p90 is None or p90 - p50 < _WORTH_SAYING else f" ({ago(p90)} at p90)"
    return ago(p50) + late


def _terms(option: said.Alternative) -> str:
    if option.refused is not None:
        return option.refused.text
    rounded = cents_that_add_up([to_micros(term.usd) for term in option.terms])
    if not any(rounded):
        # all of it is less than a cent, and so is each part
        rounded = tuple(term.usd for term in option.terms)
    return ", ".join(
        f"{term.name.replace('_', ' ')} {dollars(usd)}"
        for term, usd in zip(option.terms, rounded, strict=True)
        if usd
    )


def tokens(found: said.TokenList) -> Any:
    """All tokens."""
    return table(
        ("id", "role", "whose", "teams or pool", "made", "valid", "used by", "note"),
        (
            (
                each.id,
                each.role,
                each.user or "–",
                each.pool or ", ".join(each.teams) or "all",
                ago(each.created_at),
                _validity(each),
                each.used_by or "",
                each.note,
            )
            for each in found.tokens
        ),
        empty="no tokens",
    )


def _validity(token: said.Token) -> str:
    if token.revoked:
        return "revoked"
    if token.expires_at is None:
        return "for ever"
    over = token.expires_at < datetime.now(UTC)
    return f"expired {ago(token.expires_at)}" if over else f"ends {ago(token.expires_at)}"
