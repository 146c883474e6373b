"""A small training job that may be stopped anywhere and ends with the same weights, to the bit.

    python -m hybrid.demo.jobs.train --steps 200 --seed 7 --work 256

Fits a two-layer head on frozen random features to a random teacher, with momentum SGD. All state
(weights, momenta, random generator, step) is in its checkpoint. ``--work`` is the width of the
frozen layers, through which every batch really goes, and ``--step-seconds`` how long a step takes
at least, as if its sums were done elsewhere. With NNODES > 1 every rank computes the gradient of
its own batch and all take the mean, summed in the order of ranks, so a gang is as repeatable as a
single process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Before NumPy is loaded: sums in another order would not be equal to the bit, and several jobs
# share a few cores.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
from numpy.typing import NDArray

from hybrid import job
from hybrid.demo.jobs.gang import PeerLost, Ranks, join

Array = NDArray[np.float64]

INPUTS, HIDDEN, OUTPUTS = 16, 32, 4
BATCH = 32
LEARNING_RATE = 0.05
MOMENTUM = 0.9
CHECKPOINT = "state.npz"
EXIT_FAILED = 1


@dataclass(frozen=True)
class Frozen:
    """What is never trained and never saved: it follows from the seed."""

    teacher: Array
    wide: tuple[Array, Array] | None

    @classmethod
    def from_seed(cls, seed: int, work: int) -> Frozen:
        """``work`` is rounded up to a multiple of the number of inputs."""
        rng = np.random.default_rng([seed, 1_000_003])
        teacher = rng.standard_normal((INPUTS, OUTPUTS))
        if work <= 0:
            return cls(teacher, None)
        width = -(-work // INPUTS) * INPUTS
        first = rng.standard_normal((INPUTS, width)) / np.sqrt(INPUTS)
        second = rng.standard_normal((width, width)) / np.sqrt(width)
        return cls(teacher, (first, second))

    def features(self, x: Array) -> Array:
        """The batch after the frozen layers, pooled back to the width of the inputs."""
        if self.wide is None:
            return x
        deep = np.maximum(np.maximum(x @ self.wide[0], 0.0) @ self.wide[1], 0.0)
        pooled: Array = deep.reshape(len(x), INPUTS, -1).mean(axis=2)
        return x + pooled


@dataclass
class Training:
    """All that changes from step to step."""

    step: int
    weights: list[Array]
    momenta: list[Array]
    rng: np.random.Generator

    @classmethod
    def begin(cls, seed: int, rank: int) -> Training:
        """Equal weights on every rank, other data on each."""
        shared = np.random.default_rng(seed)
        weights = [
            shared.standard_normal((INPUTS, HIDDEN)) / np.sqrt(INPUTS),
            np.zeros(HIDDEN),
            shared.standard_normal((HIDDEN, OUTPUTS)) / np.sqrt(HIDDEN),
            np.zeros(OUTPUTS),
        ]
        momenta = [np.zeros_like(weight) for weight in weights]
        return cls(0, weights, momenta, np.random.default_rng([seed, rank]))

    def gradient(self, frozen: Frozen) -> Array:
        """The next batch's loss, and after it the gradient, as one row of numbers."""
        w1, b1, w2, b2 = self.weights
        x = self.rng.standard_normal((BATCH, INPUTS))
        y = np.sin(x @ frozen.teacher)
        features = frozen.features(x)
        hidden = np.tanh(features @ w1 + b1)
        error = hidden @ w2 + b2 - y
        d_out = 2.0 * error / error.size
        d_hidden = (d_out @ w2.T) * (1.0 - hidden**2)
        slopes = [features.T @ d_hidden, d_hidden.sum(0), hidden.T @ d_out, d_out.sum(0)]
        return np.concatenate([[np.mean(error**2)], *(slope.ravel() for slope in slopes)])

    def apply(self, numbers: Array) -> float:
        """One step along what :meth:`gradient` (or the mean of several) gave; the loss."""
        start = 1
        for weight, momentum in zip(self.weights, self.momenta, strict=True):
            slope = numbers[start : start + weight.size].reshape(weight.shape)
            start += weight.size
            momentum *= MOMENTUM
            momentum += slope
            weight -= LEARNING_RATE * momentum
        self.step += 1
        return float(numbers[0])

    def save(self, directory: Path) -> None:
        """Write the checkpoint under a temporary name, then rename it."""
        temporary = directory / f"{CHECKPOINT}.tmp"
        arrays: dict[str, NDArray[Any]] = {
            f"weight{i}": weight for i, weight in enumerate(self.weights)
        }
        arrays |= {f"momentum{i}": momentum for i, momentum in enumerate(self.momenta)}
        arrays["step"] = np.array(self.step)
        arrays["generator"] = np.array(json.dumps(self.rng.bit_generator.state))
        _write_arrays(temporary, arrays)
        temporary.replace(directory / CHECKPOINT)
        label = directory / "STEP.tmp"
        label.write_text(f"{self.step}\n")
        label.replace(directory / "STEP")

    @classmethod
    def load(cls, directory: Path) -> Training | None:
        """What :meth:`save` wrote; None when there is nothing."""
        try:
            with np.load(directory / CHECKPOINT, allow_pickle=False) as saved:
                rng = np.random.default_rng()
                rng.bit_generator.state = json.loads(str(saved["generator"]))
                return cls(
                    step=int(saved["step"]),
                    weights=[saved[f"weight{i}"] for i in range(4)],
                    momenta=[saved[f"momentum{i}"] for i in range(4)],
                    rng=rng,
                )
        except FileNotFoundError:
            return None

    def digest(self) -> str:
        """SHA-256 over the bytes of all weights."""
        return hashlib.sha256(b"".join(weight.tobytes() for weight in self.weights)).hexdigest()


def _write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())


def train(training: Training, frozen: Frozen, ranks: Ranks, options: argparse.Namespace) -> int:
    """Step until the end or until somebody asks to stop; the exit code."""
    directory = job.checkpoint_dir()
    began = training.step
    while training.step < options.steps:
        begun_s = time.monotonic()
        before = training.rng.bit_generator.state
        numbers = training.gradient(frozen)
        try:
            stop, numbers = ranks.average(job.should_stop(), numbers)
        except PeerLost as error:
            # Without having got anywhere, "run me again" could go on for ever.
            say(f"lost the gang at step {training.step}: {error}")
            if training.step == began:
                return EXIT_FAILED
            training.rng.bit_generator.state = before
            training.save(directory)
            return job.EXIT_CHECKPOINTED
        loss = training.apply(numbers)
        job.progress(training.step, options.steps)
        if training.step % options.log_every == 0 or training.step == options.steps:
            say(f"step {training.step}/{options.steps} loss {loss:.6f}")
        if stop and training.step < options.steps:
            training.save(directory)
            say(f"asked to stop: saved step {training.step}")
            return job.EXIT_CHECKPOINTED
        if training.step % options.checkpoint_every == 0:
            training.save(directory)
        time.sleep(max(0.0, begun_s + options.step_seconds - time.monotonic()))
    return 0


def finish(training: Training, outputs: Path) -> None:
    """Write the final weights and print their digest."""
    outputs.mkdir(parents=True, exist_ok=True)
    temporary = outputs / "weights.npz.tmp"
    _write_arrays(temporary, {f"weight{i}": w for i, w in enumerate(training.weights)})
    temporary.replace(outputs / "weights.npz")
    say(f"weights sha256 {training.digest()}")


def say(line: str) -> None:
    """One line for the log, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not above 0")
    return value


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network, repeatably.")
    parser.add_argument("--steps", type=_positive, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=int, default=0, help="width of the frozen layers")
    parser.add_argument(
        "--step-seconds", type=float, default=0.0, help="what a step takes at least"
    )
    parser.add_argument("--checkpoint-every", type=_positive, default=25, metavar="STEPS")
    parser.add_argument("--log-every", type=_positive, default=10, metavar="STEPS")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"))
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Resume or begin, train, and write the result; the exit code of the job contract."""
    options = _options(arguments)
    job.should_stop()  # from here on a signal is heard
    rank = int(os.environ.get("NODE_RANK", "0"))
    resumed = Training.load(job.checkpoint_dir())
    training = resumed or Training.begin(options.seed, rank)
    if resumed is not None:
        say(f"resumed from step {training.step}")
    job.progress(training.step, options.steps)
    try:
        with join(training.step) as ranks:
            code = train(training, Frozen.from_seed(options.seed, options.work), ranks, options)
    except PeerLost as error:
        say(f"the gang did not meet: {error}")
        return EXIT_FAILED
    if code == 0:
        finish(training, options.outputs)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
