"""``python -m tests.soak --minutes 20``: made-up lives and storms side by side, each from a seed
that is printed; ``--seed life:N`` or ``--seed storm:N`` replays one."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from tests.soak.storm import weather

ROOT = Path(__file__).resolve().parents[2]
LIVES = 12
LIFE_LIMIT_S = 1800
_said = threading.Lock()


def say(words: str) -> None:
    """One line at a time, whoever speaks."""
    with _said:
        sys.stdout.write(words + "\n")
        sys.stdout.flush()


def live(seed: int) -> bool:
    """A dozen made-up lives over memory, and one over SQLite; whether every promise held."""
    with tempfile.TemporaryDirectory() as folder:
        lived = Path(folder) / "lived"
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "pytest",
                    "-q",
                    "-n0",
                    "--timeout=0",
                    "-p",
                    "no:cacheprovider",
                ),
                *(f"--hypothesis-seed={seed}", "tests/properties/test_life.py"),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "HYBRID_SOAK": "1",
                "HYBRID_SOAK_EXAMPLES": str(LIVES),
                "HYBRID_SOAK_LIVED": str(lived),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIFE_LIMIT_S,
            check=False,
        )
        hours = sum(map(float, lived.read_text().split())) / 3600 if lived.exists() else 0.0
    good = done.returncode == 0 and hours > 0
    say(f"life:{seed}  {hours:.0f} hours lived, {'ok' if good else 'BROKEN'}")
    if not good:
        say(done.stdout[-20_000:])
    return good


def storm(seed: int) -> bool:
    """One storm; whether every promise held."""
    began = time.monotonic()
    try:
        broken, told = weather(seed)
    except Exception:  # noqa: BLE001 - whatever it is, the seed must be told with it
        broken, told = [traceback.format_exc()], []
    took = time.monotonic() - began
    said = told[-1].partition("s  ")[2] if told else ""
    say(f"storm:{seed}  {took:.0f} s, {'BROKEN' if broken else 'ok'}: {said}")
    if broken:
        say("\n".join([*told, *broken]))
    return not broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", help="life:N or storm:N, to do that one alone")
    arguments = parser.parse_args()
    kinds = {"life": live, "storm": storm}
    if arguments.seed:
        kind, _, number = arguments.seed.partition(":")
        if kind not in kinds or not number.isdigit():
            parser.error(f"--seed is life:N or storm:N, not {arguments.seed!r}")
        return 0 if kinds[kind](int(number)) else 1
    until = time.monotonic() + arguments.minutes * 60
    failed: list[str] = []

    def repeat(kind: str) -> None:
        while time.monotonic() < until and not failed:
            seed = random.SystemRandom().randrange(10**6)
            say(f"{kind}:{seed}  begins")
            if not kinds[kind](seed):
                failed.append(f"{kind}:{seed}")

    lives = threading.Thread(target=repeat, args=("life",))
    lives.start()
    repeat("storm")
    lives.join()
    for each in failed:
        say(f"replay it: make soak SEED={each}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
