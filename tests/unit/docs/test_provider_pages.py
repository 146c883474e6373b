"""The pages about providers agree with their code, and their documents are documents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hybrid.config import Settings
from hybrid.domain.breaker import FIRST_WAIT_S, LONGEST_WAIT_S
from hybrid.domain.pool_spec import POOL_SPEC, Gangs
from providers.aws.errors import CODES, Scopes, typed
from providers.aws.requests import TAG_INSTALLATION
from providers.gcp.errors import CODES as GCE_CODES
from providers.gcp.permissions import PERMISSIONS
from providers.gcp.provider import LAUNCH_S
from providers.gcp.requests import LONGEST_RUN_S
from providers.sandbox.config import FaultRule, SandboxConfig

ROOT = Path(__file__).parents[3]
AWS = (ROOT / "docs" / "providers" / "aws.md").read_text()
GCP = (ROOT / "docs" / "providers" / "gcp.md").read_text()
SANDBOX = (ROOT / "docs" / "providers" / "sandbox.md").read_text()


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_table_of_codes_is_the_one_in_use():
    told = {}
    for line in AWS.partition("## Error codes")[2].splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 5 and cells[1].startswith("`"):
            told |= dict.fromkeys(re.findall(r"`([^`]+)`", cells[1]), cells[2])
    assert told == {code: str(kind) for code, kind in CODES.items()}


@pytest.mark.parametrize(
    ("code", "closed", "scope"),
    [
        ("InsufficientInstanceCapacity", "the offer", "offer:"),
        ("InsufficientFreeAddressesInSubnet", "the zone", "zone:"),
        ("VcpuLimitExceeded", "region × family × market", "quota:"),
        ("SlowDown", "the provider", "provider:"),
        ("AuthFailure", "the provider", "provider:"),
        ("InvalidSubnet", "the offer", "offer:"),
    ],
)
def test_what_a_code_closes_is_what_the_page_says(code, closed, scope):
    scopes = Scopes(provider="p", region="r", zone="z", offer="o", family="f", market="spot")
    error: Any = typed(code, "", scopes)
    assert error.scope.startswith(scope)
    row = next(line for line in AWS.splitlines() if f"`{code}`" in line and line.startswith("|"))
    assert row.split("|")[3].strip() == closed


def test_the_breakers_waits_are_those_of_the_code():
    assert (FIRST_WAIT_S, LONGEST_WAIT_S) == (15.0, 1800.0)
    assert "open for 15 seconds" in AWS
    assert "up to half an hour" in AWS


def test_the_permissions_cover_every_call_that_is_made():
    policy = json.loads(_blocks(AWS, "json")[0])
    allowed = set()
    for statement in policy["Statement"]:
        actions = statement["Action"]
        allowed |= set([actions] if isinstance(actions, str) else actions)
    code = "\n".join(path.read_text() for path in (ROOT / "providers" / "aws").glob("*.py"))
    called = set(re.findall(r"get_paginator\(\s*\"(\w+)\"\)", code))
    called |= set(re.findall(r"(?:_reads|_writes|\bec2)\.(\w+)\(", code)) - {"get_paginator"}
    called |= set(re.findall(r"_pricing\.(\w+)\(", code))
    # the actions of a batch are those of its messages
    called |= {each.removesuffix("_batch") for each in re.findall(r"_sqs\.(\w+)\(", code)}
    assert len(called) >= 8
    names = {"".join(word.capitalize() for word in each.split("_")) for each in called}
    assert names <= {each.partition(":")[2] for each in allowed}
    # and nothing besides but what a launch brings with it
    brought = {"CreateTags", "PassRole"}
    assert {each.partition(":")[2] for each in allowed} - names == brought


def test_ending_machines_is_allowed_for_our_own_only():
    policy = json.loads(_blocks(AWS, "json")[0])
    ending = [s for s in policy["Statement"] if "ec2:TerminateInstances" in s["Action"]]
    assert [s["Condition"]["StringEquals"] for s in ending] == [
        {f"aws:ResourceTag/{TAG_INSTALLATION}": "INSTALLATION"}
    ]


def test_the_pool_and_the_settings_shown_are_documents(tmp_path):
    settings, pool, gangs = _blocks(AWS, "yaml")
    assert Gangs.model_validate(yaml.safe_load(gangs)["gangs"]).efa
    loaded = Settings(state_dir=tmp_path, **yaml.safe_load(settings))
    spec = POOL_SPEC.validate_python(yaml.safe_load(pool))
    assert spec.provider == loaded.providers[0].name
    assert spec.region == loaded.providers[0].region


def test_the_sandboxes_documents_are_documents(tmp_path):
    settings, config = _blocks(SANDBOX, "yaml")
    assert Settings(state_dir=tmp_path, **yaml.safe_load(settings)).providers[0].kind == "aws"
    made = SandboxConfig.model_validate(yaml.safe_load(config))
    defaults = SandboxConfig()
    assert (made.spot_share, made.machine_limit) == (defaults.spot_share, defaults.machine_limit)
    assert made.spot_notice_s == defaults.spot_notice_s
    FaultRule.model_validate_json(_blocks(SANDBOX, "json")[0])


def test_every_order_of_the_control_api_stands_on_the_page():
    code = (ROOT / "providers" / "sandbox" / "control_api.py").read_text()
    orders = re.findall(r"^            \"([a-z/-]+)\": self\._", code, re.MULTILINE)
    assert len(orders) >= 12
    told = set(re.findall(r"`POST ([a-z/-]+)`", SANDBOX))
    assert told == set(orders)


# --- Google Compute Engine --------------------------------------------------------------------


def test_the_google_pages_table_of_codes_is_the_one_in_use():
    told = {}
    for line in GCP.partition("## Error codes")[2].splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 5 and cells[1].startswith("`"):
            told |= dict.fromkeys(re.findall(r"`([^`]+)`", cells[1]), cells[2])
    assert told == {code: str(kind) for code, kind in GCE_CODES.items()}


def test_the_custom_role_is_what_the_provider_asks_for_and_nothing_besides():
    role = yaml.safe_load(_blocks(GCP, "yaml")[1])
    assert role["includedPermissions"] == sorted(PERMISSIONS)


def test_the_google_pool_and_the_settings_shown_are_documents(tmp_path):
    settings, _, pool = _blocks(GCP, "yaml")
    loaded = Settings(state_dir=tmp_path, **yaml.safe_load(settings))
    spec = POOL_SPEC.validate_python(yaml.safe_load(pool))
    assert spec.provider == loaded.providers[0].name
    assert spec.region == loaded.providers[0].region
    assert all(zone.name.startswith(f"{spec.region}-") for zone in spec.zones)


def test_the_days_and_seconds_of_the_google_page_are_those_of_the_code():
    assert LONGEST_RUN_S == 90 * 86_400
    assert "90 days after its start" in GCP
    assert f"up to {LAUNCH_S:.0f} seconds" in GCP


def test_the_terraform_modules_grant_what_the_pages_ask_and_nothing_besides():
    modules = ROOT / "terraform" / "modules"
    gcp = (modules / "gcp-burst-pool" / "main.tf").read_text()
    role = gcp.partition("permissions = [")[2].partition("]")[0]
    assert re.findall(r'"([\w.]+)"', role) == sorted(PERMISSIONS)
    aws = (modules / "aws-burst-pool" / "main.tf").read_text()
    server = aws.partition('"aws_iam_policy_document" "server"')[2]
    granted = set(re.findall(r'"((?:ec2|pricing|servicequotas|iam|sqs):[A-Z]\w+)"', server))
    granted -= {"ec2:LaunchTemplate", "ec2:CreateAction", "iam:PassedToService"}
    policy = json.loads(_blocks(AWS, "json")[0])
    asked = set()
    for statement in policy["Statement"]:
        actions = statement["Action"]
        asked |= set([actions] if isinstance(actions, str) else actions)
    assert granted == asked
