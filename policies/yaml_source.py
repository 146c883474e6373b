"""Reading YAML so that every value knows its line: bounded, without surprises.

Scalars follow YAML 1.2's core rules rather than PyYAML's 1.1: ``no`` and ``22:00`` are text, not
``False`` and 1320. A key given twice, a tag, too deep a nesting and too many values (aliases that
multiply) are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from policies.wording import advice_on_yaml

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_VALUES = 100_000

Path = tuple[str | int, ...]

_PREFIX = "tag:yaml.org,2002:"
_TAGS = frozenset(_PREFIX + kind for kind in ("null", "bool", "int", "float", "str", "map", "seq"))


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the text, both counted from 1."""

    line: int
    column: int


class BadYaml(Exception):
    """The text is no document that we read: where, what, and what to do about it."""

    def __init__(self, mark: Mark, message: str, hint: str = "", path: Path = ()):
        self.mark, self.message, self.hint, self.path = mark, message, hint, path
        super().__init__(message)


@dataclass(slots=True)
class Source:
    """Plain data, and where its keys and values stand in the text, by path."""

    data: Any = None
    keys: dict[Path, Mark] = field(default_factory=dict)
    values: dict[Path, Mark] = field(default_factory=dict)
    truths: list[Path] = field(default_factory=list)
    """Where ``true`` and ``false`` stand."""

    def mark(self, path: Path, *, key: bool) -> Mark:
        """Where ``path`` stands: its key (if asked for and there is one) or its value; for what is
        not in the text, its nearest surroundings."""
        for end in range(len(path), -1, -1):
            part = path[:end]
            if key and part in self.keys:
                return self.keys[part]
            if part in self.values:
                return self.values[part]
        return Mark(1, 1)


_CORE_SCALARS: tuple[tuple[str, re.Pattern[str], list[str]], ...] = (
    ("null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", re.compile(r"^[-+]?[0-9]{1,40}$"), list("-+0123456789")),
    (
        "float",
        re.compile(
            r"""^(?:
            [-+]?(?:\.[0-9]{1,40}|[0-9]{1,40}(?:\.[0-9]{0,40})?)(?:[eE][-+]?[0-9]{1,3})?
            |[-+]?\.(?:inf|Inf|INF)
            |\.(?:nan|NaN|NAN)
            )$""",
            re.VERBOSE,
        ),
        list("-+.0123456789"),
    ),
)


def add_core_scalars(resolver: type[BaseResolver]) -> None:
    """Teach ``resolver`` the core schema of YAML 1.2 (chapter 10.3.2): decimal numbers only, and
    none so long that reading it takes long."""
    for kind, pattern, first in _CORE_SCALARS:
        resolver.add_implicit_resolver(_PREFIX + kind, pattern, first)


class _Core(BaseResolver):
    """The core schema and nothing else."""


add_core_scalars(_Core)


class _Loader(Reader, Scanner, Parser, Composer, _Core):
    """PyYAML's front half: text to nodes, no objects."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        _Core.__init__(self)
        self.depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """One node and all below it; refuses what is nested too deep."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = _mark(self.peek_event().start_mark)  # type: ignore[no-untyped-call]
            raise BadYaml(mark, f"nested deeper than {MAX_DEPTH} levels", "a policy needs five")
        node = Composer.compose_node(self, parent, index)
        self.depth -= 1
        return node


def read(text: str) -> Source:
    """The document in ``text``, with its places; raises BadYaml."""
    size = len(text.encode("utf-8", errors="replace"))
    if size > MAX_BYTES:
        raise BadYaml(Mark(1, 1), f"{size} bytes are too many", f"the limit is {MAX_BYTES}")
    try:
        node = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        mark = _mark(place) if place else Mark(1, 1)
        words = _words(error)
        raise BadYaml(mark, f"not YAML: {words}", _advice(text, words)) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        mark = Mark(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        raise BadYaml(mark, "a character that YAML does not allow", "save as UTF-8 text") from error
    source = Source()
    if node is not None:
        source.data = _Build(source).value(node, ())
    return source


def _words(error: yaml.MarkedYAMLError) -> str:
    return ", ".join(part for part in (error.context, error.problem) if part)


def _advice(text: str, words: str) -> str:
    if "\\t" in words or re.search(r"^ *\t", text, re.MULTILINE):
        return "indent with spaces, not tabs"
    return advice_on_yaml(words)


def _mark(place: Any) -> Mark:
    return Mark(place.line + 1, place.column + 1)


class _Build:
    """Nodes to plain data; ``source`` takes the places."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.count = 0

    def value(self, node: Node, path: Path) -> Any:
        mark = _mark(node.start_mark)
        self.count += 1
        if self.count > MAX_VALUES or len(path) > MAX_DEPTH:
            raise BadYaml(
                mark, "too many or too deep values", "write them out instead of using aliases"
            )
        if node.tag not in _TAGS:
            tag = node.tag.replace(_PREFIX, "!!")
            raise BadYaml(mark, f"the tag {tag} has no meaning here", "leave it out", path)
        self.source.values[path] = mark
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        plain = _scalar(node)
        if isinstance(plain, bool):
            self.source.truths.append(path)
        return plain

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            mark = _mark(key_node.start_mark)
            if not isinstance(key_node, ScalarNode):
                raise BadYaml(mark, "a key is a name, not a list or a mapping", "", path)
            key = str(key_node.value)
            if key in result:
                first = self.source.keys[(*path, key)]
                raise BadYaml(
                    mark,
                    f"{key!r} is given twice",
                    f"it stands on line {first.line} already: keep one",
                    (*path, key),
                )
            self.source.keys[(*path, key)] = mark
            result[key] = self.value(value_node, (*path, key))
        return result


def _scalar(node: Node) -> Any:
    text = str(node.value)
    match node.tag.removeprefix(_PREFIX):
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int" if re.fullmatch(r"[-+]?\d{1,40}", text):
            return int(text)
        case "float":
            return _float(text)
        case _:
            return text


def _float(text: str) -> Any:
    try:
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return text  # an explicit !!float before something else: the model says what is wrong
