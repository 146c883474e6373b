"""Commands against a real server: what they print, and how they end."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hybrid.cli.exits import Exit
from hybrid.client import HybridClient
from hybrid.client.answers import Stored
from hybrid.services.state_dir import StateDir
from tests.unit.cli.conftest import Hybrid


@pytest.fixture
def job(asking: Hybrid) -> str:
    """A job that waits: there is no node."""
    return asking("submit", "--gpus", "0", "--name", "waits", "--", "true").out.strip()


def document(hybrid: Hybrid, *arguments: str) -> Any:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    ended = hybrid(*arguments[:end], "--output", "json", *arguments[end:])
    assert ended.code == Exit.OK, ended.err
    return json.loads(ended.out)


def test_a_submitted_job_is_listed_shown_explained_and_cancelled(asking: Hybrid, job: str) -> None:
    listing = asking("jobs", "--name", "waits")
    assert job in listing.out
    assert listing.out.splitlines()[0].split() == [
        "id", "name", "state", "where", "gpus", "team", "priority", "submitted", "cost", "why",
    ]  # fmt: skip
    assert asking("show", job).out.splitlines()[0] == f"job         {job}"
    assert job in asking("explain", job).out
    assert asking("explain", job, "--where", "local").out.startswith("Not in local: ")
    assert (
        "no pool, machine type or offer is 'nowhere'"
        in asking("explain", job, "--where", "nowhere").err
    )
    cancelled = asking("cancel", job)
    assert cancelled.out == f"{job} is cancelled\n"
    assert "cancelled" in asking("timeline", job).out
    assert asking("cancel", job).code == Exit.OK


def test_every_answer_can_be_had_as_the_server_gave_it(asking: Hybrid, job: str) -> None:
    shown = document(asking, "show", job)
    assert shown["id"] == job
    assert shown["cost_usd"] == "0.000000"
    assert shown["spec"]["command"] == ["true"]
    for arguments in (
        ("jobs",), ("explain", job), ("timeline", job), ("nodes", "list"), ("pools", "list"),
        ("pools", "show", "local"), ("offers",), ("claims",), ("budgets",), ("policy", "show"),
        ("token", "list"), ("quote", "--gpus", "0"),
    ):  # fmt: skip
        assert document(asking, *arguments)


def test_a_job_from_a_file_with_options_over_it(asking: Hybrid, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: [echo, hi]\nname: filed\nresources: {gpus: 1}\n")
    shown = document(asking, "submit", "-f", str(file), "--gpus", "0")
    assert (shown["name"], shown["gpus"]) == ("filed", 0)


def test_the_same_key_is_the_same_job_and_not_another_one(asking: Hybrid) -> None:
    arguments = ("submit", "--gpus", "0", "--idempotency-key", "k1", "--", "true")
    first = asking(*arguments)
    again = asking(*arguments)
    assert again.out == first.out
    assert "stood for the job already" in again.err
    other = asking(*arguments, "other")
    assert other.code == Exit.REFUSED
    assert "[idempotency_key_reused]" in other.err


def test_a_folder_is_sent_once(
    asking: Hybrid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.py").write_text(f"print({str(tmp_path)!r})")
    (folder / ".hybridignore").write_text("*.bin\n")
    sent: list[str] = []
    upload = HybridClient.upload

    def counted(self: HybridClient, digest: str, source: Path, **settings: Any) -> Stored:
        sent.append(digest)
        return upload(self, digest, source, **settings)

    monkeypatch.setattr(HybridClient, "upload", counted)
    arguments = ("submit", "--gpus", "0", "--workdir", str(folder), "--", "true")
    first = document(asking, *arguments)
    (folder / "data.bin").write_bytes(b"0" * 1000)  # it is ignored, so that nothing has changed
    again = document(asking, *arguments)
    assert first["id"] != again["id"]
    assert [first["spec"]["workdir"]] == sent
    assert again["spec"]["workdir"] == first["spec"]["workdir"]


def test_a_folder_with_a_link_that_leaves_it_is_refused_and_no_job_is_made(
    asking: Hybrid, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "out").symlink_to("/etc/passwd")
    ended = asking("submit", "--gpus", "0", "--workdir", str(folder), "--", "true")
    assert ended.code == Exit.USAGE
    assert ended.err == (
        "hybrid: the folder cannot travel: out: links to /etc/passwd, which is outside\n"
    )
    assert ended.out == ""


@pytest.mark.parametrize(
    ("arguments", "exit_", "said"),
    [
        (("show", "nothing"), Exit.NOT_FOUND, "there is no job nothing [no_such_job]"),
        (("logs", "nothing"), Exit.NOT_FOUND, "[no_such_job]"),
        (("outputs", "nothing"), Exit.NOT_FOUND, "[no_such_job]"),
        (("pools", "show", "nothing"), Exit.NOT_FOUND, "[no_such_pool]"),
        (("nodes", "cordon", "nothing"), Exit.NOT_FOUND, "[no_such_node]"),
        (("token", "revoke", "nothing"), Exit.NOT_FOUND, "[no_such_token]"),
        (("submit", "--gpu", "a1000000", "--", "true"), Exit.REFUSED, "[unknown_gpu]"),
        (("submit", "--gpus", "-1", "--", "true"), Exit.REFUSED, "resources.gpus"),
        (("submit", "--name", "NO", "--", "true"), Exit.REFUSED, "[invalid_request]"),
        (("submit",), Exit.USAGE, "there is no command to run"),
        (("submit", "-f", "/nothing"), Exit.USAGE, "/nothing: No such file or directory"),
        (("token", "create"), Exit.USAGE, "--role and --user, or --join POOL"),
        (("token", "create", "--join", "local", "--role", "admin"), Exit.USAGE, "no role"),
        (("policy", "preset", "nothing"), Exit.USAGE, "there are fifo, "),
        (("jobs", "--watch", "--output", "json"), Exit.USAGE, "--watch is for people"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    asking: Hybrid, arguments: tuple[str, ...], exit_: Exit, said: str
) -> None:
    ended = asking(*arguments)
    assert ended.code == exit_
    assert said in ended.err
    assert ended.err.startswith("hybrid: ")
    assert "Traceback" not in ended.err
    assert ended.out == ""


def test_a_token_is_printed_alone_so_that_scripts_can_keep_it(asking: Hybrid) -> None:
    made = asking("token", "create", "--role", "submitter", "--user", "ann", "--team", "red")
    assert made.out.startswith("hyb_")
    assert made.out.count("\n") == 1
    assert "shown once" in made.err
    listed = asking("token", "list").out
    assert "ann" in listed
    assert made.out.strip() not in listed


def test_a_submitter_sees_its_teams_jobs_alone_and_may_not_make_tokens(
    asking: Hybrid, job: str
) -> None:
    made = asking("token", "create", "--role", "submitter", "--user", "bob", "--team", "blue")
    token = made.out.strip()
    assert asking("show", job, "--token", token).code == Exit.NOT_FOUND
    refused = asking("token", "create", "--role", "admin", "--user", "bob", "--token", token)
    assert refused.code == Exit.REFUSED
    assert "[role_too_low]" in refused.err


def test_a_revoked_token_opens_nothing(asking: Hybrid) -> None:
    made = document(asking, "token", "create", "--role", "viewer", "--user", "eve")
    assert asking("token", "revoke", made["token"]["id"]).code == Exit.OK
    refused = asking("jobs", "--token", made["secret"])
    assert refused.code == Exit.REFUSED
    assert "[token_revoked]" in refused.err
    assert "--token or HYBRID_TOKEN" in refused.err


def test_a_join_token_is_for_a_pool(asking: Hybrid) -> None:
    made = document(asking, "token", "create", "--join", "local", "--valid-for", "1h")
    assert made["token"]["pool"] == "local"
    assert made["secret"].startswith("hybj_")


def test_pools_are_applied_listed_and_removed(asking: Hybrid, tmp_path: Path) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text("kind: local\nname: rack-a\n---\nkind: local\nname: rack-b\n")
    assert asking("pools", "apply", "-f", str(file)).out == "rack-a is new\nrack-b is new\n"
    assert "as the document says" in asking("pools", "apply", "-f", str(file)).out
    assert "rack-a" in asking("pools", "list").out
    assert asking("pools", "remove", "rack-a").out == "rack-a is removed\n"
    assert asking("pools", "show", "rack-a").code == Exit.NOT_FOUND


def test_a_pool_document_with_an_unknown_field_is_told_which(
    asking: Hybrid, tmp_path: Path
) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text("kind: local\nname: rack-c\nrate_per_gpu: 1\n")
    ended = asking("pools", "apply", "-f", str(file))
    assert ended.code == Exit.REFUSED
    assert "rate_per_gpu: unknown field" in ended.err
    assert "did you mean rate_per_gpu_hour" in ended.err


def test_a_policy_is_checked_then_applied_with_what_changes(asking: Hybrid, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("budgets:\n  - {name: all, limit_usd: 250}\n")
    assert "budgets" in asking("policy", "check", str(file)).out
    applied = asking("policy", "apply", str(file), "--why", "a first cap")
    assert applied.code == Exit.OK, applied.err
    assert "is in force: 1 change" in applied.out
    assert "$250.00" in asking("budgets").out
    assert "says the same already" in asking("policy", "apply", str(file)).out
    file.write_text("budgets: 3\n")
    refused = asking("policy", "check", str(file))
    assert refused.code == Exit.REFUSED
    assert "line 1" in refused.err


def test_a_policy_is_compared_with_what_is_decided_now_and_rolled_back(
    asking: Hybrid, job: str, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("budgets: [{name: all, limit_usd: 9}]\n")
    assert asking("policy", "apply", str(file), "--why", "nine").code == Exit.OK
    version = document(asking, "policy", "show")["version"]
    file.write_text("scheduling: fifo\n")
    compared = asking("policy", "diff", str(file))
    assert compared.code == Exit.OK, compared.err
    assert "would be decided otherwise" in compared.out
    assert "burst.enabled" in compared.out
    trial = document(asking, "policy", "diff", str(file))
    assert (trial["version"], trial["jobs"]) == (version, trial["changed"] + _same(trial))
    assert document(asking, "policy", "show")["version"] == version
    assert asking("policy", "apply", str(file), "--why", "calm").code == Exit.OK
    listed = asking("policy", "history", "--limit", "2").out.splitlines()
    assert [row.split()[-1] for row in listed] == ["why", "calm", "nine"]
    lost = asking("policy", "apply", str(file), "--over", str(version))
    assert (lost.code, "[policy_changed]" in lost.err) == (Exit.REFUSED, True)
    back = asking("policy", "rollback", "--why", "too calm")
    assert back.out == f"version {version + 2} is in force: what version {version} said\n"
    assert "limit_usd: 9" in asking("policy", "show").out
    assert asking("policy", "show", "--version", str(version + 1)).out == "scheduling: fifo\n"


def _same(trial: Any) -> int:
    return int(trial["jobs"]) - len(trial["changes"])


def test_a_file_is_looked_at_without_a_server(hybrid: Hybrid, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("scheduling: fifo\npriority_classes: {urgent: {preempts: true}}\n")
    looked = hybrid("policy", "check", "--offline", str(file))
    assert looked.code == Exit.OK, looked.err
    assert "class urgent may preempt, but preemption is switched off" in looked.out
    file.write_bytes(b"burst:\n  margin: 1 # \xff\n")
    broken = hybrid("policy", "check", "--offline", str(file))
    assert broken.code == Exit.REFUSED
    assert "line 2, column 15: not text in UTF-8 (save the file as UTF-8)" in broken.err
    file.write_text("burst: {margn: 1}\n")
    wrong = hybrid("policy", "check", "--offline", str(file))
    assert "line 1, column 9: burst.margn: there is no such field (did you mean" in wrong.err


def test_where_no_server_runs_a_file_is_looked_at_alone_and_that_is_said(
    hybrid: Hybrid, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("burst: {margn: 1}\n")
    wrong = hybrid("policy", "check", str(file))
    assert wrong.code == Exit.REFUSED
    assert "the file is looked at alone" in wrong.err
    assert "burst.margn: there is no such field (did you mean margin?)" in wrong.err
    file.write_text("scheduling: fifo\n")
    assert hybrid("policy", "check", str(file)).code == Exit.OK
    named = hybrid("policy", "check", str(file), "--server", "http://127.0.0.1:9")
    assert named.code == Exit.UNREACHABLE


def test_the_schema_of_policies_is_printed(hybrid: Hybrid) -> None:
    assert json.loads(hybrid("policy", "schema").out)["properties"]["budgets"]


def test_a_preset_is_a_policy(asking: Hybrid, tmp_path: Path) -> None:
    printed = asking("policy", "preset", "fifo")
    file = tmp_path / "fifo.yaml"
    file.write_text(printed.out)
    assert asking("policy", "check", str(file)).code == Exit.OK


def test_a_job_has_no_outputs_before_a_run_has_ended(asking: Hybrid) -> None:
    job = asking("submit", "--gpus", "0", "--output-path", "out", "--", "true").out.strip()
    ended = asking("outputs", job)
    assert ended.code == Exit.NOT_FOUND
    assert "its outputs come back when a run has ended" in ended.err


def test_the_logs_of_a_job_that_has_not_run_are_empty(asking: Hybrid, job: str) -> None:
    ended = asking("logs", job)
    assert (ended.code, ended.out) == (Exit.OK, "")


def test_following_a_cancelled_job_ends_with_1(asking: Hybrid, job: str) -> None:
    asking("cancel", job)
    assert asking("logs", "--follow", job).code == Exit.FAILED


def test_the_doctor_finds_the_server_and_the_token(asking: Hybrid) -> None:
    found = document(asking, "doctor")
    marks = {each["name"]: each["mark"] for each in found["checks"]}
    assert marks["server"] == marks["token"] == marks["clocks"] == "ok"
    assert marks["nodes"] == "note"


def test_the_doctor_without_a_server_says_so_and_fails(hybrid: Hybrid, tmp_path: Path) -> None:
    ended = hybrid("doctor", "--state-dir", str(tmp_path / "none"))
    assert ended.code == Exit.FAILED
    assert "no server runs in" in ended.out


def test_a_server_that_does_not_answer_is_named(hybrid: Hybrid) -> None:
    ended = hybrid("jobs", "--server", "http://127.0.0.1:9", "--token", "hyb_x")
    assert ended.code == Exit.UNREACHABLE
    assert ended.err.startswith("hybrid: no server answers at http://127.0.0.1:9: ")
    assert ended.err.count("\n") == 1


def test_openapi_is_the_servers_own(asking: Hybrid) -> None:
    assert json.loads(asking("openapi").out)["info"]["title"] == "hybrid"


def test_a_backup_of_a_running_server_is_whole_and_comes_back(
    asking: Hybrid, serving: Path, tmp_path: Path
) -> None:
    file, target = tmp_path / "saved.tar.gz", tmp_path / "back"
    saved = asking("backup", str(file))
    assert saved.code == Exit.OK, saved.err
    assert asking("backup", str(file)).code == Exit.USAGE
    in_use = asking("restore", str(file))
    assert in_use.code == Exit.CANNOT_START
    assert "a server runs in" in in_use.err
    restored = asking("restore", str(file), "--state-dir", str(target))
    assert restored.code == Exit.OK, restored.err
    assert StateDir(target).admin_token() == StateDir(serving).admin_token()


CUR = """\
bill_billing_period_start_date,bill_billing_period_end_date,line_item_usage_start_date,\
line_item_usage_end_date,line_item_usage_type,line_item_unblended_cost,resource_tags
2026-11-01T00:00:00Z,2026-12-01T00:00:00Z,2026-11-03T10:00:00Z,2026-11-03T11:00:00Z,\
SpotUsage:g5.xlarge,0.40,"{""user_hybrid_claim"": ""c-unknown""}"
2026-11-01T00:00:00Z,2026-12-01T00:00:00Z,2026-11-03T10:00:00Z,2026-11-03T11:00:00Z,\
BoxUsage:m5.large,3.25,
"""


def test_the_ledger_is_verified_and_a_bill_is_held_against_it(
    asking: Hybrid, tmp_path: Path
) -> None:
    assert "0 entries replayed" in asking("ledger", "verify").out
    file = tmp_path / "bill.csv.gz"
    file.write_bytes(gzip.compress(CUR.encode()))
    terms = ("--format", "aws-cur", "--provider", "aws")
    shown = asking("ledger", "compare", str(file), *terms)
    assert shown.code == Exit.OK, shown.err
    assert "c-unknown" in shown.out
    assert "without a tag  $3.25" in shown.out
    imported = document(asking, "ledger", "import", str(file), *terms)
    assert (imported["settled"], imported["untagged_usd"]) == (0, "3.250000")
    file.write_text("a,b\n1,2\n")
    wrong = asking("ledger", "compare", str(file), *terms)
    assert (wrong.code, "row 1: no column" in wrong.err) == (Exit.REFUSED, True)
    other = asking("ledger", "compare", str(file), "--format", "x", "--provider", "aws")
    assert (other.code, "there are aws-cur, gcp-export" in other.err) == (Exit.USAGE, True)


def test_usage_is_home_and_cloud_in_one_number(asking: Hybrid, job: str) -> None:
    shown = asking("usage")
    assert shown.code == Exit.OK, shown.err
    assert shown.out.splitlines()[0].split()[:2] == ["team", "jobs"]
    assert "saved by bursting against waiting  $0.00" in shown.out
    assert document(asking, "usage", "--since", "2026-01-01")["total_cost_usd"] == "0.000000"
