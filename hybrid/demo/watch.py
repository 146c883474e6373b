"""The live view of the demo in a terminal."""

from __future__ import annotations

from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from hybrid.demo.story import Sent, Story

_COLOURS = {
    "pending": "yellow",
    "placed": "cyan",
    "running": "green",
    "stopping": "magenta",
    "succeeded": "dim",
    "failed": "red",
    "cancelled": "red",
}


class Silent:
    """Draws nothing: for output that a program reads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def draw(self, story: Story) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Screen:
    """A screen that is drawn anew at every look; on what is no terminal it stays quiet."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._told = 0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        else:
            self._console.print("The demo takes about two minutes; here is what happens:")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def draw(self, story: Story) -> None:
        """How everything stands."""
        if self._console.is_terminal:
            self._live.update(_picture(story), refresh=True)
            return
        for note in story.notes[self._told :]:
            self._console.print(note, highlight=False)
        self._told = len(story.notes)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live.is_started:
            self._live.stop()


def _picture(story: Story) -> Group:
    head = Text.assemble(
        ("hybrid demo ", "bold"),
        f"{story.elapsed_s:5.1f} s — a second stands for a minute; prices and notice are scaled",
    )
    return Group(head, _machines(story), _queue(story), _notes(story))


def _machines(story: Story) -> Panel:
    table = Table.grid(padding=(0, 2))
    holders = _holders(story)
    for node in sorted(story.nodes.nodes if story.nodes else (), key=lambda n: (n.pool, n.id)):
        gpus = " ".join(
            f"[green]{holders[gpu.id]}[/]" if gpu.id in holders else "[dim]free[/]"
            for gpu in node.gpus
        )
        table.add_row(f"[bold]{node.pool}[/]", node.id, node.state, gpus or "no GPUs")
    for claim in story.claims.claims if story.claims else ():
        if not claim.state.over and claim.node_id is None:
            table.add_row(f"[bold]{claim.pool}[/]", claim.machine_id or "…", claim.state, "")
    title = "Machines"
    if story.budget is not None:
        spent, held = _usd(story.budget.charged_usd), _usd(story.budget.held_usd)
        title += f" — spent {spent}, held {held} of {_usd(story.budget.limit_usd)}"
    return Panel(table, title=title, title_align="left")


def _holders(story: Story) -> dict[str, str]:
    names = {each.id: each.job.name for each in story.sent}
    found = {}
    for node in story.nodes.nodes if story.nodes else ():
        for gpu in node.gpus:
            run = gpu.run_ids[0] if gpu.run_ids else None
            if run is not None:
                found[gpu.id] = names.get(run.rpartition(".")[0], run)
    return found


def _queue(story: Story) -> Panel:
    table = Table.grid(padding=(0, 2))
    for each in story.sent:
        table.add_row(*_row(each))
    return Panel(table, title="Jobs", title_align="left")


def _row(each: Sent) -> tuple[str, str, str, str]:
    if each.refusal:
        return each.job.name, "[red]refused[/]", "", each.refusal
    if each.last is None:
        return each.job.name, "sent", "", ""
    state = each.last.state
    colour = _COLOURS[state]
    sentence = each.last.decision.sentence if each.last.decision else ""
    if state.ended:
        sentence = each.last.reason
    return each.job.name, f"[{colour}]{state}[/]", each.last.pool or "", sentence[:100]


def _notes(story: Story) -> Panel:
    return Panel("\n".join(story.notes[-6:]) or "…", title="What happened", title_align="left")


def _usd(amount: Decimal) -> str:
    return f"${amount:.2f}"
