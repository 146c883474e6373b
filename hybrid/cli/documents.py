"""Documents that people write: jobs, pools, policies, from a file or standard input."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from hybrid.cli.exits import CliError, Exit

MAX_BYTES = 1 << 20


class _Loader(yaml.SafeLoader):
    """YAML with instants left as text: the server reads them, with their zone."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_text(file: Path) -> str:
    """The text of a file, or of standard input for ``-``; CliError in one line."""
    try:
        return read_bytes(file).decode()
    except UnicodeDecodeError as problem:
        raise CliError(Exit.USAGE, f"{file}: not text in UTF-8") from problem


def read_bytes(file: Path) -> bytes:
    """What a file has, or standard input for ``-``; CliError in one line."""
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise CliError(Exit.USAGE, f"{file}: a document has at most {MAX_BYTES} bytes")
        return data
    except OSError as problem:
        raise CliError(Exit.USAGE, f"{file}: {problem.strerror}") from problem


def read_documents(file: Path) -> list[dict[str, Any]]:
    """Every document of a YAML or JSON file; each is a mapping."""
    try:
        found = list(yaml.load_all(read_text(file), Loader=_Loader))
    except yaml.YAMLError as problem:
        said = " ".join(str(problem).split())
        raise CliError(Exit.USAGE, f"{file}: not YAML: {said}") from problem
    documents = [each for each in found if each is not None]
    for each in documents:
        if not isinstance(each, dict) or not all(isinstance(key, str) for key in each):
            raise CliError(Exit.USAGE, f"{file}: a document is a mapping of names to values")
    if not documents:
        raise CliError(Exit.USAGE, f"{file}: there is nothing in it")
    for path in _not_finite(documents if len(documents) > 1 else documents[0]):
        raise CliError(Exit.USAGE, f"{file}: {path}: must be a finite number")
    return documents


def _not_finite(value: Any, path: str = "") -> Iterator[str]:
    """Where ``.nan`` or ``.inf`` stands: JSON has neither, so no server could be told of it."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _not_finite(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _not_finite(inner, f"{path}[{position}]")


def read_document(file: Path) -> dict[str, Any]:
    """The one document of a file."""
    documents = read_documents(file)
    if len(documents) > 1:
        raise CliError(Exit.USAGE, f"{file}: {len(documents)} documents where one is wanted")
    return documents[0]
