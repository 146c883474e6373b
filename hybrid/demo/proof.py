"""What the demo must have shown, checked against the outside: EC2's own list, the guardians' own
records, the processes of this machine, and the bits of the weights."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hybrid.agent.guardian.journal import ENDED, RECOVERED, STARTED
from hybrid.demo.cast import DemoJob

_DIGEST = re.compile(r"^weights sha256 ([0-9a-f]{64})$", re.MULTILINE)
_RESUMED = re.compile(r"^resumed from step (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Check:
    """One promise, whether it held, and what was seen."""

    name: str
    ok: bool
    detail: str


def resumed_from(log: str) -> list[int]:
    """The steps a job's log says it was resumed from."""
    return [int(step) for step in _RESUMED.findall(log)]


def weights_digest(log: str) -> str | None:
    """The digest of the final weights that a job printed last."""
    found = _DIGEST.findall(log)
    return found[-1] if found else None


def reference_digest(job: DemoJob, timeout_s: float = 180.0) -> str | None:
    """The digest of the same training run without interruption, as fast as it goes."""
    with tempfile.TemporaryDirectory(prefix="hybrid-reference-") as folder:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HYBRID_")}
        done = subprocess.run(
            [*job.document["command"], "--log-every", str(job.steps), "--step-seconds", "0"],
            cwd=folder,
            env={**environment, "HYBRID_CHECKPOINT_DIR": folder},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    return weights_digest(done.stdout)


@dataclass(frozen=True, slots=True, order=True)
class Life:
    """When one run had processes, in CLOCK_BOOTTIME seconds of this machine, on which all of the
    demo's nodes run, so that lives on different nodes compare."""

    began_s: float
    ended_s: float
    run_id: str


def lives(folder: Path, machine_ends: Mapping[str, float]) -> dict[str, list[Life]]:
    """By job and rank, the lives of its runs, from the records that their guardians left.

    A guardian that went down with its machine left no end: the machine's own end (seconds since the
    epoch, by instance id) stands for it.
    """
    found: dict[str, set[Life]] = {}
    for file in folder.rglob("journal.jsonl"):
        instance = next((part for part in file.parts if part.startswith("i-")), "")
        for began, ended in _pairs(_events(file)):
            until_s = _until(began, ended, machine_ends.get(instance))
            life = Life(float(began["boottime_s"]), until_s, str(began["run_id"]))
            found.setdefault(f"{began['job_id']}/{began['rank']}", set()).add(life)
    return {job: sorted(each) for job, each in sorted(found.items())}


def overlaps(lived: Mapping[str, list[Life]]) -> list[str]:
    """Where two runs of one job and rank lived at the same time."""
    found = []
    for job, each in lived.items():
        for first, second in pairwise(each):
            if second.began_s < first.ended_s and first.run_id != second.run_id:
                by_s = first.ended_s - second.began_s
                found.append(
                    f"{job}: {second.run_id} began {by_s:.2f} s before {first.run_id} ended"
                )
    return found


def _events(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_bytes().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the last line of a guardian that was killed while writing
        if isinstance(event, dict):
            yield event


def _pairs(
    events: Iterable[dict[str, Any]],
) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    began: dict[tuple[str, int], dict[str, Any]] = {}
    for event in events:
        key = (str(event.get("run_id")), int(event.get("rank", 0)))
        if event.get("event") == STARTED:
            began[key] = event
        elif event.get("event") in (ENDED, RECOVERED) and key in began:
            yield began.pop(key), event
    for event in began.values():
        yield event, None


def _until(began: dict[str, Any], ended: dict[str, Any] | None, machine_end: float | None) -> float:
    if ended is not None:
        return float(ended["boottime_s"])
    if machine_end is not None:
        return float(began["boottime_s"]) + machine_end - float(began["at"])
    return math.inf


def same_bits(job: DemoJob, log: str) -> Check:
    """Whether an interrupted job ended with the weights of an uninterrupted one."""
    ours, reference = weights_digest(log), reference_digest(job)
    same = ours is not None and ours == reference
    words = f"{job.name}: {(ours or 'none')[:16]}… and {(reference or 'none')[:16]}…"
    return Check("interrupted training ends with the same weights, to the bit", same, words)
