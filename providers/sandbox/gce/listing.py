"""Filters, partial answers and pages, as far as clients of this cloud use them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from providers.sandbox.gce.state import Refused

_EQUALS: Final = re.compile(r'\(?\s*([A-Za-z0-9_.-]+)\s*=\s*"?([^"\s)]*)"?\s*\)?')
_REGEX: Final = re.compile(r'\(?\s*([A-Za-z0-9_.]+)\s+eq\s+"?([^"\s)]*)"?\s*\)?')


def matcher(expression: str) -> Callable[[Mapping[str, Any]], bool]:
    """A test of one row: ``field = "value"``, or ``field eq "regular expression"`` on the whole
    value; a dot goes one level down. Raises Refused for any other filter."""
    if not expression:
        return lambda _row: True
    equals = _EQUALS.fullmatch(expression)
    if equals is not None:
        path, wanted = equals[1].split("."), equals[2]
        return lambda row: _at(row, path) == wanted
    regex = _REGEX.fullmatch(expression)
    if regex is not None:
        path, pattern = regex[1].split("."), re.compile(regex[2])
        return lambda row: pattern.fullmatch(_at(row, path) or "") is not None
    raise Refused(400, "invalid", f"Invalid value for field 'filter': '{expression}'")


def _at(row: Any, path: list[str]) -> str | None:
    for step in path:
        row = row.get(step) if isinstance(row, Mapping) else None
    return None if row is None else str(row)


def masked(document: Any, fields: str) -> Any:
    """Only the asked fields: ``a,b(c,d),e/f``; ``*`` stands for any key. All without a mask."""
    return _only(document, _tree(fields)) if fields else document


def _tree(fields: str) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    depth, start = 0, 0
    for at, sign in enumerate(f"{fields},"):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            _plant(tree, fields[start:at])
            start = at + 1
    return tree


def _plant(tree: dict[str, Any], field: str) -> None:
    slash, bracket = field.find("/"), field.find("(")
    if slash >= 0 and (bracket < 0 or slash < bracket):
        _plant(tree.setdefault(field[:slash], {}), field[slash + 1 :])
    elif bracket >= 0:
        tree.setdefault(field[:bracket], {}).update(_tree(field[bracket + 1 : -1]))
    else:
        tree.setdefault(field, {})


def _only(document: Any, tree: Mapping[str, Any]) -> Any:
    if not tree:
        return document
    if isinstance(document, list):
        return [_only(each, tree) for each in document]
    if not isinstance(document, Mapping):
        return document
    return {
        key: _only(value, tree.get(key, tree.get("*", {})))
        for key, value in document.items()
        if key in tree or "*" in tree
    }
