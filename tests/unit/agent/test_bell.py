"""Waking long polls of this process."""

from __future__ import annotations

import asyncio
import threading
import time

from hybrid.agent.bell import Bell


def test_a_ring_from_another_thread_wakes_who_listens_for_the_key() -> None:
    bell = Bell()

    async def listen() -> bool:
        with bell.listen("node:a") as listening:
            threading.Timer(0.05, bell.ring, ("node:a",)).start()
            return await listening.wait(5.0)

    began = time.monotonic()
    assert asyncio.run(listen())
    assert time.monotonic() - began < 2.0


def test_a_ring_between_listening_and_waiting_is_not_lost() -> None:
    bell = Bell()

    async def listen() -> list[bool]:
        with bell.listen("k") as listening:
            bell.ring("k")
            return [await listening.wait(1.0), await listening.wait(0.01)]

    assert asyncio.run(listen()) == [True, False]


def test_other_keys_ring_for_others_and_no_key_for_all() -> None:
    bell = Bell()

    async def listen() -> list[bool]:
        with bell.listen("a") as a, bell.listen("b") as b:
            bell.ring("b")
            first = [await a.wait(0.01), await b.wait(1.0)]
            bell.ring()
            return [*first, await a.wait(1.0), await b.wait(1.0)]

    assert asyncio.run(listen()) == [False, True, True, True]


def test_a_closed_bell_lets_everybody_go() -> None:
    bell = Bell()

    async def listen() -> list[bool]:
        with bell.listen("a") as listening:
            threading.Timer(0.02, bell.close).start()
            return [await listening.wait(5.0), await listening.wait(5.0)]

    assert asyncio.run(listen()) == [True, True]
    assert bell.closed


def test_nobody_is_kept_after_listening() -> None:
    bell = Bell()

    async def listen() -> None:
        with bell.listen("a"):
            pass

    asyncio.run(listen())
    bell.ring("a")  # the loop is closed: this must not fail
    assert bell._waiting == {}
