"""Values as JSON text and back, exactly.

What people write is not stored as they write it: ``JobSpec`` shows durations as text to the
millisecond, which would lose some. Here every field is written as it is held, and read back
through the same types, so that equal text means equal values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter

from hybrid.domain.ids import JobId
from hybrid.domain.learned import Learned
from hybrid.domain.plan import Alternative, CostTerm, Decision, Verdict
from hybrid.domain.reasons import Reason, Said, as_dict

T = TypeVar("T")


def dump(value: Any) -> str:
    """The value as JSON text.

    Characters that no UTF-8 text can hold (half a surrogate pair) become ``?``: a row that could
    be written and not read would stop the loop.
    """
    text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def load(kind: type[T], text: str) -> T:
    """The value of a type that ``text`` was made from."""
    value: T = _adapter(kind).validate_json(text)
    return value


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}
_FIELDS: dict[Any, tuple[str, ...]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Made at first use: that takes milliseconds, and importing this must not."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _field_names(kind: Any) -> tuple[str, ...]:
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(field.name for field in fields(kind))
    return _FIELDS[kind]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Reason):
        return _plain(_reason(value))
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if is_dataclass(value):
        return {name: _plain(getattr(value, name)) for name in _field_names(type(value))}
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def _mapping(value: Mapping[Any, Any]) -> Any:
    if any(isinstance(key, tuple) for key in value):
        return [[list(key), _plain(item)] for key, item in value.items()]
    return {str(key): _plain(item) for key, item in value.items()}


def _reason(reason: Reason) -> dict[str, Any]:
    if isinstance(reason, Said):
        return {"code": reason.said_code, "text": reason.text}
    return as_dict(reason)


# --- values that need a hand -------------------------------------------------------------------


def load_decision(text: str) -> Decision:
    """A decision; its reasons come back as what they said (:class:`Said`)."""
    row = json.loads(text)
    return Decision(
        job_id=JobId(row["job_id"]),
        at=row["at"],
        verdict=Verdict(row["verdict"]),
        sentence=row["sentence"],
        chosen=row["chosen"],
        policy_version=row["policy_version"],
        alternatives=tuple(_alternative(item) for item in row["alternatives"]),
        reason=_said(row["reason"]),
    )


def _alternative(row: dict[str, Any]) -> Alternative:
    return Alternative(
        option=row["option"],
        label=row["label"],
        start_p50_at=row["start_p50_at"],
        start_p90_at=row["start_p90_at"],
        finish_at=row["finish_at"],
        terms=tuple(CostTerm(name=term["name"], micros=term["micros"]) for term in row["terms"]),
        refused=_said(row["refused"]),
        members=row["members"],
        speed=row.get("speed", ""),
    )


def _said(row: dict[str, Any] | None) -> Said | None:
    return None if row is None else Said(row["code"], row["text"])


def load_learned(text: str) -> Learned:
    """What was learned."""
    row = json.loads(text)
    speed = row.get("speed", {})
    if isinstance(speed, list):
        row["speed"] = {tuple(key): item for key, item in speed}
    lessons: Learned = _adapter(Learned).validate_python(row)
    return lessons
