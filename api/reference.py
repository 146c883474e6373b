"""The reference pages of jobs, pools, settings and the REST API, made from their models.

``python -m api.reference [FOLDER]`` writes them to ``docs/reference``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from api.app import create_app
from hybrid.agent.config import AgentConfig
from hybrid.bootstrap import build
from hybrid.config import Settings, load_settings
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.pool_spec import BurstPool, LocalPool
from hybrid.domain.reasons import Reason, Said
from policies.reference import chapters

Document = Mapping[str, Any]

_MADE = "<!-- Made by `python -m api.reference`: change the models, not this page. -->"

_UNITS = """Durations are seconds or text such as `45s`, `30m`, `1h30m`, `2d`; sizes are GiB or text
such as `40GiB`; amounts are US dollars. Limits of durations are in seconds. An unknown field is
refused by name."""

_JOB = f"""# Job document

{_MADE}

What `hybrid submit -f FILE`, `hybrid quote -f FILE` and `POST /v1/jobs` take, in YAML or JSON. Only
`command` is required. What a running job sees and what its exit means stands in
[the job contract](../job-contract.md).

{_UNITS} In a file, `workdir` may also be a folder, relative to the file:
the command line packs and uploads it.
"""

_POOL = f"""# Pool document

{_MADE}

What `hybrid pools apply -f FILE` and `PUT /v1/pools/NAME` take. `kind` says which of the two it is:
`local` for machines that are owned, `burst` for a template of cloud machines.

{_UNITS}
"""

_SETTINGS = f"""# Settings

{_MADE}

A setting comes from the command line where it has an option, else from the environment
(`HYBRID_` and its name in capitals: `HYBRID_PORT=9000`), else from a YAML file, else from its
default. The file is the one that `config_file` names, else `config.yaml` in the state directory if
there is one. Lists and mappings in the environment are JSON. An unknown key in the file is refused
by name.

Durations are seconds or text such as `45s`, `30m`, `2h`. Limits of durations are in seconds.
"""

_AGENT = """An agent's own configuration: a JSON object in the file that `hybrid agent --config
FILE` names. Options go before the file, the file before the environment (`HYBRID_JOIN_TOKEN`,
`HYBRID_VIRTUAL_GPUS`, `HYBRID_POWEROFF_COMMAND`).
"""

_REST = f"""# REST API

{_MADE}

Everything below `/v1` takes a token: `Authorization: Bearer …`. A running server describes itself
in full at `/openapi.json`. Instants are RFC 3339 strings in UTC, durations seconds in fields named
`…_s`, money decimal strings of US dollars in fields named `…_usd`.

Errors are `application/problem+json` (RFC 9457) with a stable `code`; programs go by that and never
by the text. A body has at most 1 MiB; work folders and outputs are streamed.
"""

_NODE_TAG = "node protocol"


def pages() -> dict[str, str]:
    """Every page by its file name."""
    document = openapi()
    return {
        "job.md": "\n".join([_JOB, *chapters("job", JobSpec)]),
        "pool.md": "\n".join([_POOL, *chapters("local", LocalPool), *chapters("burst", BurstPool)]),
        "settings.md": "\n".join(
            [_SETTINGS, *chapters("server", Settings), *_agent("agent", AgentConfig)]
        ),
        "rest.md": "\n".join([_REST, *_operations(document), *_shapes(document), *_reasons()]),
    }


def openapi() -> dict[str, Any]:
    """The OpenAPI document, from an application that never starts."""
    with tempfile.TemporaryDirectory(prefix="hybrid-reference-") as folder:
        settings = load_settings(state_dir=Path(folder) / "state", providers=())
        product = build(settings, url="http://127.0.0.1:8440")
        try:
            return create_app(product).openapi()
        finally:
            product.stop()


def _agent(path: str, model: type[BaseModel]) -> list[str]:
    first, *rest = chapters(path, model)
    head, _, table = first.partition("\n\n")
    return [f"{head}\n\n{_AGENT}\n{table.partition(chr(10) * 2)[2]}", *rest]


# --- operations ---------------------------------------------------------------------------------


def _operations(document: Document) -> Iterator[str]:
    tag = None
    nodes = []
    for path, method, operation in _listed(document):
        if operation["tags"][0] == _NODE_TAG:
            nodes.append(f"- `{method} {path}`: {_prose(operation['description'])}")
            continue
        if operation["tags"][0] != tag:
            tag = operation["tags"][0]
            yield f"## {tag.capitalize()}\n"
        yield from _operation(path, method, operation)
    yield "## Node protocol\n"
    yield "What agents speak; it changes with the program, and nothing else should speak it.\n"
    yield "\n".join(nodes) + "\n"


def _listed(document: Document) -> Iterator[tuple[str, str, Document]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield path, method.upper(), operation


def _operation(path: str, method: str, operation: Document) -> Iterator[str]:
    about, _, _ = operation["description"].partition("\n\nLeast role:")
    role = operation.get("x-least-role")
    takes = _token(operation, role)
    yield f"### {method} {path}\n\n{_prose(about)} {takes}\n"
    rows = [
        f"| `{each['name']}` | {each['in']} | {_type(each['schema'])} | {_meaning(each)} |"
        for each in operation.get("parameters", ())
        if each["in"] != "path"
    ]
    if rows:
        yield "\n".join(["| parameter | in | type | meaning |", "|---|---|---|---|", *rows]) + "\n"
    body = operation.get("requestBody")
    if body is not None:
        kind, content = next(iter(body["content"].items()))
        shape = _type(content.get("schema", {})) if "json" in kind else f"`{kind}`"
        yield f"Body: {shape}.\n"
    yield f"Answers: {'; '.join(_answers(operation))}.\n"


def _token(operation: Document, role: str | None) -> str:
    if role is not None:
        return f"Least role: {role}."
    return "Takes a token." if operation.get("security") else "Takes no token."


def _answers(operation: Document) -> Iterator[str]:
    errors = []
    for status, answer in operation["responses"].items():
        if status[0] in "45" and answer.get("content", {}) and not _is_readiness(answer):
            errors.append(status)
            continue
        content = next(iter(answer.get("content", {}).items()), None)
        shape = ""
        if content is not None:
            kind, what = content
            shape = f" {_type(what.get('schema', {}))}" if "json" in kind else f" `{kind}`"
        yield f"{status}{shape}"
    if errors:
        yield "a problem with " + ", ".join(sorted(errors))


def _is_readiness(answer: Document) -> bool:
    return "Readiness" in str(answer["content"])


# --- shapes -------------------------------------------------------------------------------------

_ELSEWHERE = {"JobSpec": "job.md", "LocalPool": "pool.md", "BurstPool": "pool.md"}


def _shapes(document: Document) -> Iterator[str]:
    schemas = document["components"]["schemas"]
    wanted = sorted(_reached(document), key=str.lower)
    yield "## Shapes\n"
    for name in wanted:
        schema = schemas[name]
        yield f"### {name}\n"
        about = _prose(schema.get("description", ""))
        if about:
            yield about + "\n"
        if "enum" in schema:
            yield "One of " + ", ".join(f"`{each}`" for each in schema["enum"]) + ".\n"
            continue
        required = set(schema.get("required", ()))
        rows = [
            f"| `{field}` | {_type(facts)} | {'' if field in required else 'may be missing'} |"
            f" {_meaning(facts)} |"
            for field, facts in schema.get("properties", {}).items()
        ]
        yield "\n".join(["| field | type | | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _reached(document: Document) -> set[str]:
    """Schemas that operations for people use, directly or within others."""
    schemas = document["components"]["schemas"]
    found: set[str] = set()
    todo = [
        name
        for _, _, operation in _listed(document)
        if operation["tags"][0] != _NODE_TAG
        for name in _names_in(operation)
    ]
    while todo:
        name = todo.pop()
        if name in found or _plain(name) in _ELSEWHERE:
            continue
        found.add(name)
        todo += _names_in(schemas[name])
    return found


def _names_in(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        if "$ref" in node:
            yield node["$ref"].rpartition("/")[2]
        for each in node.values():
            yield from _names_in(each)
    elif isinstance(node, list):
        for each in node:
            yield from _names_in(each)


def _plain(name: str) -> str:
    return name.removesuffix("-Input").removesuffix("-Output")


def _type(schema: Document) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        plain = _plain(name)
        return f"[{plain}]({_ELSEWHERE.get(plain) or '#' + name.lower()})"
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            named = [_type(each) for each in schema[word] if each.get("type") != "null"]
            return " or ".join(dict.fromkeys(named)) or "null"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " \\| ".join(f"`{each}`" for each in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {_type(schema['additionalProperties'])}"
    if schema.get("format") == "date-time":
        return "instant"
    return str(kind)


def _meaning(facts: Document) -> str:
    about = _prose(facts.get("description", ""))
    about = f"{about}." if about and about[-1].isalnum() else about
    schema = facts.get("schema", facts)
    if schema.get("default") in (None, [], {}, "") or isinstance(schema["default"], dict | list):
        return about
    return f"{about} Default: `{str(schema['default']).lower()}`.".strip()


# --- reasons ------------------------------------------------------------------------------------


def _reasons() -> Iterator[str]:
    yield "## Reasons\n"
    yield (
        "Why an option was ruled out, why a job waits, why one is refused: the `code` of a"
        " [ShownReason](#shownreason), and of the problem with which a job that can never run is"
        " refused.\n"
    )
    known = {each.code: _prose(each.__doc__ or "") for each in _subclasses(Reason)}
    del known[Said.code]  # stands for another one, whose code is shown
    rows = [f"| `{code}` | {about} |" for code, about in sorted(known.items())]
    yield "\n".join(["| code | meaning |", "|---|---|", *rows])
    yield ""


def _subclasses(of: type[Reason]) -> Iterator[type[Reason]]:
    for each in of.__subclasses__():
        # what tests make up is no reason of ours
        if each.__module__ == of.__module__:
            yield each
        yield from _subclasses(each)


def _prose(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def main(arguments: list[str]) -> None:
    """Write the pages into a folder."""
    folder = Path(arguments[0]) if arguments else Path("docs/reference")
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{folder / name}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
