"""What ``hybrid doctor CLOUD`` looks at: whether a provider can be set up, and what its credentials
are allowed to do. Nothing is launched, changed or ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hybrid import registry
from hybrid.cli.checks import Check, Mark
from hybrid.cli.documents import read_documents
from hybrid.cli.exits import CliError, Exit
from hybrid.cli.session import Connection
from hybrid.client import ClientError
from hybrid.config import ProviderSettings, StartupError, load_settings
from hybrid.domain.pool_spec import POOL_SPEC, BurstPool
from hybrid.ports.capacity import CapacityProvider, Examined, Permission
from hybrid.ports.errors import PortError

EXAMINED_AS = "doctor"
"""The installation whose tag a dry run bears where none is named."""


def providers_called(cloud: str, state_dir: Path | None, given: dict[str, Any]) -> list[Any]:
    """The settings of the providers of that name or kind; one made from the options where the
    settings have none. Raises CliError."""
    try:
        settings = load_settings(state_dir=state_dir)
    except StartupError as problem:
        raise CliError(Exit.USAGE, str(problem)) from problem
    found = [each for each in settings.providers if cloud in (each.name, each.kind)]
    if found:
        return found
    if given.get("region") is None:
        said = f"no provider {cloud!r} in the settings: name its --region to look without"
        raise CliError(Exit.USAGE, said)
    options = {"project": given["project"]} if given.get("project") else {}
    try:
        return [
            ProviderSettings(
                name=cloud,
                kind=cloud,
                region=given["region"],
                endpoint_url=given.get("endpoint_url"),
                options=options,
            )
        ]
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CliError(Exit.USAGE, f"{where}: {first['msg']}") from problem


def pools_to_try(connection: Connection, file: Path | None) -> list[BurstPool]:
    """Burst pools of a file, else those of the server, if one answers. Raises CliError."""
    if file is not None:
        documents = read_documents(file)
    else:
        try:
            documents = [dict(each.spec) for each in connection.client.pools().pools]
        except (CliError, ClientError):
            return []  # a doctor is called before there is a server, too
    try:
        specs = [POOL_SPEC.validate_python(each) for each in documents]
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CliError(Exit.USAGE, f"{file}: {where}: {first['msg']}") from problem
    return [each for each in specs if isinstance(each, BurstPool)]


def cloud_checks(
    settings: ProviderSettings, pools: Sequence[BurstPool], installation: str
) -> Iterator[Check]:
    """Every check of one provider, in the order in which one would look."""
    place = f"{settings.kind} {settings.region}"
    try:
        create = registry.load(registry.Group.PROVIDERS, settings.kind)
        provider: CapacityProvider = create(
            name=settings.name,
            region=settings.region,
            installation=installation,
            endpoint_url=settings.endpoint_url,
            **settings.options,
        )
    except (StartupError, TypeError, ValueError) as problem:
        yield Check(settings.name, Mark.BAD, " ".join(str(problem).split()))
        return
    if not isinstance(provider, Examined):
        yield Check(settings.name, Mark.NOTE, f"{place}: this provider cannot be examined")
        return
    try:
        found = provider.permissions([each for each in pools if each.provider == settings.name])
    except PortError as problem:
        yield Check(settings.name, Mark.BAD, f"{place} cannot be asked: {problem}")
        return
    yield Check(settings.name, Mark.GOOD, f"{place} answers these credentials")
    yield from (_check(each) for each in found)
    missing = [each.name for each in found if each.granted is False]
    if missing:
        yield Check("missing", Mark.BAD, ", ".join(missing))
    yield from _offers(provider, pools, settings.name)


def _check(each: Permission) -> Check:
    mark = {True: Mark.GOOD, False: Mark.BAD, None: Mark.NOTE}[each.granted]
    words = f"to {each.what_for}"
    if each.granted is None:
        words += f"; cannot be told: {each.words}"
    return Check(each.name, mark, words)


def _offers(provider: CapacityProvider, pools: Sequence[BurstPool], name: str) -> Iterator[Check]:
    """What the pools would be offered: a typing error in a pool shows here."""
    ours = [each for each in pools if each.provider == name]
    if not ours:
        return
    try:
        found = provider.offers(ours)
    except PortError as problem:
        yield Check("offers", Mark.BAD, str(problem))
        return
    for what, why in found.ignored:
        yield Check(what, Mark.NOTE, f"cannot be had: {why}")
    mark = Mark.GOOD if found.usable else Mark.BAD
    yield Check("offers", mark, f"{len(found.usable)} of {len(found.usable) + len(found.ignored)}")
