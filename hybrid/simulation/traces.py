"""Job traces as they are published: who came when, for how long, with how many GPUs.

Three formats: a table in hours (``job_id, arrival_h, runtime_h, gpus``), the archive of elasticflow
traces in seconds (one table per cluster: ``job_id, submission_time, duration, num_gpu``), and
Philly as Muri derived it, in milliseconds (``num_gpu, submit_time, duration``). More columns may be
there; jobs without a GPU are left out.
"""

from __future__ import annotations

import csv
import io
import math
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_LARGEST_TABLE = 256 * 2**20
_ENCODING = "utf-8-sig"
"""With the mark at the beginning that spreadsheets put there, or without."""


class BadTrace(ValueError):
    """A trace that cannot be read: the file, the line and what is wrong there."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job: seconds from the beginning of its trace to its arrival, seconds it ran, its GPUs."""

    id: str
    arrives_s: float
    runtime_s: float
    gpus: int


@dataclass(frozen=True, slots=True)
class Columns:
    """What a table calls its columns, and how many seconds its unit of time has."""

    arrival: str
    runtime: str
    gpus: str
    unit_s: float
    id: str | None = None


HOURS = Columns("arrival_h", "runtime_h", "gpus", 3600.0, "job_id")
SECONDS = Columns("submission_time", "duration", "num_gpu", 1.0, "job_id")
MILLISECONDS = Columns("submit_time", "duration", "num_gpu", 0.001)


def read_table(path: Path, columns: Columns) -> tuple[TraceJob, ...]:
    """The jobs of a CSV file in order of arrival. Raises BadTrace."""
    with path.open(encoding=_ENCODING, newline="") as lines:
        return _jobs(path.name, lines, columns)


def read_archive(path: Path) -> dict[str, tuple[TraceJob, ...]]:
    """The jobs of each CSV file in a tar archive, by the file's stem; of files with one stem, by
    their folders too. Nothing is unpacked to disk. Raises BadTrace."""
    found: dict[str, tuple[TraceJob, ...]] = {}
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in sorted(archive.getmembers(), key=lambda m: m.name):
                name = PurePosixPath(member.name)
                if not member.isfile() or name.suffix != ".csv":
                    continue
                if member.size > _LARGEST_TABLE:
                    raise BadTrace(f"{path.name}: {member.name} is larger than 256 MiB")
                content = archive.extractfile(member)
                if content is not None:
                    with io.TextIOWrapper(content, encoding=_ENCODING, newline="") as lines:
                        key = str(name.with_suffix("")) if name.stem in found else name.stem
                        found[key] = _jobs(member.name, lines, SECONDS)
    except tarfile.TarError as error:
        raise BadTrace(f"{path.name}: {error}") from error
    return found


def _jobs(name: str, lines: Iterable[str], columns: Columns) -> tuple[TraceJob, ...]:
    table = csv.DictReader(lines)
    wanted = (columns.arrival, columns.runtime, columns.gpus)
    missing = [column for column in wanted if column not in (table.fieldnames or ())]
    if missing:
        raise BadTrace(f"{name}: there is no column {', '.join(missing)}")
    jobs: list[TraceJob] = []
    for row in table:
        try:
            job = _job(row, len(jobs), columns)
        except (ValueError, TypeError) as error:
            raise BadTrace(f"{name}, line {table.line_num}: {error}") from error
        if job.gpus:
            jobs.append(job)
    jobs.sort(key=lambda job: job.arrives_s)  # stable: of one instant, the order of the table
    return tuple(jobs)


def _job(row: Mapping[str, str], position: int, columns: Columns) -> TraceJob:
    id_ = row.get(columns.id) if columns.id is not None else None
    arrives_s = float(row[columns.arrival]) * columns.unit_s
    runtime_s = float(row[columns.runtime]) * columns.unit_s
    gpus = _whole(row[columns.gpus])
    if not (math.isfinite(arrives_s) and arrives_s >= 0):
        raise ValueError(f"arrives at {row[columns.arrival]}")
    if not (math.isfinite(runtime_s) and runtime_s >= 0):
        raise ValueError(f"runs for {row[columns.runtime]}")
    if gpus < 0:
        raise ValueError(f"takes {gpus} GPUs")
    return TraceJob(id_ or str(position), arrives_s, runtime_s, gpus)


def _whole(text: str) -> int:
    """A count, also where a table was written with ``1.0``."""
    value = float(text)
    if not value.is_integer():
        raise ValueError(f"{text} is no whole number")
    return int(value)
