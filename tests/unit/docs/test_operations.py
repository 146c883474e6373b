"""The operations page names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from api.metrics import Numbers
from hybrid.agent.config import AgentConfig
from hybrid.bootstrap import build
from hybrid.cli.exits import Exit
from hybrid.cli.main import SECTIONS
from hybrid.cli.saving import FILES, FOLDERS
from hybrid.config import Settings, load_settings
from hybrid.ports.access import Role

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "operations.md").read_text()


def test_every_metric_stands_on_the_page_and_no_other(tmp_path):
    product = build(load_settings(state_dir=tmp_path / "state"), url="http://127.0.0.1:1")
    try:
        there = {metric.name for metric in Numbers(product).collect()}
    finally:
        product.stop()
    assert set(re.findall(r"`(hybrid_\w+)`", TEXT)) == there


def test_every_role_stands_on_the_page():
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \|$", TEXT, re.MULTILINE)
    assert {str(role) for role in Role} <= set(rows)


def test_every_command_named_is_one():
    there = {name for section in SECTIONS.values() for name in section}
    assert set(re.findall(r"hybrid ([a-z]+)[ `]", TEXT.partition("# Operations")[2])) - there <= {
        "server",
        "node",
    }


def test_every_setting_named_is_one():
    there = {*Settings.model_fields, *AgentConfig.model_fields}
    told = set(re.findall(r"`([a-z]+_[a-z_]+)`", TEXT))
    told -= {each for each in told if each.startswith("hybrid_")}
    assert told - there <= {"pg_dump", "break_even"}
    block = next(
        b
        for b in re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
        if "host:" in b
    )
    assert set(yaml.safe_load(block)) <= set(Settings.model_fields)


def test_what_a_state_directory_holds_stands_on_the_page():
    for name in (*FILES, "hybrid.db", "server.json", "server.lock"):
        assert f"`{name}`" in TEXT
    for name in FOLDERS:
        assert f"`{name}/`" in TEXT


def test_the_exit_codes_that_no_restart_mends():
    assert (Exit.USAGE, Exit.CANNOT_START) == (2, 6)
    assert TEXT.count("RestartPreventExitStatus=2 6") == 2
