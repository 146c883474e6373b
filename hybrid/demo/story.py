"""Plays the demo: builds the stage, sends the jobs, lets things happen, and tells how it ended."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console

from hybrid.client import ClientError, HybridClient, Problem
from hybrid.client import answers as said
from hybrid.demo import cast, scene
from hybrid.demo.cast import DemoJob
from hybrid.demo.ending import Ending, as_document, show_ending
from hybrid.demo.mishaps import Mishaps
from hybrid.demo.stage import Stage, StageError
from hybrid.demo.watch import Screen, Silent
from hybrid.services.log_lines import log_to_stderr

TICK_S = 0.5
LONGEST_S = 200.0
"""The demo gives up after this long; it takes about two minutes."""
ALL_GONE_S = 60.0

Output = Literal["table", "json"]


@dataclass(slots=True)
class Sent:
    """A job that was sent: what came of it, and what was weighed for it before it first ran."""

    job: DemoJob
    at: float
    id: str = ""
    refusal: str = ""
    refusal_code: str = ""
    last: said.JobLine | None = None
    explained: said.Explanation | None = None


@dataclass(slots=True)
class Story:
    """The demo while it goes on."""

    stage: Stage
    client: HybridClient
    began: float
    sent: list[Sent] = field(default_factory=list)
    nodes: said.NodeList | None = None
    claims: said.ClaimList | None = None
    budget: said.Budget | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def elapsed_s(self) -> float:
        """Since the first job was sent."""
        return time.monotonic() - self.began

    def note(self, words: str) -> None:
        """Something happened that a viewer should read."""
        self.notes.append(f"{self.elapsed_s:5.1f} s  {words}")

    def by_name(self, name: str) -> Sent | None:
        """A sent job."""
        return next((each for each in self.sent if each.job.name == name), None)

    @property
    def over(self) -> bool:
        """Whether every job has ended or was refused."""
        return all(
            each.refusal or (each.last is not None and each.last.state.ended) for each in self.sent
        )

    def look(self) -> None:
        """Read how everything stands. A server that is down (or being killed) is looked at again
        later."""
        with contextlib.suppress(ClientError):
            lines = {line.id: line for line in self.client.jobs(limit=100).jobs}
            self.nodes = self.client.nodes()
            self.claims = self.client.claims()
            budgets = self.client.budgets().budgets
            self.budget = budgets[0] if budgets else None
            for each in self.sent:
                line = lines.get(each.id)
                if line is not None:
                    self._seen(each, line)

    def _seen(self, each: Sent, line: said.JobLine) -> None:
        before = each.last.decision if each.last is not None else None
        each.last = line
        if line.decision is None or line.decision == before or line.attempts > 0:
            return
        explained = self.client.explain(each.id)
        if explained.alternatives or each.explained is None:
            each.explained = explained

    def send(self, job: DemoJob) -> None:
        """Submit one job over REST."""
        each = Sent(job, self.elapsed_s)
        self.sent.append(each)
        try:
            answer, _ = self.client.submit(job.document, key=f"demo-{job.name}")
            each.id = answer.id
        except Problem as refusal:
            each.refusal, each.refusal_code = refusal.detail, refusal.code
            self.note(f"{job.name} is refused at once: {refusal.detail}")


def run_demo(
    *,
    serve: bool = False,
    chaos: bool = False,
    seed: int = 0,
    output: Output = "table",
    state_dir: Path | None = None,
) -> int:
    """Play the demo; 0 when every check held, else 1.

    ``serve`` leaves the server up afterwards until interrupted. ``chaos`` kills the server with
    SIGKILL at three random moments and one agent once; ``seed`` makes the moments repeatable.
    """
    # what the demo's own simulations log is nobody's business; its servers log to files
    log_to_stderr(level="error")
    with ExitStack() as held:
        folder = held.enter_context(_folder(state_dir))
        stage = Stage(folder)
        held.callback(stage.end)
        screen: Screen | Silent = Screen() if output == "table" else Silent()
        held.enter_context(screen)
        try:
            story = _begin(stage, held)
            _play(story, Mishaps(random.Random(seed), chaos=chaos), screen)  # noqa: S311
            screen.close()
            ending = _end(story, screen, chaos=chaos, keep_server=serve)
        except StageError as problem:
            sys.stderr.write(f"hybrid demo: {problem}\n")
            return 1
        if output == "json":
            sys.stdout.write(json.dumps(as_document(ending), indent=1) + "\n")
        else:
            show_ending(ending, Console())
        if serve:
            _stay(stage)
    return 0 if ending.ok else 1


@contextmanager
def _folder(state_dir: Path | None) -> Iterator[Path]:
    if state_dir is not None:
        state_dir.mkdir(parents=True, exist_ok=True)
        yield state_dir.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="hybrid-demo-"))
    try:
        yield folder.resolve()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _begin(stage: Stage, held: ExitStack) -> Story:
    cloud = stage.start_cloud()
    stage.start_server()
    client = HybridClient(stage.url, stage.admin_token)
    held.callback(client.close)
    with cloud.control() as control:
        seen = control.state()
    client.apply_pool(scene.local_pool())
    for name, market in (("spot", "spot"), ("steady", "on_demand")):
        document = scene.burst_pool(name, market, seen.image_id, seen.subnets)
        client.apply_pool(document)
    client.apply_policy(scene.policy(), why="the demo's")
    token = client.create_token({"role": "node", "pool": "local"})
    stage.start_agent(token.secret)
    story = Story(stage, client, time.monotonic())
    _wait_for_this_machine(story)
    story.began = time.monotonic()
    return story


def _wait_for_this_machine(story: Story) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        story.look()
        if story.nodes is not None and story.nodes.nodes:
            return
        time.sleep(0.1)
    raise StageError(f"this machine's agent did not join; see {story.stage.folder / 'agent.log'}")


def _play(story: Story, mishaps: Mishaps, screen: Screen | Silent) -> None:
    waiting = sorted(cast.jobs(), key=lambda job: job.after_s)
    while True:
        while waiting and waiting[0].after_s <= story.elapsed_s:
            story.send(waiting.pop(0))
        story.look()
        mishaps.happen(story)
        screen.draw(story)
        if not waiting and story.over:
            return
        if story.elapsed_s > LONGEST_S:
            story.note(f"gave up after {LONGEST_S:.0f} s")
            return
        time.sleep(TICK_S)


def _end(story: Story, screen: Screen | Silent, *, chaos: bool, keep_server: bool) -> Ending:
    """Wait until every machine has ended, then take everything down and look at what is left."""
    assert story.stage.cloud is not None
    deadline = time.monotonic() + ALL_GONE_S
    with story.stage.cloud.control() as control:
        while time.monotonic() < deadline:
            story.look()
            screen.draw(story)
            live = [c for c in (story.claims.claims if story.claims else ()) if not c.state.over]
            if not control.state().live and not live:
                break
            time.sleep(TICK_S)
    return Ending.of(story, chaos=chaos, keep_server=keep_server)


def _stay(stage: Stage) -> None:
    sys.stderr.write(f"The server stays up at {stage.url}; end it with Ctrl-C.\n")
    with contextlib.suppress(KeyboardInterrupt):
        while stage.server is not None and stage.server.poll() is None:
            time.sleep(0.5)
