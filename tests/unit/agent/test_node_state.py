"""What a node keeps: leases, remembered runs, folders, its own size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hybrid.agent.config import load_config
from hybrid.agent.exits import cause_of, exit_code_of
from hybrid.agent.guardian import Ended, boottime_s
from hybrid.agent.inventory import (
    HostInventory,
    address_towards,
    usable_cpus,
    usable_memory_gib,
)
from hybrid.agent.launch import ContainerKind, ContainerRuntime
from hybrid.agent.leases import ClaimLease, RunLease
from hybrid.agent.loops import Backoff
from hybrid.agent.poweroff import NotOurs, power_off
from hybrid.agent.protocol import RunDocument, WireRank
from hybrid.agent.remembered import Remembered
from hybrid.agent.run_folder import RunFolder, folders_in
from hybrid.agent.saving import step_in
from hybrid.agent.virtual import declared_gpus
from hybrid.domain.job import StopCause
from hybrid.domain.job_spec import JobSpec
from hybrid.ports.engine import RankPhase

SERVER = "http://127.0.0.1:9"


# --- leases ------------------------------------------------------------------------------------


def test_the_run_lease_counts_from_the_sending_and_never_shrinks() -> None:
    lease = RunLease()
    assert not lease.lasts
    now = boottime_s()
    assert lease.granted(now - 3, 600.0) == now + 597
    assert lease.granted(now - 2, 10.0) == now + 597
    assert lease.lasts
    assert lease.length_s == 10.0


def test_an_order_confirmed_before_the_lease_lapsed_does_not_begin_after_it() -> None:
    lease = RunLease()
    now = boottime_s()
    lease.granted(now - 100, 50.0)  # granted late: over already
    assert not lease.covers(now - 90)
    lease.granted(now, 50.0)
    assert not lease.covers(now - 90)
    assert lease.covers(now)


def test_the_claims_lease_is_one_integer_for_the_watchdog(tmp_path: Path) -> None:
    file = tmp_path / "var/lease"
    lease = ClaimLease(file)
    assert lease.remaining_s is None
    lease.granted(1_000.9, 60.4)
    assert file.read_text() == "1061\n"
    lease.granted(1_001.2, 60.5)  # a second more or less is no reason to write
    assert file.read_text() == "1061\n"
    lease.granted(1_030.0, 600.0)
    assert file.read_text() == "1630\n"
    lease.granted(1_031.0, 9.0)  # the server may also shorten it
    assert file.read_text() == "1040\n"


def test_the_next_agent_of_the_same_boot_recalls_the_claims_lease(tmp_path: Path) -> None:
    file = tmp_path / "lease"
    ClaimLease(file).granted(boottime_s(), 100.0)
    recalled = ClaimLease(file)
    recalled.recall()
    assert recalled.remaining_s is not None
    assert 98.0 < recalled.remaining_s <= 100.0
    file.write_text("soon")
    fresh = ClaimLease(file)
    fresh.recall()
    assert fresh.remaining_s is None


# --- memory ------------------------------------------------------------------------------------


def a_final(run: str, code: int = 0) -> WireRank:
    return WireRank(run_id=run, rank=0, phase=RankPhase.ENDED, exit_code=code)


def test_runs_are_remembered_across_restarts_and_the_first_word_stands(tmp_path: Path) -> None:
    path = tmp_path / "remembered.jsonl"
    memory = Remembered(path)
    memory.add(a_final("j.1", 3))
    memory.add(a_final("j.1", 9))
    again = Remembered(path)
    kept = again.report_of("j.1", 0)
    assert kept is not None
    assert kept.exit_code == 3
    assert again.report_of("j.1", 1) is None


def test_memory_is_bounded_and_a_torn_line_costs_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "remembered.jsonl"
    memory = Remembered(path, kept=5)
    for i in range(23):
        memory.add(a_final(f"j{i}.1"))
    assert len(path.read_text().splitlines()) <= 11
    with path.open("a") as file:
        file.write('{"run_id": "torn')
    again = Remembered(path, kept=5)
    assert [again.report_of(f"j{i}.1", 0) is not None for i in range(16, 23)] == [
        False,
        False,
        *[True] * 5,
    ]


def a_document(run: str = "j.1") -> RunDocument:
    return RunDocument(
        run_id=run,
        job_id="j",
        attempt=1,
        rank=0,
        nodes=1,
        spec=JobSpec(command=("x",), expected_runtime="1h"),
        master_port=20_000,
    )


def test_a_folder_keeps_its_order_its_facts_and_its_last_word(tmp_path: Path) -> None:
    folder = RunFolder.of(tmp_path, "j.1", 0)
    assert folder.document() is None
    folder.create(a_document())
    assert folder.document() == a_document()
    folder.note(first_step=7)
    folder.note(checkpoint=None)
    assert folder.facts() == {"first_step": 7, "checkpoint": None}
    assert folder.final() is None
    folder.finish(a_final("j.1", 2))
    assert folder.final() == a_final("j.1", 2)
    assert [found.path for found in folders_in(tmp_path)] == [folder.path]
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_staging_begins_from_nothing(tmp_path: Path) -> None:
    folder = RunFolder.of(tmp_path, "j.1", 0)
    folder.create(a_document())
    folder.work.mkdir()
    (folder.work / "half").write_text("unpacked")
    folder.clear_for_staging()
    assert list(folder.work.iterdir()) == []
    assert folder.document() == a_document()


@pytest.mark.parametrize(
    ("text", "step"), [("12\n", 12), ("0", 0), ("-1", None), ("a", None), ("9" * 40, None)]
)
def test_the_step_file_is_read_or_ignored(tmp_path: Path, text: str, step: int | None) -> None:
    assert step_in(tmp_path) is None
    (tmp_path / "STEP").write_text(text)
    assert step_in(tmp_path) == step


@pytest.mark.timeout(10)
def test_a_pipe_in_the_place_of_the_step_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "STEP")
    assert step_in(tmp_path) is None


# --- ends --------------------------------------------------------------------------------------


def ended(code: int | None, signal: str | None, cause: str | None = None) -> Ended:
    return Ended("j.1", "j", 1, code, signal, cause, 2.0, 2.0)


def test_codes_are_positive_for_exits_negative_for_signals_and_none_for_the_unseen() -> None:
    assert [exit_code_of(ended(c, s)) for c, s in ((0, None), (85, None), (None, None))] == [
        0,
        85,
        None,
    ]
    assert [exit_code_of(ended(None, s)) for s in ("SIGKILL", "SIGTERM", "SIG40", "?")] == [
        -9,
        -15,
        -40,
        None,
    ]


def test_every_cause_of_a_guardian_is_one_of_the_domains() -> None:
    from hybrid.agent.guardian.records import HARDNESS

    assert {cause_of(word) for word in HARDNESS} <= set(StopCause)
    assert cause_of(None) is None
    assert cause_of("of another version") is None


# --- the machine -------------------------------------------------------------------------------


def test_control_groups_lower_what_a_job_may_use(tmp_path: Path) -> None:
    assert usable_cpus(tmp_path) == len(os.sched_getaffinity(0))
    whole = usable_memory_gib(tmp_path)
    own = next(
        line[3:]
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        if line.startswith("0::")
    )
    group = tmp_path / own.lstrip("/")
    group.mkdir(parents=True, exist_ok=True)
    (group / "cpu.max").write_text("50000 100000\n")
    (group / "memory.max").write_text(f"{1 << 29}\n")
    assert (usable_cpus(tmp_path), usable_memory_gib(tmp_path)) == (0.5, 0.5)
    (group / "cpu.max").write_text("max 100000\n")
    (group / "memory.max").write_text("max\n")
    assert usable_cpus(tmp_path) == len(os.sched_getaffinity(0))
    assert usable_memory_gib(tmp_path) == whole


def test_the_inventory_tells_all_there_is(tmp_path: Path) -> None:
    config = load_config(None, {"server": SERVER, "block": "b", "rack": "r", "address": "h"}, {})
    podman = ContainerRuntime(ContainerKind.PODMAN, "/usr/bin/podman", "5.0")
    inventory = HostInventory(
        config, declared_gpus("a100-80gb:2:nvlink-pairs", "n1"), detect=lambda: (podman,)
    )
    inventory.machine_id = "i-1"
    found = inventory.read()
    assert (found.block, found.rack, found.address, found.machine_id) == ("b", "r", "h", "i-1")
    assert found.container_runtimes == ("podman",)
    assert len(found.gpus) == 2
    assert found.cpus > 0
    assert found.memory_gib > 0
    assert found.boot_id
    assert inventory.runtime == podman
    assert inventory.virtual((found.gpus[0].id,))
    assert not inventory.virtual(())


def test_the_address_is_the_one_on_the_way_to_the_server() -> None:
    assert address_towards("http://127.0.0.1:9") == "127.0.0.1"
    assert address_towards("http://name.invalid:9") == ""


def test_only_burst_machines_are_switched_off(tmp_path: Path) -> None:
    command = ["touch", str(tmp_path / "off")]
    owned = load_config(None, {"server": SERVER, "poweroff_command": command}, {})
    with pytest.raises(NotOurs):
        power_off(owned)
    burst = {"server": SERVER, "machine": "burst"}
    assert power_off(load_config(None, {**burst, "poweroff_command": command}, {}))
    assert (tmp_path / "off").exists()
    assert not power_off(load_config(None, {**burst, "poweroff_command": ["false"]}, {}))
    assert not power_off(load_config(None, {**burst, "poweroff_command": ["/no/such"]}, {}))
    assert not power_off(load_config(None, {**burst, "poweroff_url": SERVER}, {}))


def test_pauses_double_up_to_a_limit_and_begin_anew_after_a_success() -> None:
    backoff = Backoff(first_s=1.0, longest_s=4.0)
    pauses = [backoff.failed() for _ in range(5)]
    for pause, centre in zip(pauses, (1, 2, 4, 4, 4), strict=True):
        assert 0.7 * centre <= pause <= 1.3 * centre
    backoff.succeeded()
    assert backoff.failed() <= 1.3
