"""Policies, their history, and what another one would change, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import yaml

from hybrid.cli.tables import line, pairs, stack, table
from hybrid.cli.words import ago, clock, dollars, plural, span
from hybrid.client import answers as said


def check(found: said.PolicyCheck) -> Any:
    """What a policy would change, and what in it can hardly be meant."""
    doubts = warnings([each.model_dump() for each in found.warnings]) if found.warnings else None
    if not found.changes:
        return stack(line(f"a policy; it changes nothing against version {found.version}"), doubts)
    return stack(
        line(f"a policy; against version {found.version} it changes:"),
        _settings(found.changes),
        doubts,
    )


def warnings(found: Sequence[Mapping[str, Any]]) -> Any:
    """What can hardly be meant."""
    if not found:
        return line("a policy, and nothing in it looks doubtful")
    return stack(
        line(f"a policy, with {plural(len(found), 'warning')}:"),
        table(
            (">line", "where", "what", "hint"),
            ((str(w["line"]), w["path"] or "–", w["message"], w["hint"]) for w in found),
        ),
    )


def _settings(changes: Sequence[said.Change]) -> Any:
    return table(
        ("what", "from", "to"),
        ((each.path, _value(each.before), _value(each.after)) for each in changes),
    )


def history(found: said.PolicyHistory) -> Any:
    """Versions, newest first."""
    now = datetime.now(UTC)
    return table(
        (">version", "by", "when", "ago", "why"),
        (
            (str(each.version), each.actor, clock(each.at), ago(each.at, now), each.why)
            for each in found.versions
        ),
        empty="no policy has been set: the defaults are in force",
    )


def trial(found: said.PolicyTrial, limit: int) -> Any:
    """Decisions before and after, dearest first, and what both come to."""
    settings = _settings(found.settings) if found.settings else None
    head = line(
        f"{plural(found.changed, 'job')} of {found.jobs} would be decided otherwise"
        f" than under version {found.version}; nothing was done"
    )
    jobs = table(
        ("job", "name", "team", "now", "then", ">cloud now", ">cloud then", ">done", "why then"),
        (
            (
                each.job_id,
                each.name,
                each.team,
                _what(each.before),
                _what(each.after),
                dollars(each.before.cloud_usd),
                dollars(each.after.cloud_usd),
                _later(each.finish_change_s),
                each.after.sentence,
            )
            for each in found.changes[:limit]
        ),
    )
    more = found.changed - min(limit, len(found.changes))
    unknown = table(("could not be read",), ((each,) for each in found.unknown))
    return stack(
        settings,
        head,
        jobs if found.changes else None,
        line(f"and {more} more") if more > 0 else None,
        _sums(found),
        unknown if found.unknown else None,
    )


def _what(outlook: said.Outlook) -> str:
    return f"{outlook.verdict} {outlook.option}".rstrip()


def _later(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if abs(seconds) < 1:
        return "same"
    return f"{span(abs(seconds))} {'later' if seconds > 0 else 'sooner'}"


def _sums(found: said.PolicyTrial) -> Any:
    was, then = found.before, found.after
    return pairs(
        (
            ("to clouds", _moved(was.cloud_usd, then.cloud_usd)),
            ("held at once", _moved(was.held_now_usd, then.held_now_usd)),
            ("machines asked for", f"{was.machines_asked} → {then.machines_asked}"),
            ("runs stopped", f"{was.runs_stopped} → {then.runs_stopped}"),
            ("mean time to the end", f"{span(was.mean_finish_s)} → {span(then.mean_finish_s)}"),
            ("decisions", f"{_counts(was.verdicts)} → {_counts(then.verdicts)}"),
        )
    )


def _moved(before: Decimal, after: Decimal) -> str:
    return f"{dollars(before)} → {dollars(after)}"


def _counts(verdicts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()) or "none"


def _value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return (
        yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000)
        .removesuffix("\n...\n")
        .rstrip()
    )
