"""What a checkpoint costs beside plain copies of the same files to the same object server.

``python -m benchmarks.checkpoint [--quick]`` makes two directories from a fixed seed, 1 GiB in 200
files and 5,000 small files, and starts a local S3 server (moto's). Each directory goes there by
plain ``fsspec.put`` and as a checkpoint, comes back by ``fsspec.get`` and by a restore, and is
committed again after 5 % of its bytes were changed in place. A ratio is the plain time divided by
ours in the same round; the line gives its median over five rounds, for the worse of the two
directories. What comes back is compared with what was sent, byte by byte.
"""

from __future__ import annotations

import argparse
import filecmp
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import numpy as np

from benchmarks.comparison import Compared
from benchmarks.machine import Stopwatch, print_line
from benchmarks.object_server import BUCKET, object_server
from hybrid.agent.checkpoints import CheckpointStore, CommitRequest

CHANGED = 0.05
FIRST_WANTED, DELTA_WANTED = 0.9, 5.0
ROUNDS, QUICK_ROUNDS = 5, 1
KEYS = ("first_ratio", "delta_ratio", "restore_ratio")


@dataclass(frozen=True, slots=True)
class Shape:
    """A directory of ``files`` files of ``file_bytes`` each. Where 5 % of the bytes change,
    ``few_files`` rewrites every twentieth file, else each file a twentieth of it."""

    name: str
    files: int
    file_bytes: int
    few_files: bool

    @property
    def total_bytes(self) -> int:
        return self.files * self.file_bytes


SHAPES = (
    Shape("gib_in_200_files", 200, (1 << 30) // 200, few_files=False),
    Shape("5000_small_files", 5000, 16 << 10, few_files=True),
)
QUICK_SHAPES = (
    Shape("gib_in_200_files", 25, (1 << 30) // 200, few_files=False),
    Shape("5000_small_files", 500, 16 << 10, few_files=True),
)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one round."""

    put: float
    first: float
    delta: float
    get: float
    restore: float


def write_files(root: Path, shape: Shape, rng: np.random.Generator) -> None:
    """Random bytes, which no two blocks share and nothing compresses."""
    root.mkdir(parents=True)
    for number in range(shape.files):
        (root / f"part-{number:05d}.bin").write_bytes(rng.bytes(shape.file_bytes))


def change_in_place(root: Path, shape: Shape, rng: np.random.Generator) -> int:
    """Overwrite 5 % of the bytes where they stand; how many."""
    changed = 0
    for number, path in enumerate(sorted(root.iterdir())):
        if shape.few_files:
            size = shape.file_bytes if number % round(1 / CHANGED) == 0 else 0
        else:
            size = int(shape.file_bytes * CHANGED)
        if size:
            with path.open("r+b") as file:
                file.seek(int(rng.integers(0, shape.file_bytes - size + 1)))
                file.write(rng.bytes(size))
            changed += size
    return changed


def same_files(one: Path, other: Path) -> bool:
    """Whether two flat directories hold the same bytes under the same names."""
    names = sorted(path.name for path in one.iterdir())
    if names != sorted(path.name for path in other.iterdir()):
        return False
    _, mismatched, errors = filecmp.cmpfiles(one, other, names, shallow=False)
    return not mismatched and not errors


def measure_round(folder: Path, shape: Shape, url: str, number: int) -> Times:
    """One round of all five on fresh names; raises RuntimeError when something came back wrong."""
    rng = np.random.default_rng([number, shape.files])
    work, copied, restored = folder / "work", folder / "copied", folder / "restored"
    write_files(work, shape, rng)
    plain = f"{BUCKET}/plain-{shape.name}-{number}/"
    where = f"s3://{BUCKET}/checkpoints-{shape.name}-{number}"
    # no instance is shared: neither side may profit from connections or listings of the other
    files = fsspec.filesystem("s3", skip_instance_cache=True, client_kwargs={"endpoint_url": url})
    request = CommitRequest(job_id="bench", run_id="bench.1", attempt=1, step=1)
    store = CheckpointStore.open(where, {"endpoint_url": url})
    stamps = folder / "stamps.json"

    def first() -> float:
        return _seconds(lambda: store.commit(request, work, stamps))

    def put() -> float:
        return _seconds(lambda: files.put(f"{work}/", plain, recursive=True))

    # who goes first changes: the first to read finds the files less warm
    put_s, first_s = _in_turn(put, first, swapped=bool(number % 2))
    get_s = _seconds(lambda: files.get(plain, f"{copied}/", recursive=True))
    if not same_files(work, copied):
        raise RuntimeError(f"{shape.name}: what fsspec brought back is not what it had sent")
    files.rm(plain, recursive=True)
    change_in_place(work, shape, rng)
    delta_s = _seconds(lambda: store.commit(request, work, stamps))
    # another node restores: it has nothing in memory
    other = CheckpointStore.open(where, {"endpoint_url": url})
    restore_s = _seconds(lambda: other.restore("bench", restored))
    if not same_files(work, restored):
        raise RuntimeError(f"{shape.name}: what was restored is not what was committed")
    shutil.rmtree(folder)
    return Times(put_s, first_s, delta_s, get_s, restore_s)


def _in_turn(
    one: Callable[[], float], other: Callable[[], float], *, swapped: bool
) -> tuple[float, float]:
    if swapped:
        later = other()
        return one(), later
    return one(), other()


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def ratios(times: Times) -> dict[str, float]:
    """How many times as fast as plain copies; a commit of changes is compared with a whole put."""
    return {
        "first_ratio": times.put / times.first,
        "delta_ratio": times.put / times.delta,
        "restore_ratio": times.get / times.restore,
    }


def middle(rounds: Sequence[Times]) -> dict[str, float]:
    """The median of each ratio: both sides of one were measured within seconds of each other, and
    what else the machine did meanwhile hit both."""
    return {key: statistics.median(ratios(each)[key] for each in rounds) for key in KEYS}


def figures(measured: Mapping[Shape, Sequence[Times]]) -> dict[str, Any]:
    """The line: the worse of each ratio, and all there is of each directory."""
    by_shape = {shape: middle(rounds) for shape, rounds in measured.items()}
    line: dict[str, Any] = {
        key: round(min(each[key] for each in by_shape.values()), 3) for key in KEYS
    }
    line["shapes"] = {
        shape.name: {
            "files": shape.files,
            "total_bytes": shape.total_bytes,
            "rounds": len(rounds),
            **{
                f"{what}_s": round(statistics.median(getattr(each, what) for each in rounds), 3)
                for what in ("put", "first", "delta", "get", "restore")
            },
            **{key: round(value, 3) for key, value in by_shape[shape].items()},
        }
        for shape, rounds in measured.items()
    }
    return line


def compare(line: Mapping[str, Any]) -> list[Compared]:
    """The rows of the results file: plain copies beside ours."""
    rows = []
    for name, each in line["shapes"].items():
        rows += [
            Compared(f"{name}, first commit", f"{each['put_s']} s", f"{each['first_s']} s"),
            Compared(f"{name}, 5 % changed", f"{each['put_s']} s", f"{each['delta_s']} s"),
            Compared(f"{name}, restore", f"{each['get_s']} s", f"{each['restore_s']} s"),
        ]
    first, delta = line["first_ratio"], line["delta_ratio"]
    return [
        *rows,
        Compared("first_ratio", "1", f"{first}", f"≥ {FIRST_WANTED}", first >= FIRST_WANTED),
        Compared("delta_ratio", "1", f"{delta}", f"≥ {DELTA_WANTED:g}", delta >= DELTA_WANTED),
        Compared("restore_ratio", "1", f"{line['restore_ratio']}"),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.checkpoint", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="an eighth of the files, one round")
    parser.add_argument("--tmp", type=Path, help="folder for the files (needs 4 GiB)")
    arguments = parser.parse_args(argv)
    watch = Stopwatch()
    # which release of s3fs goes with which botocore is the lock file's business
    warnings.filterwarnings("ignore", message="Your installed version of s3fs")
    measured: dict[Shape, list[Times]] = {}
    for shape in QUICK_SHAPES if arguments.quick else SHAPES:
        rounds = []
        for number in range(QUICK_ROUNDS if arguments.quick else ROUNDS):
            # a fresh server each time: moto keeps what it has in memory
            with (
                tempfile.TemporaryDirectory(dir=arguments.tmp) as folder,
                object_server() as server,
            ):
                rounds.append(measure_round(Path(folder) / "round", shape, server.url, number))
            print(f"{shape.name}: {rounds[-1]}", flush=True)
        measured[shape] = rounds
    print_line("checkpoint", watch, figures(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
