"""Nobody starves, teams get their shares, guarantees are kept, and rules cannot be gamed: the real
loop over hours of made-up time, with no cloud to escape to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import structlog

from hybrid.domain.ids import JobId
from hybrid.domain.job import Job, JobState, StopCause
from hybrid.domain.job_spec import JobSpec
from hybrid.ports.store import Bundle, Put
from hybrid.services.log_lines import log_to_stderr
from hybrid.simulation.clock import SimClock
from hybrid.simulation.drive import SIM_PACE, Control
from hybrid.simulation.engine import SimEngine
from hybrid.simulation.memory_store import MemoryStore
from hybrid.simulation.world import SimWorld
from tests.doubles.build import NOW

MINUTE, HOUR = 60.0, 3600.0
GPUS = 4


@pytest.fixture(autouse=True)
def _quiet_log() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    log_to_stderr(level="info")


@dataclass
class Shop:
    """One machine of four GPUs under a policy."""

    policy: str
    control: Control = field(init=False)
    sent: list[JobId] = field(default_factory=list)

    def __post_init__(self) -> None:
        clock = SimClock(NOW)
        engine = SimEngine("agent", clock, lambda job: job.spec.expected_runtime or 600.0)
        world = SimWorld(clock, {}, engine, step_s=10.0)
        # searching for better plans takes what time it gets: who goes first does not hang on it
        pace = replace(SIM_PACE, planning_s=0.0)
        self.control = Control(MemoryStore(), world, pace=pace)
        self.control.apply_policy(self.policy)
        self.control.apply_pool({"kind": "local", "name": "rack"})
        world.add_node("rack", "n1", "a10g", GPUS, links="pcie")
        self.control.tick()

    @property
    def now(self) -> float:
        return self.control.world.clock.now()

    def send(self, minutes: float, gpus: int = 1, **fields: Any) -> JobId:
        """A job whose walltime is what it takes, unless it says otherwise."""
        spec = {
            "command": ["train"],
            "expected_runtime": minutes * MINUTE,
            "walltime": minutes * MINUTE * 1.5,
            "resources": {"gpus": gpus},
            "speeds": {"a10g": 1.0},
            "checkpoint": {"enabled": True, "interval": 60, "size": 0.01},
            "stop": {"grace": 20},
            **fields,
        }
        job_id = self.control.submit(f"j{len(self.sent) + 1:04}", JobSpec(**spec))
        self.sent.append(job_id)
        return job_id

    def live(self, seconds: float, every_s: float = 30.0, then: Callable[[], None] = int) -> None:
        """Let time pass; ``then`` is called before every tick."""
        end = self.now + seconds
        while self.now < end:
            then()
            self.control.tick()
            self.control.world.advance(every_s)
        self.control.tick()

    def job(self, job_id: JobId) -> Job:
        found = self.control.store.job(job_id)
        assert found is not None
        return found

    def waited_s(self, job_id: JobId) -> float:
        """From its submission to its first instruction; until now if it has not had one."""
        job = self.job(job_id)
        started = next((s.at for s in job.history if s.state == JobState.RUNNING), self.now)
        return started - job.submitted_at

    def gpu_s(self, team: str, since: float = 0.0) -> float:
        """What a team's runs have held."""
        total = 0.0
        for job_id in self.sent:
            job = self.job(job_id)
            if job.team != team:
                continue
            for run in self.control.store.runs_of(job_id):
                end = self.now if run.ended_at is None else run.ended_at
                held = sum(len(slot.gpu_ids) for slot in run.slots)
                total += held * max(0.0, end - max(run.assigned_at, since))
        return total

    def waiting(self, team: str) -> int:
        """How many jobs of a team have not ended and do not run."""
        return sum(
            job.team == team and job.state is JobState.PENDING for job in map(self.job, self.sent)
        )


LOW_MAX_WAIT_S = 1 * HOUR
LONGEST_WALLTIME_S = 35 * MINUTE
STARVING = "priority_classes: {low: {max_wait: %s}, urgent: {max_wait: 1h}}"


def _beside_a_stream_of_urgent_ones(max_wait: str) -> tuple[Shop, list[JobId]]:
    """There is always an urgent job that waits, and comes before all low ones. A low one every 80
    min is less than a tenth of the machine."""
    shop = Shop(STARVING % max_wait)
    low: list[JobId] = []
    ticks = iter(range(10_000))

    def arrive() -> None:
        while shop.waiting("default") - sum(_waits(shop, job_id) for job_id in low) < GPUS:
            shop.send(9, priority="urgent", walltime=20 * MINUTE)
        if next(ticks) % 80 == 10:
            low.append(shop.send(30, priority="low", walltime=LONGEST_WALLTIME_S))

    shop.live(9 * HOUR, every_s=60, then=arrive)
    return shop, low


def _waits(shop: Shop, job_id: JobId) -> bool:
    return shop.job(job_id).state is JobState.PENDING


def test_low_jobs_start_within_their_longest_wait_beside_a_stream_of_urgent_ones() -> None:
    shop, low = _beside_a_stream_of_urgent_ones("1h")
    promised_s = LOW_MAX_WAIT_S + LONGEST_WALLTIME_S
    due = [job_id for job_id in low if shop.now - shop.job(job_id).submitted_at > promised_s]
    assert len(due) == 6
    assert max(shop.waited_s(job_id) for job_id in due) <= promised_s


def test_without_a_longest_wait_they_would_starve() -> None:
    shop, low = _beside_a_stream_of_urgent_ones("30d")
    assert shop.waited_s(low[0]) > LOW_MAX_WAIT_S + LONGEST_WALLTIME_S


def test_teams_get_gpu_time_by_their_weights_however_they_cut_their_jobs() -> None:
    """Blue cuts its work into many small jobs, red sends few wide ones: it changes nothing."""
    shop = Shop(
        "teams: {red: {weight: 3}, blue: {weight: 1}}\n"
        "fair_share: {half_life: 1h}\npreemption: {enabled: false}"
    )

    def arrive() -> None:
        while shop.waiting("red") < 4:
            shop.send(20, gpus=2, team="red")
        while shop.waiting("blue") < 8:
            shop.send(5, team="blue")

    shop.live(6 * HOUR, every_s=60, then=arrive)
    since = NOW + 2 * HOUR
    red, blue = shop.gpu_s("red", since), shop.gpu_s("blue", since)
    assert red + blue > 0.95 * GPUS * (shop.now - since)
    assert 2.4 < red / blue < 3.7


def test_a_team_that_was_away_does_not_own_the_machine_when_it_comes_back() -> None:
    """History decays: an idle week is not a claim on the next one."""
    shop = Shop("teams: {red: {}, blue: {}}\nfair_share: {half_life: 30m}")

    def keep(*teams: str) -> Callable[[], None]:
        def arrive() -> None:
            for team in teams:
                while shop.waiting(team) < 4:
                    shop.send(10, team=team)

        return arrive

    shop.live(4 * HOUR, every_s=60, then=keep("blue"))
    back = shop.now
    shop.live(4 * HOUR, every_s=60, then=keep("red", "blue"))
    assert shop.gpu_s("blue", back) > 0
    settled = back + 2 * HOUR
    share = shop.gpu_s("red", settled) / (shop.gpu_s("red", settled) + shop.gpu_s("blue", settled))
    assert 0.4 < share < 0.6


def test_guaranteed_gpus_come_back_within_one_grace() -> None:
    """Blue has borrowed all of them; red's normal job takes its own back at once."""
    shop = Shop("teams: {red: {guaranteed_gpus: 2}, blue: {}}")
    borrowed = [shop.send(300, team="blue") for _ in range(GPUS)]
    shop.live(2 * MINUTE)
    assert {shop.job(job_id).state for job_id in borrowed} == {JobState.RUNNING}
    mine = shop.send(10, gpus=2, team="red")
    grace_s, ticks_s = 20.0, 2 * 10.0
    shop.live(2 * MINUTE, every_s=10)
    assert shop.waited_s(mine) <= grace_s + ticks_s + 20.0
    stopped = [job_id for job_id in borrowed if shop.job(job_id).state is not JobState.RUNNING]
    assert len(stopped) == 2
    causes = [run.stop_cause for job_id in stopped for run in shop.control.store.runs_of(job_id)]
    assert causes == [StopCause.PREEMPT] * 2


def test_a_wide_urgent_job_is_not_kept_waiting_by_small_ones_of_lower_rank() -> None:
    """Priority inversion: small jobs keep coming, each of which would fit right now, but none may
    start that would delay the wide one that waits for the whole machine."""
    shop = Shop("preemption: {enabled: false}")
    first = shop.send(60, gpus=2)
    shop.live(1 * MINUTE)
    wide = shop.send(30, gpus=GPUS, priority="high")

    def arrive() -> None:
        while shop.waiting("default") < 8:
            shop.send(45)

    shop.live(3 * HOUR, every_s=60, then=arrive)
    ended_at = shop.job(first).ended_at
    assert ended_at is not None
    started_at = shop.job(wide).submitted_at + shop.waited_s(wide)
    assert started_at - ended_at <= 2 * MINUTE


def test_to_send_a_job_again_gains_nothing() -> None:
    """Age counts from submission: who cancels and sends again is at the end of the queue."""
    shop = Shop("preemption: {enabled: false}\nburst: {enabled: false}")
    shop.send(60, gpus=GPUS)
    shop.live(1 * MINUTE)
    patient = shop.send(30, gpus=GPUS, team="red")
    again = shop.send(30, gpus=GPUS, team="red")
    for _ in range(4):
        shop.live(5 * MINUTE)
        job = shop.job(again)
        shop.control.store.commit(_cancelled(job), at=shop.now)
        again = shop.send(30, gpus=GPUS, team="red")
    shop.live(3 * HOUR, every_s=60)
    assert shop.waited_s(patient) < 62 * MINUTE
    first = shop.job(patient).submitted_at + shop.waited_s(patient)
    second = shop.job(again).submitted_at + shop.waited_s(again)
    assert first < second


def _cancelled(job: Job) -> list[Bundle]:
    """As the service does it."""
    return [Bundle(id="cancel", changes=(Put(replace(job, cancel_requested=True)),))]


def test_a_padded_walltime_gains_nothing_and_loses_the_gaps() -> None:
    """Two like jobs, one of which claims twelve hours: the honest one is let into the gap before
    the wide job, the padded one waits until after it."""
    shop = Shop("preemption: {enabled: false}")
    shop.send(120, gpus=2, walltime=150 * MINUTE)
    shop.live(1 * MINUTE)
    wide = shop.send(30, gpus=GPUS, priority="high")
    padded = shop.send(10, walltime=12 * HOUR, expected_runtime=None)
    honest = shop.send(10, walltime=15 * MINUTE)
    shop.live(4 * HOUR, every_s=60)
    assert shop.waited_s(honest) < 2 * MINUTE
    assert shop.waited_s(padded) > shop.waited_s(wide)
