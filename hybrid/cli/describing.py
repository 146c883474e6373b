"""Job specs from options and files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from hybrid.cli.exits import CliError, Exit


@dataclass(frozen=True)
class Described:
    """What options say of a job, as the spec's own fields; what is not given is not there."""

    fields: dict[str, Any] = field(default_factory=dict)

    def over(self, spec: dict[str, Any]) -> dict[str, Any]:
        """``spec`` with what the options say in its place."""
        return _merged(spec, self.fields)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        before = result.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            result[key] = _merged(before, value)
        else:
            result[key] = value
    return result


def described(
    name: Annotated[str | None, typer.Option(help="The job's name.")] = None,
    gpus: Annotated[
        int | None,
        typer.Option(help="GPUs on each node; 0 for a CPU job. Default: 1", show_default=False),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Machines in the gang. Default: 1", show_default=False)
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="A GPU model that will do; several may be given."),
    ] = None,
    gpu_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Least memory of each GPU, such as 40GiB.")
    ] = None,
    link: Annotated[
        str | None, typer.Option(help="Slowest link between the GPUs: any, pcie or nvlink.")
    ] = None,
    share: Annotated[float | None, typer.Option(help="A part of one GPU, such as 0.5.")] = None,
    slice_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="So much of the memory of one GPU, such as 10GiB."),
    ] = None,
    time_slicing: Annotated[
        bool, typer.Option("--time-slicing", help="A replica of a time-sliced GPU will do.")
    ] = False,
    cpus: Annotated[float | None, typer.Option(help="CPU cores on each node.")] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory on each node, such as 16GiB.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Container image; else a process.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="K[=V]", help="A variable; K alone: as it is here."),
    ] = None,
    output_path: Annotated[
        list[str] | None,
        typer.Option("--output-path", metavar="PATH", help="What comes back from the work folder."),
    ] = None,
    team: Annotated[str | None, typer.Option(help="Who pays.")] = None,
    priority: Annotated[str | None, typer.Option(help="A priority class of the policy.")] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option(metavar="POOL", help="Only there; several may be given."),
    ] = None,
    no_burst: Annotated[bool, typer.Option("--no-burst", help="Never leave the premises.")] = False,
    deadline: Annotated[
        str | None, typer.Option(metavar="INSTANT", help="Such as 2030-01-31T18:00:00Z.")
    ] = None,
    expected: Annotated[
        str | None, typer.Option("--expected", metavar="TIME", help="Expected run, such as 2h.")
    ] = None,
    walltime: Annotated[
        str | None, typer.Option(metavar="TIME", help="Hard limit on one run, such as 12h.")
    ] = None,
    max_cost: Annotated[
        str | None, typer.Option(metavar="USD", help="Most the job may cost in clouds.")
    ] = None,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="The job saves its work and can resume.")
    ] = False,
    retries: Annotated[int | None, typer.Option(help="After failures of its own.")] = None,
) -> Described:
    """Options that describe a job."""
    devices = {
        "models": gpu or None, "memory": gpu_memory, "link": link, "share": share,
        "slice_memory": slice_memory, "time_slicing": time_slicing or None,
    }  # fmt: skip
    resources = {
        "gpus": gpus, "nodes": nodes, "cpus": cpus, "memory": memory, "gpu": _given(devices),
    }  # fmt: skip
    where = {"pools": pool or None, "burst": "never" if no_burst else None}
    return Described(
        _given(
            {
                "name": name,
                "team": team,
                "priority": priority,
                "image": image,
                "env": variables(env or []),
                "outputs": output_path or None,
                "resources": _given(resources),
                "where": _given(where),
                "deadline": deadline,
                "expected_runtime": expected,
                "walltime": walltime,
                "max_cost": max_cost,
                "checkpoint": {"enabled": True} if checkpoint else None,
                "retries": None if retries is None else {"max": retries},
            }
        )
    )


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, {})}


def variables(given: list[str]) -> dict[str, str]:
    """``K=V`` as written, ``K`` alone with its value here; CliError when it has none."""
    import os

    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            if name not in os.environ:
                raise CliError(Exit.USAGE, f"--env {name}: it is not set here; write {name}=VALUE")
            value = os.environ[name]
        found[name] = value
    return found


@dataclass(frozen=True)
class Work:
    """A job to submit, and the folder that travels with it, if any."""

    spec: dict[str, Any]
    folder: Path | None


def work_from(
    file: Path | None, job: Described, command: list[str] | None, folder: Path | None = None
) -> Work:
    """The job that a file, options over it and a command say together.

    A ``workdir`` in the file that is no digest is a folder, relative to the file; ``folder`` is
    used instead where it is given.
    """
    from hybrid.cli.documents import read_document

    spec = {} if file is None else read_document(file)
    spec = job.over(spec)
    if command:
        spec["command"] = command
    if not spec.get("command"):
        hint = "give -f FILE, or the command after --"
        raise CliError(Exit.USAGE, "there is no command to run", hint=hint)
    workdir = spec.get("workdir")
    if folder is None and isinstance(workdir, str) and not workdir.startswith("sha256:"):
        base = Path() if file is None or str(file) == "-" else file.parent
        folder = base / Path(workdir).expanduser()
    if folder is not None:
        spec.pop("workdir", None)
    return Work(spec, folder)
