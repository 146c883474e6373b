"""What is wrong with a value, in the words of the document instead of Python's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import ErrorDetails

_NUMBER = ("must be a number", "write it without quotes or units")
_WHOLE = ("must be a whole number", "write it without quotes or units")
_MAPPING = ("must be a mapping", "write one 'name: value' per line")
_EMPTY = ("must be a mapping", "write {} where there is nothing to say")
_AMOUNT = ("must be an amount in USD", "write a number such as 12.50")
_TRUTH = ("must be true or false", "write true or false")
NOT_A_NUMBER = _NUMBER

_SAID: Mapping[str, tuple[str, str]] = {
    "bool_parsing": _TRUTH,
    "bool_type": _TRUTH,
    "tuple_type": ("must be a list", "write [a, b], or one '- a' per line"),
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "string_type": ("must be text", 'put it in quotes: "..."'),
    "string_unicode": ("must be text in UTF-8", "leave out what is no character"),
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "finite_number": ("must be a finite number", "write a number"),
    "int_parsing": _WHOLE,
    "int_type": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": ("is larger than any whole number that is read", "write a smaller one"),
    "decimal_parsing": _AMOUNT,
    "decimal_type": _AMOUNT,
    "decimal_max_digits": ("has too many digits", "write an amount such as 12.50"),
}
"""Message and hint where pydantic speaks of Python types."""

_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than_equal": ("ge", "must be at least"),
    "greater_than": ("gt", "must be more than"),
    "less_than_equal": ("le", "must be at most"),
    "less_than": ("lt", "must be less than"),
}

_LENGTHS: Mapping[str, tuple[str, str]] = {
    "too_short": ("min_length", "must have at least"),
    "too_long": ("max_length", "must have at most"),
}

_LETTERS: Mapping[str, tuple[str, str]] = {
    "string_too_short": ("min_length", "must have at least"),
    "string_too_long": ("max_length", "must have at most"),
}


def told(detail: ErrorDetails) -> tuple[str, str]:
    """Message and hint for one thing that pydantic found; the hint may be empty."""
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        bound = context[key]
        whole = int(bound) if bound == int(bound) else bound
        return f"{words} {whole:,}", f"it is {shortened(given)}"
    if kind == "enum":
        return f"must be {context['expected']}", ""
    if kind in _LENGTHS:
        key, words = _LENGTHS[kind]
        return f"{words} {_counted(context[key], 'entry', 'entries')}", ""
    if kind in _LETTERS:
        key, words = _LETTERS[kind]
        return f"{words} {_counted(context[key], 'character', 'characters')}", ""
    if given is None and kind in ("model_type", "dict_type"):
        return _EMPTY
    return _SAID.get(kind, (detail["msg"].removeprefix("Value error, "), ""))


def shortened(value: Any, most: int = 60) -> str:
    """A value as text that fits into a line."""
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


_YAML: tuple[tuple[str, str], ...] = (
    ("cannot start any token", "put text that begins with a special character in quotes"),
    ("mapping values are not allowed", "put text with ': ' in it in quotes"),
    ("while parsing a flow mapping", "close the { with a }"),
    ("while parsing a flow sequence", "close the [ with a ]"),
    ("quoted scalar", "close the quotes"),
    ("while parsing a block mapping", "begin the fields of one section in the same column"),
    ("while parsing a block collection", "begin the entries of one list in the same column"),
    ("could not find expected ':'", "write 'name: value'"),
    ("another document", "keep one document: take out the line ---"),
    ("undefined alias", "name it with & before it is used with *"),
    ("duplicate anchor", "give each anchor a name of its own"),
    ("incompatible YAML document", "take the line %YAML out"),
)


def advice_on_yaml(words: str) -> str:
    """What to do about text that is not YAML, by what the parser says of it; empty for nothing."""
    return next((hint for part, hint in _YAML if part in words), "")
