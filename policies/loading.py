"""From the text of a policy document to the document, or to everything that is wrong with it."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Union, get_args, get_origin
from zoneinfo import available_timezones

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from policies.consistency import nearest
from policies.document import CONFLICT, PolicyDocument
from policies.wording import NOT_A_NUMBER, shortened, told
from policies.yaml_source import BadYaml, Path, Source, read

MAX_PROBLEMS = 50
"""Problems told at once."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where (counted from 1), the field's path, and what to do."""

    line: int
    column: int
    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"line {self.line}, column {self.column}"
        what = f"{self.path}: {self.message}" if self.path else self.message
        return f"{where}: {what}" + (f" ({self.hint})" if self.hint else "")


class PolicyError(Exception):
    """The text is not a policy document. ``problems`` has at least one entry, by line."""

    def __init__(self, problems: tuple[Problem, ...]):
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """A document, and where its keys and values stand in its text."""

    document: PolicyDocument
    source: Source

    def place(self, path: Path) -> tuple[int, int]:
        """Line and column of what ``path`` leads to, or of its nearest surroundings."""
        mark = self.source.mark(path, key=False)
        return mark.line, mark.column


def decoded(data: bytes) -> str:
    """The text of a file; raises PolicyError with the place of the first byte that is none."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", errors="replace")) + 1
        problem = Problem(line, column, "", "not text in UTF-8", "save the file as UTF-8")
        raise PolicyError((problem,)) from error


def parse_policy(text: str) -> PolicyDocument:
    """The document written in ``text`` (YAML, or JSON as a part of it); raises PolicyError.

    Bounded: at most 1 MiB, 32 levels and 100,000 values, aliases counted as often as they are
    used. A field that is not known is refused, as is a key given twice.
    """
    return read_policy(text).document


def read_policy(text: str) -> ReadPolicy:
    """The same, with the places of what was written."""
    try:
        source = read(text)
    except BadYaml as error:
        problem = Problem(
            error.mark.line, error.mark.column, dotted(error.path), error.message, error.hint
        )
        raise PolicyError((problem,)) from error
    data = {} if source.data is None else source.data
    if not isinstance(data, dict):
        mark = source.mark((), key=False)
        what = "a policy is a mapping of sections"
        raise PolicyError(
            (Problem(mark.line, mark.column, "", what, f"known: {_names(PolicyDocument)}"),)
        )
    found = set(_truths_for_numbers(source))
    try:
        document = PolicyDocument.model_validate(data)
    except ValidationError as error:
        details = error.errors()
        found |= {p for each in _outermost(details) for p in _problems(each, source)}
        raise _refusal(found) from error
    if found:
        raise _refusal(found)
    return ReadPolicy(document, source)


def _refusal(found: set[Problem]) -> PolicyError:
    in_order = sorted(found, key=lambda p: (p.line, p.column, p.path, p.message))
    return PolicyError(tuple(in_order[:MAX_PROBLEMS]))


def _outermost(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without complaints that a list is too short because its entries were refused."""
    wrong = [each["loc"] for each in details]
    return [
        each
        for each in details
        if each["type"] != "too_short"
        or not any(
            other[: len(each["loc"])] == each["loc"] for other in wrong if other != each["loc"]
        )
    ]


_NUMBERS = (int, float, Decimal)


def _truths_for_numbers(source: Source) -> Iterator[Problem]:
    """Where ``true`` stands for a number: Python would read it as 1."""
    for path in source.truths:
        annotation = _annotation_at(path)
        if isinstance(annotation, type) and annotation in _NUMBERS:
            yield _problem(source, path, *NOT_A_NUMBER)


def dotted(path: Path) -> str:
    """A path as people write it: ``burst.quiet_hours[0].start``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _problems(detail: ErrorDetails, source: Source) -> Iterator[Problem]:
    path = tuple(part for part in detail["loc"] if part != "[key]")
    kind = detail["type"]
    if kind == CONFLICT:
        for conflict in detail["ctx"]["conflicts"]:
            yield _problem(source, conflict.path, conflict.message, conflict.hint)
        return
    given = detail["input"]
    if kind == "extra_forbidden":
        yield _problem(source, path, "there is no such field", _field_hint(path), key=True)
    elif kind == "missing":
        yield _problem(source, path, "must be given", _missing_hint(path), key=True)
    elif path != detail["loc"]:
        yield _problem(source, path, f"{shortened(path[-1])!r} is not a name", _NAME_HINT, key=True)
    elif kind == "string_pattern_mismatch":
        what, hint = _PATTERNS.get(str(path[-1]), ("name", _NAME_HINT))
        yield _problem(source, path, f"{shortened(given)!r} is not a {what}", hint)
    else:
        message, hint = told(detail)
        yield _problem(source, path, message, _choice_hint(path, given) or hint)


def _problem(source: Source, path: Path, message: str, hint: str, *, key: bool = False) -> Problem:
    mark = source.mark(path, key=key)
    return Problem(mark.line, mark.column, shortened(dotted(path), 200), message, hint)


_NAME_HINT = (
    "lower case letters, digits, '.', '_' and '-', beginning and ending with a letter or digit"
)


_TIME = ("time of day", "write HH:MM, such as 06:30")
_PATTERNS = {
    "start": _TIME,
    "until": _TIME,
    "url": ("URL", "write https://HOST/PATH"),
    "secret_env": ("name of an environment variable", "such as HYBRID_WEBHOOK_SECRET"),
    "subject": ("team, user or job", "leave control characters out"),
}


def _choice_hint(path: Path, given: Any) -> str:
    annotation = _annotation_at(path)
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return nearest(str(given), [str(member) for member in annotation])
    if path[-1:] == ("timezone",) and isinstance(given, str):
        return nearest(given, available_timezones()).partition("known:")[0]
    return ""


def _missing_hint(path: Path) -> str:
    info = _annotation_at(path[:-1]).model_fields[str(path[-1])]
    about: str = info.description or ""
    return f"add {path[-1]}: {about[:1].lower()}{about[1:]}".rstrip(".: ")


def _field_hint(path: Path) -> str:
    """The nearest field there; at the top, the section that has a field of just this name."""
    model, name = _annotation_at(path[:-1]), str(path[-1])
    if name == "<<":
        return "merge keys are not read: write the fields out, or give the whole value an alias"
    if len(path) == 1 and name.startswith("x-"):
        return "write an anchor (&name) where the value is used first"
    known = list(model.model_fields) if _is_model(model) else []
    homes = [
        section
        for section, info in PolicyDocument.model_fields.items()
        if _is_model(info.annotation) and name in info.annotation.model_fields  # type: ignore[union-attr]
    ]
    if homes and len(path) == 1:
        return f"it belongs under {' or '.join(homes)}"
    return nearest(name, known)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _names(model: type[BaseModel]) -> str:
    return ", ".join(model.model_fields)


def _annotation_at(path: Path) -> Any:
    """The type that the document gives to ``path``, or None where it has no such place."""
    annotation: Any = PolicyDocument
    for part in path:
        annotation = _step(_bare(annotation), part)
    return _bare(annotation)


def _step(annotation: Any, part: str | int) -> Any:
    if _is_model(annotation):
        info = annotation.model_fields.get(part)
        return None if info is None else info.annotation
    if get_origin(annotation) is dict:
        return get_args(annotation)[1]
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0]
    return None


def _bare(annotation: Any) -> Any:
    """Without ``Annotated`` and ``| None``."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, types.UnionType):
            annotation = next(a for a in get_args(annotation) if a is not type(None))
        else:
            return annotation
