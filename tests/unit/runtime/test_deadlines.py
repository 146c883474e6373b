"""Port calls: side by side, each under a deadline, never twice under way."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from hybrid.runtime.deadlines import Answer, Calls, Failure, NoAnswer


@pytest.fixture
def calls() -> Iterator[Calls]:
    made = Calls(workers=4, name="test")
    yield made
    made.close()


class Hanging:
    """A call that ends when it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.times = 0

    def __call__(self) -> str:
        self.times += 1
        self.begun.set()
        assert self.let_go.wait(20)
        return "at last"


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    call = Hanging()
    yield call
    call.let_go.set()


def until(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.01)
    return False


def test_every_call_has_an_outcome_under_its_name(calls: Calls) -> None:
    def fail() -> int:
        raise OSError("no route")

    outcomes = calls.run({"one": lambda: 1, "two": fail}, deadline_s=10)
    assert outcomes["one"] == Answer(1)
    failure = outcomes["two"]
    assert isinstance(failure, Failure)
    assert str(failure.error) == "no route"


def test_a_call_that_hangs_is_unknown_and_keeps_nobody_else_waiting(
    calls: Calls, hanging: Hanging
) -> None:
    begun = time.monotonic()
    outcomes = calls.run({"slow": hanging, "quick": lambda: "now"}, deadline_s=0.2)
    assert time.monotonic() - begun < 5
    assert outcomes["quick"] == Answer("now")
    unknown = outcomes["slow"]
    assert isinstance(unknown, NoAnswer)
    assert unknown.waited_s >= 0.2


def test_a_call_that_hangs_is_never_under_way_twice(calls: Calls, hanging: Hanging) -> None:
    first = calls.run({"slow": hanging}, deadline_s=0.1)["slow"]
    second = calls.run({"slow": hanging}, deadline_s=0.1)["slow"]
    assert isinstance(first, NoAnswer)
    assert isinstance(second, NoAnswer)
    assert second.waited_s > first.waited_s  # counted from when it really began
    assert hanging.times == 1


def test_a_call_may_be_made_again_once_it_has_ended(calls: Calls, hanging: Hanging) -> None:
    calls.run({"slow": hanging}, deadline_s=0.1)
    hanging.let_go.set()
    assert until(lambda: calls.run({"slow": hanging}, deadline_s=5)["slow"] == Answer("at last"))
    assert hanging.times == 2


def test_a_call_that_ends_by_no_ordinary_exception_ends_the_caller(calls: Calls) -> None:
    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        calls.run({"die": die}, deadline_s=5)


def test_after_the_close_no_call_begins() -> None:
    made = Calls(workers=1, name="test")
    made.close()
    with pytest.raises(RuntimeError):
        made.run({"late": lambda: 1}, deadline_s=1)


def test_a_call_that_hangs_does_not_keep_the_process_from_ending() -> None:
    program = (
        "import threading\n"
        "from hybrid.runtime.deadlines import Calls, NoAnswer\n"
        "calls = Calls(workers=2, name='test')\n"
        "never = threading.Event()\n"
        "found = calls.run({'hangs': never.wait, 'ends': lambda: 1}, deadline_s=0.2)\n"
        "assert isinstance(found['hangs'], NoAnswer), found\n"
        "calls.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert done.returncode == 0


def test_more_calls_than_workers_are_all_made(calls: Calls) -> None:
    outcomes = calls.run({str(n): (lambda n=n: n) for n in range(40)}, deadline_s=20)  # type: ignore[misc]
    assert outcomes == {str(n): Answer(n) for n in range(40)}
