"""Which server and which token."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from hybrid.cli import finding
from hybrid.cli.exits import CliError, Exit
from hybrid.cli.finding import find
from hybrid.services.state_dir import StateDir

URL = "http://127.0.0.1:8440"


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    state = StateDir.opened(tmp_path / "state")
    state.keep_admin_token("hyb_admin")
    return state


def test_the_server_of_the_state_directory_and_its_admin_token(state: StateDir) -> None:
    state.announce(url=URL, pid=os.getpid())
    place = find(None, None, state.path)
    assert (place.url, place.token) == (URL, "hyb_admin")


def test_a_token_that_is_named_comes_first(state: StateDir) -> None:
    state.announce(url=URL, pid=os.getpid())
    assert find(None, "hyb_mine", state.path).token == "hyb_mine"


def test_the_admin_token_is_not_shown_to_another_server(state: StateDir) -> None:
    state.announce(url=URL, pid=os.getpid())
    assert find("https://elsewhere.example", None, state.path).token is None
    assert find(URL + "/", None, state.path).token == "hyb_admin"


def test_no_state_directory_is_no_server(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"no server runs in .*nothing") as caught:
        find(None, None, tmp_path / "nothing")
    assert caught.value.exit is Exit.UNREACHABLE
    assert "hybrid up" in caught.value.hint


def test_a_server_that_died_is_told_from_one_that_runs(state: StateDir) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    state.announce(url=URL, pid=child)
    with pytest.raises(CliError, match=f"process {child}\\) is gone"):
        find(None, None, state.path)


def test_a_server_that_is_just_starting_is_waited_for(state: StateDir) -> None:
    state.announce(url="", pid=os.getpid())

    def later() -> None:
        time.sleep(0.2)
        state.announce(url=URL, pid=os.getpid())

    thread = threading.Thread(target=later)
    thread.start()
    assert find(None, None, state.path).url == URL
    thread.join()


def test_a_server_that_never_comes_up_is_not_waited_for_for_ever(
    state: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "STARTING_S", 0.1)
    state.announce(url="", pid=os.getpid())
    with pytest.raises(CliError, match="has been starting"):
        find(None, None, state.path)


def test_an_admin_token_that_others_can_read_is_not_used(state: StateDir) -> None:
    state.announce(url=URL, pid=os.getpid())
    (state.path / "admin.token").chmod(0o640)
    with pytest.raises(CliError, match="can be read by others") as caught:
        find(None, None, state.path)
    assert caught.value.hint == f"chmod 600 {state.path / 'admin.token'}"


def test_without_an_admin_token_the_server_is_asked_without_one(state: StateDir) -> None:
    state.announce(url=URL, pid=os.getpid())
    (state.path / "admin.token").unlink()
    assert find(None, None, state.path).token is None
