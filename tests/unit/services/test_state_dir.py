"""The state directory: private, atomic, one holder."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from hybrid.services.errors import StartupError
from hybrid.services.state_dir import StateDir


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_directory_is_private_and_so_are_its_secrets(tmp_path: Path) -> None:
    state = StateDir.opened(tmp_path / "deep" / "state")
    state.secret()
    state.keep_admin_token("hyb_abc")
    assert mode(state.path) == 0o700
    assert mode(state.path / "secret.key") == 0o600
    assert mode(state.path / "admin.token") == 0o600
    assert state.admin_token() == "hyb_abc"
    assert sorted(each.name for each in state.path.iterdir()) == ["admin.token", "secret.key"]


def test_an_open_directory_is_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    StateDir.opened(tmp_path / "state")
    assert mode(tmp_path / "state") == 0o700


def test_the_secret_stays_the_same_and_is_random(tmp_path: Path) -> None:
    first = StateDir.opened(tmp_path / "a")
    secret = first.secret()
    assert len(secret) == 32
    assert StateDir.opened(tmp_path / "a").secret() == secret
    assert StateDir.opened(tmp_path / "b").secret() != secret


def test_many_at_once_agree_on_one_secret(tmp_path: Path) -> None:
    state = StateDir.opened(tmp_path)
    barrier = threading.Barrier(8)
    found: list[bytes] = []

    def draw() -> None:
        barrier.wait()
        found.append(state.secret())

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 8


def test_a_damaged_secret_is_refused_and_not_replaced(tmp_path: Path) -> None:
    state = StateDir.opened(tmp_path)
    (tmp_path / "secret.key").write_bytes(b"short")
    with pytest.raises(StartupError, match=r"secret\.key is not a key of 32 bytes"):
        state.secret()
    assert (tmp_path / "secret.key").read_bytes() == b"short"


def test_a_directory_that_cannot_be_used_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError) as caught:
        StateDir.opened(tmp_path / "file" / "state")
    assert str(caught.value) == (
        f"the state directory {tmp_path / 'file' / 'state'} cannot be used: Not a directory"
    )


def test_one_holds_the_lock_and_the_next_is_told(tmp_path: Path) -> None:
    state = StateDir.opened(tmp_path)
    with state.locked() as first, state.locked() as second:
        assert (first, second) == (True, False)
    with state.locked() as again:
        assert again


def test_an_announcement_is_withdrawn_only_by_who_made_it(tmp_path: Path) -> None:
    state = StateDir.opened(tmp_path)
    state.announce(url="http://127.0.0.1:1", pid=os.getpid() + 1)
    state.withdraw()
    assert state.announced() == {"url": "http://127.0.0.1:1", "pid": os.getpid() + 1}
    state.announce(url="http://127.0.0.1:2", pid=os.getpid())
    state.withdraw()
    assert state.announced() is None


@pytest.mark.parametrize("text", ["", "not json", "[1]"])
def test_an_announcement_that_is_none_is_no_announcement(tmp_path: Path, text: str) -> None:
    state = StateDir.opened(tmp_path)
    (tmp_path / "server.json").write_text(text)
    assert state.announced() is None
    assert state.admin_token() is None
