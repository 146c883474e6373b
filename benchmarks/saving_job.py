"""The job of ``benchmarks.recovery``: counts steps, and saves all of a large state every so often.

It tells what it does in a file of its own (``--trace``), one line for each step, so that what was
lost is known without asking the product.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from hybrid import job


def save(step: int, state_bytes: int) -> None:
    """Every byte differs from the last save, as weights do."""
    folder = job.checkpoint_dir()
    draft = folder / "state.bin.tmp"
    draft.write_bytes(step.to_bytes(8, "big") + np.random.default_rng(step).bytes(state_bytes - 8))
    draft.rename(folder / "state.bin")
    label = folder / "STEP.tmp"
    label.write_text(f"{step}\n")
    label.rename(folder / "STEP")


def saved_step() -> int:
    """The step that the state holds; 0 without one."""
    try:
        with (job.checkpoint_dir() / "state.bin").open("rb") as file:
            return int.from_bytes(file.read(8), "big")
    except FileNotFoundError:
        return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--state-bytes", type=int, required=True)
    parser.add_argument("--step-s", type=float, default=0.2)
    parser.add_argument("--save-every", type=int, default=25)
    parser.add_argument("--steps", type=int, default=9_000)
    options = parser.parse_args()
    job.should_stop()  # from here on a signal is heard
    step = saved_step()
    with options.trace.open("a", encoding="ascii") as trace:
        print(f"begin {step} {time.time():.3f}", file=trace, flush=True)
        if step == 0:
            save(0, options.state_bytes)
        while step < options.steps:
            time.sleep(options.step_s)
            step += 1
            job.progress(step, options.steps)
            print(f"step {step} {time.time():.3f}", file=trace, flush=True)
            if job.should_stop():
                save(step, options.state_bytes)
                return job.EXIT_CHECKPOINTED
            if step % options.save_every == 0:
                save(step, options.state_bytes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
