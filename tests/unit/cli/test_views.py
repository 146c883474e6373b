"""Tables: what is in them, on a terminal and elsewhere."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid.cli import money_views, place_views, policy_views, views
from hybrid.cli.tables import write
from hybrid.client import answers as said
from hybrid.domain.job import JobState
from hybrid.domain.money import to_usd
from tests.doubles.answers import AT, job, run

OFFER = {
    "id": "o1", "pool": "spot", "zone": "us-east-1a", "machine_type": "p4d.24xlarge",
    "market": "spot", "gpus": 8, "gpu_model": "a100-sxm4-40gb", "price_usd_per_hour": "9.831000",
    "price_ceiling_usd_per_hour": "12.000000", "priced_at": AT, "interruptions_per_hour": 0.05,
    "boot_s": 120.0,
}  # fmt: skip


class Terminal(io.StringIO):
    """Somewhere that people look at."""

    def isatty(self) -> bool:
        return True


def text(shown: Any) -> list[str]:
    out = io.StringIO()
    write(shown, out)
    return out.getvalue().splitlines()


def words(line: str) -> list[str]:
    return line.split()


def test_a_listing_elsewhere_than_on_a_terminal_is_as_wide_as_it_is_and_without_colour() -> None:
    sentence = "waits for GPUs " * 30
    decision = {
        "at": datetime.now(UTC),
        "verdict": "wait",
        "sentence": sentence,
        "chosen": "",
        "reason": None,
    }
    lines = text(views.jobs([said.JobLine.model_validate(job("pending", decision=decision))]))
    assert len(lines) == 2
    assert lines[1].endswith(sentence.rstrip())
    assert "\x1b" not in "".join(lines)


def test_a_sentence_that_was_said_a_while_ago_says_so() -> None:
    now = datetime.now(UTC)
    said_of = {"verdict": "wait", "sentence": "waits, expected in 9m", "chosen": "", "reason": None}
    lately, before = (
        said.JobLine.model_validate(job("pending", decision={**said_of, "at": at}))
        for at in (now - timedelta(seconds=30), now - timedelta(minutes=15))
    )
    assert views.why(lately, now) == "waits, expected in 9m"
    assert views.why(before, now) == "waits, expected in 9m (as of 15m00s ago)"


def test_a_listing_on_a_terminal_fits_it_and_has_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    decision = {"at": AT, "verdict": "wait", "sentence": "w " * 200, "chosen": "", "reason": None}
    write(views.jobs([said.JobLine.model_validate(job("pending", decision=decision))]), out)
    bare = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert bare != out.getvalue()
    assert max(map(len, bare.splitlines())) <= 120


def test_nothing_is_said_in_words() -> None:
    assert text(views.jobs([])) == ["no jobs"]
    assert text(place_views.claims(said.ClaimList(claims=()))) == ["no cloud machines"]


def test_a_name_with_control_characters_does_not_reach_the_terminal() -> None:
    evil = said.JobLine.model_validate(job("failed", reason="\x1b]0;mine\x07 [red]x"))
    assert "·]0;mine· [red]x" in text(views.jobs([evil]))[1]


def test_a_gang_and_its_runs_are_shown() -> None:
    progress = {"step": 5, "total": 10}
    first = run(1, "ended", stop_cause="interruption", exit_code=85, gpu_model="h100-sxm5-80gb")
    second = run(
        2, "running", progress=progress, price_usd_per_hour="9.831000", gpu_model="unheard-of"
    )
    shown = said.Job.model_validate(
        job("running", first, second, nodes=2, gpus=8, wait_s=61.0, cost_usd="1.005000",
            checkpoint={"seq": 1, "step": 4, "committed_at": AT, "size_bytes": 1})
    )  # fmt: skip
    lines = text(views.job(shown))
    assert "asks for    2 nodes with 8 GPUs each" in lines
    assert "waited      1m01s" in lines
    assert "cloud cost  $1.00" in lines
    assert not any("not safe" in line for line in lines)
    first_line, second_line = lines[-2:]
    assert "H100 SXM5 80GB" in first_line
    assert words(first_line)[-2:] == ["85", "interruption"]
    assert "$9.83" in second_line
    assert "unheard-of" in second_line
    assert words(second_line)[-1] == "5/10"


def test_a_job_whose_saves_do_not_arrive_says_why() -> None:
    full = "the checkpoint store is full: no space left on device"
    shown = said.Job.model_validate(
        job("running", run(1, "ended", checkpoint_problem="x"), run(2, "running"))
    )
    assert not any("not safe" in line for line in text(views.job(shown)))
    shown = said.Job.model_validate(job("running", run(1, "running", checkpoint_problem=full)))
    assert f"saves       not safe: {full}" in text(views.job(shown))


def test_options_show_what_they_cost_or_what_refused_them() -> None:
    chosen = {
        "option": "offer:o1", "label": "spot a100", "chosen": True, "members": 3,
        "start_p50_at": AT, "start_p90_at": "2030-01-01T00:10:00Z", "finish_at": AT,
        "terms": [{"name": "machine", "usd": "2.000000"}, {"name": "end_tail", "usd": "0.500000"},
                  {"name": "egress", "usd": "0.000000"}],
        "total_usd": "2.500000", "refused": None,
    }  # fmt: skip
    refused = {
        **chosen, "option": "pool:local", "label": "local", "chosen": False, "members": 1,
        "start_p50_at": None, "start_p90_at": None, "finish_at": None, "terms": [],
        "total_usd": None, "refused": {"code": "x", "text": "too late"},
    }  # fmt: skip
    found = said.Explanation.model_validate(
        {
            "job_id": "j", "state": "pending", "at": AT, "verdict": "burst", "sentence": "bursts",
            "chosen": "offer:o1", "reason": None, "alternatives": [chosen, refused],
        }
    )  # fmt: skip
    lines = text(views.explanation(found))
    assert lines[0] == "Bursts."
    assert lines[-4].startswith("→  spot a100 (and 2 like it)")
    assert lines[-4].endswith("$2.50  machine $2.00, end tail $0.50")
    assert "at p90)" in lines[-4]
    assert words(lines[-3]) == ["local", "–", "–", "–", "too", "late"]
    assert lines[-1].startswith("(j, pending, decided ")
    ended = found.model_copy(update={"state": JobState.SUCCEEDED})
    assert text(views.explanation(ended))[0] == (
        "The job has ended: it is succeeded. What was decided last: Bursts."
    )


MICROS = st.integers(-(10**9), 10**9)


@given(st.lists(MICROS, min_size=1, max_size=10))
def test_terms_as_shown_add_up_to_the_total_as_shown(micros: list[int]) -> None:
    option = said.Alternative.model_validate(
        {
            "option": "offer:o", "label": "o", "chosen": False, "members": 1, "refused": None,
            "start_p50_at": None, "start_p90_at": None, "finish_at": None,
            "terms": [{"name": "t", "usd": f"{to_usd(each):.6f}"} for each in micros],
            "total_usd": f"{to_usd(sum(micros)):.6f}",
        }
    )  # fmt: skip
    row = views.option_cells(option)
    total, terms = row[-2], row[-1]
    shown = [amount(term.removeprefix("t ")) for term in terms.split(", t ") if term]
    assert sum(shown, Decimal(0)) == amount(total)


def amount(shown: str) -> Decimal:
    """What is shown as money; less than a cent is nothing."""
    return Decimal(0) if "<" in shown else Decimal(shown.replace("$", "").replace(",", ""))


def test_offers_what_is_ignored_and_who_could_not_be_asked() -> None:
    on_demand = {**OFFER, "market": "on_demand", "gpus": 0}
    found = said.OfferList.model_validate(
        {
            "offers": [OFFER, on_demand],
            "ignored": [{"what": "p5", "why": "not allowed"}],
            "unknown": ["aws: no answer"],
        }
    )
    lines = text(place_views.offers(found))
    assert "8× A100 SXM4 40GB" in lines[1]
    assert "5.0%" in lines[1]
    assert words(lines[2])[:6] == [
        "spot",
        "p4d.24xlarge",
        "on-demand",
        "us-east-1a",
        "none",
        "$9.83",
    ]
    assert lines[-4:] == ["p5       not allowed", "", "could not be read", "aws: no answer"]


def test_an_offer_says_what_closes_it_until_when_and_whence_an_old_price_is() -> None:
    breaker = {"scope": "boot:spot", "cause": "3 machines in a row never joined"}
    later = {**breaker, "until": (datetime.now(UTC) + timedelta(minutes=5)).isoformat()}
    past = {**breaker, "until": (datetime.now(UTC) - timedelta(minutes=5)).isoformat()}
    stale = {"price_source": "pricing API, not renewed since", "price_pressure": 2.0}
    found = said.OfferList.model_validate(
        {
            "offers": [{**OFFER, **stale, "breaker": later}, {**OFFER, "breaker": past}, OFFER],
            "ignored": [],
            "unknown": [],
        }
    )
    lines = text(place_views.offers(found))
    assert "10.0%" in lines[1], "5 % an hour, doubled by what its price does"
    assert "not renewed since" in lines[1]
    assert lines[1].endswith("boot:spot: 3 machines in a row never joined")
    assert "until " in lines[1]
    assert lines[2].endswith("one at a time: boot:spot: 3 machines in a row never joined")
    assert "boot:spot" not in lines[3]


def test_a_claim_that_its_cloud_takes_says_when() -> None:
    claim = {
        "id": "c1", "state": "cordoned", "pool": "spot", "offer": OFFER, "job_id": "j",
        "team": "red", "machine_id": "i-1", "node_id": None, "requested_at": AT,
        "launched_at": AT, "lease_until": AT, "notice_at": AT, "ended_at": None,
        "held_usd": "1.000000", "charged_usd": "0.000000", "cause": "a notice",
    }  # fmt: skip
    going = said.Claim.model_validate(claim)
    gone = said.Claim.model_validate({**claim, "ended_at": AT, "charged_usd": "0.250000"})
    hint = {**claim, "notice_at": None, "rebalance_at": AT}
    hinted = said.Claim.model_validate(hint)
    lines = text(place_views.claims(said.ClaimList(claims=(going, gone, hinted))))
    assert "its cloud takes it" in lines[1]
    assert "its cloud recommends to leave it" in lines[3]
    assert words(lines[2])[-5:] == ["–", "$1.00", "$0.25", "a", "notice"]


def test_a_budget_that_is_overdrawn_says_so() -> None:
    budget = said.Budget.model_validate(
        {
            "name": "all", "scope": "team", "subject": "red", "period": "month",
            "period_start_at": AT, "limit_usd": "10", "charged_usd": "11", "held_usd": "0",
            "free_usd": "-1", "overdrawn": True, "period_end_at": None,
            "burn_usd_per_hour": "1.5", "mean_usd_per_hour": "1.25", "runs_out_p50_at": None,
            "runs_out_p90_at": None, "held_claims": 2,
            "top_spenders": [{"team": "red", "user": "ann", "charged_usd": "11"}],
            "holds": [{
                "claim_id": "c1", "job_id": "j1", "team": "red", "user": "ann",
                "what": "g5.xlarge on_demand", "held_usd": "0.9", "lease_until": AT,
            }],
        }
    )  # fmt: skip
    lines = text(money_views.budgets(said.BudgetList(budgets=(budget,))))
    assert words(lines[1]) == [
        "all", "team", "red", "month", "$10.00", "$11.00", "$0.00", "-$1.00", "$1.50", "$1.25",
        "–", "–", "overdrawn",
    ]  # fmt: skip
    assert "all, charged most: ann of red $11.00" in lines
    assert words(lines[-3])[:5] == ["c1", "g5.xlarge", "on-demand", "j1", "ann"]
    assert lines[-1] == "and 1 machine more"


def test_a_node_that_is_not_well_says_what_is_wrong() -> None:
    gpu = {
        "id": "g", "index": 0, "model": "a100-pcie-80gb", "memory_gib": 80.0, "healthy": False,
        "health_reason": "fell off the bus", "virtual": False, "run_ids": ["j.1"],
    }  # fmt: skip
    node = said.Node.model_validate(
        {
            "id": "n1", "pool": "local", "engine": "agent", "state": "cordoned", "hostname": "h",
            "claim_id": "c1", "joined_at": AT, "gpus": [gpu], "cpus": 8.0, "memory_gib": 64.0,
            "container_runtimes": [], "cordon_cause": "by ann", "run_ids": ["j.1"],
        }
    )  # fmt: skip
    line = text(place_views.nodes(said.NodeList(nodes=(node,))))[1]
    assert line.endswith("by ann; GPU 0: fell off the bus; c1")
    assert "1× A100 PCIe 80GB  " in line
    assert " 1/1 " in line


def test_a_node_says_which_mig_instances_would_still_fit() -> None:
    room = [{"profile": "1g.10gb", "starts": [4, 5]}, {"profile": "2g.20gb", "starts": [4]}]
    key = "a100-sxm4-80gb"
    node = said.Node.model_validate(
        {
            "id": "n1", "pool": "local", "engine": "agent", "state": "ready", "hostname": "h",
            "claim_id": None, "joined_at": AT, "gpus": [], "cpus": 8.0, "memory_gib": 64.0,
            "parted": [{"id": "g", "index": 0, "model": key, "room": room},
                       {"id": "h", "index": 1, "model": key, "room": []}],
            "container_runtimes": [], "cordon_cause": "", "run_ids": [],
        }
    )  # fmt: skip
    line = text(place_views.nodes(said.NodeList(nodes=(node,))))[1]
    assert line.endswith("GPU 0 has room for 1g.10gb or 2g.20gb")


def test_what_a_policy_changes_is_listed() -> None:
    change = said.Change(path="burst.enabled", before=None, after={"a": [1]})
    lines = text(policy_views.check(said.PolicyCheck(version=3, changes=(change,), warnings=())))
    assert lines[-1] == "burst.enabled  –     {a: [1]}"
