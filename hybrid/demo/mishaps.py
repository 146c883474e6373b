"""What goes wrong in the demo: a spot machine is taken away; with chaos, processes are killed."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from hybrid.client import ClientError

if TYPE_CHECKING:
    from hybrid.demo.story import Story

TAKEN_AFTER_STEP = 0.15
"""A machine is taken once its job has done this part of its steps."""

SERVER_KILLS = 3
KILLS_WITHIN_S = (6.0, 45.0)
BREATH_S = 6.0
"""A server that was killed has so long before it is killed again: on a slow machine the moments
would otherwise follow each other before it has done anything."""


class Mishaps:
    """Chooses victims and moments; repeatable by the random generator's seed."""

    def __init__(self, random_: random.Random, *, chaos: bool) -> None:
        low, high = KILLS_WITHIN_S
        moments = sorted(random_.uniform(low, high) for _ in range(SERVER_KILLS if chaos else 0))
        self._server_kills = moments
        self._agent_kill = random_.uniform(low, high) if chaos else None
        self._not_before_s = 0.0
        self.interrupted: dict[str, str] = {}

    def happen(self, story: Story) -> None:
        """Let happen what is due."""
        self._take_a_spot_machine(story)
        due_s = max(self._server_kills[0], self._not_before_s) if self._server_kills else math.inf
        if story.elapsed_s >= due_s:
            self._server_kills.pop(0)
            story.stage.kill_server()
            story.note("the server is killed (SIGKILL) and started again")
            story.stage.start_server()
            self._not_before_s = story.elapsed_s + BREATH_S
        if self._agent_kill is not None and story.elapsed_s >= self._agent_kill:
            self._agent_kill = None
            story.stage.kill_agent()
            story.note("this machine's agent is killed (SIGKILL) and started again")
            story.stage.start_agent()

    def _take_a_spot_machine(self, story: Story) -> None:
        """Take the machine of the job that is there to lose one, in the middle of its run."""
        if self.interrupted or story.claims is None or story.stage.cloud is None:
            return
        sent = story.by_name("vision-spot")
        if sent is None or sent.last is None or sent.last.pool != "spot":
            return
        try:
            job = story.client.job(sent.id)
        except ClientError:
            return
        run = job.runs[-1] if job.runs else None
        if run is None or run.progress is None or run.progress.total == 0:
            return
        done = run.progress.step / run.progress.total
        machine = next(
            (
                claim.machine_id
                for claim in story.claims.claims
                if claim.node_id == run.slots[0].node_id and claim.state == "ready"
            ),
            None,
        )
        if machine is None or done < TAKEN_AFTER_STEP or job.checkpoint is None:
            return
        with story.stage.cloud.control() as control:
            control.interrupt(machine)
        self.interrupted[sent.id] = machine
        story.note(f"the cloud takes {machine} from {sent.job.name} at step {run.progress.step}")
