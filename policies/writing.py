"""A policy document as text that reads back as the same document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from policies.document import PolicyDocument
from policies.presets import ABOUT, PRESETS
from policies.sections import Strategy
from policies.yaml_source import add_core_scalars


class _Dumper(yaml.SafeDumper):
    """Quotes what either version of YAML would take for something other than text."""


add_core_scalars(_Dumper)


def to_yaml(policy: PolicyDocument) -> str:
    """All that holds under ``policy``, what was not written included, section by section."""
    return _dumped(policy.model_dump(mode="json"))


def preset(strategy: Strategy) -> str:
    """What a strategy's name stands for, as a document to start from."""
    settings = {"scheduling": {"strategy": str(strategy)}, **_plain(PRESETS[strategy])}
    return f"# {ABOUT[strategy]}\n{_dumped(settings)}"


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _plain(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
    }


def _dumped(data: Any) -> str:
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text
