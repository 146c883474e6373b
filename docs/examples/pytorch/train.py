"""Trains a small network with PyTorch; may be stopped anywhere and ends with the same weights.

    python train.py --steps 400 --seed 7

Everything that changes from step to step is in the checkpoint: weights, the optimizer's moments,
the schedule, both random generators and the step. It is written under a temporary name and then
renamed, so that a reader finds a whole one or none.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

import torch
from torch import nn

from hybrid import job

CHECKPOINT = "state.pt"
INPUTS, HIDDEN, CLASSES, BATCH = 32, 64, 10, 64


class Training:
    """All that changes, and what follows from the seed."""

    def __init__(self, seed: int, steps: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Linear(INPUTS, HIDDEN),
            nn.ReLU(),
            nn.Dropout(0.1),  # draws from the global generator, which is saved for its sake
            nn.Linear(HIDDEN, CLASSES),
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=steps)
        self.batches = torch.Generator().manual_seed(seed + 1)
        self.teacher = torch.randn(
            INPUTS, CLASSES, generator=torch.Generator().manual_seed(seed + 2)
        )
        self.step = 0

    def advance(self) -> float:
        """One step on a batch of its own; the loss."""
        x = torch.randn(BATCH, INPUTS, generator=self.batches)
        loss = nn.functional.cross_entropy(self.model(x), (x @ self.teacher).argmax(dim=1))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.step += 1
        return float(loss.detach())

    def save(self, folder: Path) -> None:
        """Write the checkpoint whole, or not at all."""
        draft = folder / f"{CHECKPOINT}.tmp"
        torch.save(
            {
                "step": self.step,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "batches": self.batches.get_state(),
                "torch": torch.get_rng_state(),
            },
            draft,
        )
        draft.rename(folder / CHECKPOINT)

    def load(self, folder: Path) -> bool:
        """Go on from what :meth:`save` wrote; False when there is nothing."""
        path = folder / CHECKPOINT
        if not path.exists():
            return False
        saved = torch.load(path, weights_only=True)  # data alone: nothing in it is executed
        self.step = saved["step"]
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.schedule.load_state_dict(saved["schedule"])
        self.batches.set_state(saved["batches"])
        torch.set_rng_state(saved["torch"])
        return True

    def digest(self) -> str:
        """SHA-256 over the bytes of all weights."""
        sha = hashlib.sha256()
        for tensor in self.model.state_dict().values():
            sha.update(tensor.contiguous().numpy().tobytes())
        return sha.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description="Train a small network, repeatably.")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint-every", type=int, default=50, metavar="STEPS")
    options = parser.parse_args()

    job.should_stop()  # from here on a signal is heard
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # sums in another order would not be equal to the bit
    training = Training(options.seed, options.steps)
    folder = job.checkpoint_dir()
    if training.load(folder):
        print(f"resumed from step {training.step}", flush=True)

    while training.step < options.steps:
        loss = training.advance()
        job.progress(training.step, options.steps)
        if training.step % 50 == 0:
            print(f"step {training.step}/{options.steps} loss {loss:.6f}", flush=True)
        if job.should_stop() and training.step < options.steps:
            training.save(folder)
            print(f"asked to stop: saved step {training.step}", flush=True)
            return job.EXIT_CHECKPOINTED
        if training.step % options.checkpoint_every == 0:
            training.save(folder)

    print(f"weights sha256 {training.digest()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
