"""The reference page of the policy document, made from its models.

``python -m policies.reference > docs/reference/policy.md``
"""

from __future__ import annotations

import sys
import types
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AwareDatetime, BaseModel, SecretStr
from pydantic.fields import FieldInfo

from hybrid.domain.quantities import format_duration, parse_duration_s, parse_gib, parse_gpu_gib
from policies.document import PolicyDocument
from policies.presets import CLASSES
from policies.sections import Strategy
from policies.writing import preset

_HEAD = """# Policy document

<!-- Made by `python -m policies.reference`: change the models, not this page. -->

One YAML file says how jobs are ordered, placed, sent to a cloud, preempted and brought home. Every
section and every field may be left out; an empty file is a valid policy under which nothing is
spent, since no budget says how much. An unknown field, a key given twice and a name that nothing
bears are refused with line, column and the nearest valid name. Scalars are read as YAML 1.2 has
them: `no` and `22:00` are text.

Durations are seconds or text such as `45s`, `30m`, `1h30m`, `2d`; sizes are GiB or text such as
`40GiB`; amounts are US dollars.
"""


def page() -> str:
    """The whole page, in Markdown."""
    parts = [_HEAD, _sections(PolicyDocument)]
    for name, info in PolicyDocument.model_fields.items():
        for model in _models_in(info.annotation):
            parts.extend(chapters(name, model))
    parts.append(_presets())
    return "\n".join(parts)


def _sections(model: type[BaseModel]) -> str:
    rows = [
        f"| [`{name}`](#{name}) | {_about(info)} |" for name, info in model.model_fields.items()
    ]
    return "\n".join(["## Sections", "", "| section | says |", "|---|---|", *rows, ""])


def _about(info: FieldInfo) -> str:
    first = next(_models_in(info.annotation), None)
    doc = (first.__doc__ or "") if first is not None else ""
    text = _prose(doc)
    return f"{text} {info.description}" if info.description else text


def _prose(doc: str) -> str:
    return " ".join(doc.split()).replace("``", "`")


def chapters(path: str, model: type[BaseModel]) -> list[str]:
    """One model's table in Markdown, then those of the models its fields hold."""
    lines = [f"## {path}", "", _prose(model.__doc__ or ""), ""]
    lines += ["| field | type | default | meaning |", "|---|---|---|---|"]
    for name, info in model.model_fields.items():
        meaning = " ".join(filter(None, (info.description, _bounds(info), _examples(info))))
        lines.append(f"| `{name}` | {_type(info)} | {_default(info)} | {meaning} |")
    if model.__name__ == "PriorityClass":
        lines += ["", *_classes()]
    parts = ["\n".join([*lines, ""])]
    for name, info in model.model_fields.items():
        for inner in _models_in(info.annotation):
            parts += chapters(f"{path}.{name}", inner)
    return parts


def _classes() -> list[str]:
    keys = ("rank", "value_per_hour", "max_wait", "preempts")
    rows = [
        f"| `{name}` | " + " | ".join(str(given.get(key, False)).lower() for key in keys) + " |"
        for name, given in CLASSES.items()
    ]
    head = "| class | " + " | ".join(keys) + " |"
    return ["Built in, and refined by what is written under the same name:", "", head,
            "|---|---|---|---|---|", *rows]  # fmt: skip


def _presets() -> str:
    parts = ["## Presets", "", "`scheduling: NAME` is short for these settings; what is written"]
    parts += ["beside it goes before them.", ""]
    for strategy in Strategy:
        parts += [f"### {strategy}", "", "```yaml", preset(strategy).rstrip(), "```", ""]
    return "\n".join(parts)


def _models_in(annotation: Any) -> Any:
    """The models that a field of this type holds, however wrapped."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def _type(info: FieldInfo) -> str:
    return _quantity(info.metadata) or _named(info.annotation)


_NAMES = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Any: "anything",
    Decimal: "amount",
    Path: "path",
    SecretStr: "text, kept secret",
    AwareDatetime: "instant with its offset",
    datetime: "instant",
}
_QUANTITIES: dict[Any, str] = {
    parse_duration_s: "duration",
    parse_gib: "size",
    parse_gpu_gib: "size",
}


def _quantity(metadata: Any) -> str | None:
    """The name of a type that is written with its unit."""
    found = (_QUANTITIES.get(getattr(each, "func", None)) for each in metadata)
    return next(filter(None, found), None)


def _named(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _quantity(inner[1:]) or _named(inner[0])
    if origin in (Union, types.UnionType):
        return " or ".join(_named(a) for a in inner if a is not type(None))
    if origin is tuple:
        return f"list of {_named(inner[0])}"
    if origin is dict:
        return f"mapping of names to {_named(inner[1])}"
    if origin is Literal:
        return " \\| ".join(f"`{each}`" for each in inner)
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return " \\| ".join(f"`{member}`" for member in annotation)
    return _NAMES.get(annotation) or _spaced(annotation.__name__)


def _spaced(name: str) -> str:
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "see below"
    if value is None:
        return "none"
    if value in ((), {}, ""):
        return "empty"
    if isinstance(value, Path) and info.default_factory is not None:
        return "see there"  # it depends on whose program this is
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value)
    if _type(info) == "duration":
        return f"`{format_duration(value)}`"
    if _type(info) == "size":
        return f"`{value:g}GiB`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


_WORDS = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))


def _bounds(info: FieldInfo) -> str:
    found = [
        f"{sign} {getattr(m, word):,}"
        for m in info.metadata
        for word, sign in _WORDS
        if isinstance(getattr(m, word, None), int | float | Decimal)
    ]
    return f"({', '.join(found)})" if found else ""


def _examples(info: FieldInfo) -> str:
    return f"For example `{info.examples[0]}`." if info.examples else ""


if __name__ == "__main__":
    sys.stdout.write(page())
