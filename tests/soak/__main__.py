"""``python -m tests.soak --minutes 20``: made-up lives, budgets and failing clouds by turns, and
beside them storms over real processes, each from a seed that is printed; ``--seed life:N`` (or
``money``, ``clouds``, ``storm``) replays one. ``--full`` first takes 20,000 steps with budgets on
each database and launches 2,000 machines through 50 kills of the control plane."""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable
from itertools import cycle

from tests.soak.rounds import Done, clouds, life, money
from tests.soak.storm import weather

ROUNDS: dict[str, Callable[..., Done]] = {"life": life, "money": money, "clouds": clouds}
_said = threading.Lock()


def say(words: str) -> None:
    """One line at a time, whoever speaks."""
    with _said:
        sys.stdout.write(words + "\n")
        sys.stdout.flush()


def took_place(kind: str, seed: int, *, full: bool = False) -> bool:
    """One round; whether every promise held."""
    say(f"{kind}:{seed}  begins")
    if kind == "storm":
        return storm(seed)
    try:
        done = ROUNDS[kind](seed, full=full)
    except Exception:  # noqa: BLE001 - whatever it is, the seed must be told with it
        done = Done(False, "no round", traceback.format_exc())
    say(f"{kind}:{seed}  {done.about}, {'ok' if done.good else 'BROKEN'}")
    if not done.good:
        say(done.output[-20_000:])
    return done.good


def storm(seed: int) -> bool:
    """One storm over real processes; whether every promise held."""
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
    parser.add_argument("--full", action="store_true", help="budgets and clouds at full size first")
    parser.add_argument("--seed", help="life:N, money:N, clouds:N or storm:N: that one alone")
    arguments = parser.parse_args()
    if arguments.seed:
        kind, _, number = arguments.seed.partition(":")
        if kind not in (*ROUNDS, "storm") or not number.isdigit():
            parser.error(f"--seed is life:N, money:N, clouds:N or storm:N, not {arguments.seed!r}")
        return 0 if took_place(kind, int(number), full=arguments.full) else 1
    until = time.monotonic() + arguments.minutes * 60
    failed: list[str] = []

    def one(kind: str, *, full: bool = False) -> None:
        seed = random.SystemRandom().randrange(1, 10**6)
        if not took_place(kind, seed, full=full):
            failed.append(f"{kind}:{seed}{' FULL=1' if full else ''}")

    def by_turns() -> None:
        for kind in ("money", "clouds") if arguments.full else ():
            one(kind, full=True)
        for kind in cycle(ROUNDS):
            if time.monotonic() >= until or failed:
                return
            one(kind)

    turns = threading.Thread(target=by_turns)
    turns.start()
    while (time.monotonic() < until or turns.is_alive()) and not failed:
        one("storm")
    turns.join()
    for each in failed:
        say(f"replay it: make soak SEED={each}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
