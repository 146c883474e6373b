"""The reference page says what the models say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from policies.document import PolicyDocument
from policies.loading import parse_policy
from policies.reference import page
from policies.schema import schema_text

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "policy.md"


def test_the_page_is_current():
    assert PAGE.read_text() == page(), "python -m policies.reference > docs/reference/policy.md"


def test_the_published_schema_is_current():
    published = PAGE.with_name("policy.schema.json").read_text()
    assert published == schema_text(), (
        "python -m policies.schema > docs/reference/policy.schema.json"
    )


def test_the_module_prints_the_page():
    done = subprocess.run(
        [sys.executable, "-m", "policies.reference"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == page()


def test_every_section_and_field_stands_on_the_page():
    text = page()
    for name, info in PolicyDocument.model_fields.items():
        assert f"\n## {name}\n" in text
        for model in (info.annotation,):
            for field in getattr(model, "model_fields", {}):
                assert f"| `{field}` |" in text


def test_every_example_on_the_page_is_a_policy():
    blocks = page().split("```yaml\n")[1:]
    assert len(blocks) == 6
    for block in blocks:
        text = block.split("```")[0]
        assert (
            parse_policy(text).scheduling.strategy == yaml.safe_load(text)["scheduling"]["strategy"]
        )
