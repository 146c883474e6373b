"""The job contract's page agrees with the code, and its example does what it says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from hybrid.agent.archive.entries import DEFAULT_LIMIT_BYTES
from hybrid.agent.launch.environment import (
    _AGENTS_OWN,
    INHERITED,
    MAX_SECRET_BYTES,
    RESERVED,
    Contract,
    Gang,
    GpuPart,
)
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.run import EXIT_CHECKPOINTED
from hybrid.reconcile.rules import SyncRules
from hybrid.reconcile.run_ends import _REQUEUE

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "job-contract.md").read_text()
EXAMPLE = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)[0]


def test_every_variable_of_the_contract_stands_on_the_page_and_no_other():
    gang = Gang(master_addr="a", master_port=1, node_rank=0, nnodes=2)
    contract = Contract(
        job_id="j",
        run_id="r",
        attempt=1,
        resume=False,
        checkpoint_dir=Path("/c"),
        progress_file=Path("/p"),
        gang=gang,
        part=GpuPart(share=0.5, memory_gib=10),
    )
    rows = [line for line in TEXT.splitlines() if line.startswith("| `") and line.count("|") == 3]
    told = {name for row in rows for name in re.findall(r"`([A-Z][A-Z_]+)`", row.split("|")[1])}
    assert told == set(contract.variables())
    assert set(RESERVED) <= told


def test_what_is_inherited_and_what_is_the_agents_own_stand_on_the_page():
    prose = " ".join(TEXT.split())
    inherited = prose.partition("process inherits ")[2].partition(";")[0]
    assert re.findall(r"`(\w+)`", inherited) == list(INHERITED)
    own = prose.partition("own credentials (")[2].partition(")")[0]
    assert re.findall(r"`(\w+)…`", own) == list(_AGENTS_OWN)


def test_limits_and_codes_are_those_of_the_code():
    assert "| 85 |" in TEXT
    assert EXIT_CHECKPOINTED == 85
    assert DEFAULT_LIMIT_BYTES == 512 << 20
    assert MAX_SECRET_BYTES == 64 << 10
    assert SyncRules().problem_retries == 2


def test_the_causes_that_move_a_job_are_those_of_the_code():
    told = TEXT.partition("stopped to be moved (")[2].partition(")")[0]
    assert set(re.findall(r"`(\w+)`", told)) == {str(cause) for cause in _REQUEUE}


def test_the_secrets_shown_are_secrets():
    block = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)[0]
    spec = JobSpec.model_validate({"command": ["true"], **yaml.safe_load(block)})
    assert spec.secrets["HF_TOKEN"].file == "/etc/hybrid/secrets/hf-token"


def test_the_example_is_stopped_saves_and_goes_on_to_the_same_sum(tmp_path):
    program = tmp_path / "count.py"
    program.write_text(EXAMPLE)
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
        "PYTHONPATH": str(ROOT),
        "HYBRID_CHECKPOINT_DIR": str(tmp_path / "checkpoint"),
        "HYBRID_PROGRESS_FILE": str(tmp_path / "progress.json"),
    }
    command = [sys.executable, str(program), "120"]
    first = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "progress.json").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        first.send_signal(signal.SIGTERM)
        assert first.wait(30) == EXIT_CHECKPOINTED
    finally:
        first.kill()
        first.communicate()
    saved = json.loads((tmp_path / "checkpoint" / "state.json").read_text())["step"]
    assert 0 < saved < 120
    second = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert second.stdout == f"resumed from step {saved}\nthe sum is {sum(range(120))}\n"
    assert json.loads((tmp_path / "progress.json").read_text())["step"] == 120
