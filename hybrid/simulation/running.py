"""Runs as they go on in the world: a gang of ranks that begin, work, save, stop and die."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hybrid.domain.ids import NodeId
from hybrid.domain.job import Checkpoint, Progress, StopCause
from hybrid.domain.run import EXIT_CHECKPOINTED
from hybrid.ports.engine import RankPhase, RankReport, RunOrder

KILLED = -9
SAVES_KEPT = 64
OTHERWISE_S = 600.0
"""How often a run saves whose interval is worked out and has not been."""


@dataclass(slots=True)
class SimRank:
    """What one node runs of a gang. ``silenced``: its machine is gone, nobody will tell its end."""

    rank: int
    node_id: NodeId
    started_at: float
    cause: StopCause | None = None
    stop_asked_at: float | None = None
    stop_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    silenced: bool = False

    def ask_to_stop(self, cause: StopCause, now: float, stop_at: float) -> None:
        """A second asking can only be harder and shorter."""
        if self.stop_asked_at is None:
            self.stop_asked_at = now
        self.stop_at = stop_at if self.stop_at is None else min(stop_at, self.stop_at)
        if self.cause is None or cause.hardness > self.cause.hardness:
            self.cause = cause

    def end(self, at: float, code: int, cause: StopCause | None) -> None:
        """The process is over."""
        self.ended_at, self.exit_code = at, code
        self.cause = cause or self.cause


@dataclass(slots=True)
class CheckpointPlace:
    """Where saves go: ``trouble`` says why none arrive now, what is wrong up to a colon; empty
    while they do."""

    trouble: str = ""


@dataclass(slots=True)
class SimRun:
    """One run on all its nodes. Work is in seconds on the reference GPU; ``base_s`` of it was done
    before. It goes on only while every rank is there: a rank alone waits for the others."""

    order: RunOrder
    work_s: float
    base_s: float
    commit_s: float
    store: CheckpointPlace
    ranks: dict[int, SimRank] = field(default_factory=dict)
    saves: list[Checkpoint] = field(default_factory=list)
    quiet_until: float = 0.0
    """Until then nothing comes of itself; set it to 0 when something is done to the run."""

    @property
    def began_at(self) -> float | None:
        """When the last rank began, and with it the work."""
        if len(self.ranks) < len(self.order.run.slots):
            return None
        return max(rank.started_at for rank in self.ranks.values())

    @property
    def halted_at(self) -> float | None:
        """When the first rank ended, and with it the work."""
        ends = [rank.ended_at for rank in self.ranks.values() if rank.ended_at is not None]
        return min(ends, default=None)

    @property
    def finishes_at(self) -> float | None:
        """When it is through if nobody stops it."""
        began = self.began_at
        return None if began is None else began + (self.work_s - self.base_s) / self._speed

    def done_s(self, now: float) -> float:
        """Work done by ``now``."""
        began, halted = self.began_at, self.halted_at
        if began is None:
            return self.base_s
        until = now if halted is None else min(now, halted)
        return min(self.work_s, self.base_s + max(0.0, until - began) * self._speed)

    def go_on(self, now: float, lease_ends: dict[NodeId, float]) -> bool:
        """Let it go on until ``now``; whether any rank is still there."""
        while True:
            ends = [
                (*self._end_of(rank, lease_ends[rank.node_id]), rank.rank)
                for rank in self.ranks.values()
                if rank.ended_at is None
            ]
            if not ends:
                return False
            at, code, cause, number = min(ends, key=lambda end: (end[0], end[3]))
            self._save_what_is_due(min(now, at))
            if at > now:
                self.quiet_until = min(at, self._next_save_at(now))
                return True
            if code == EXIT_CHECKPOINTED and self.halted_at is None:
                self._save(at)
            self.ranks[number].end(at, code, cause)

    def reports(self, rank: SimRank, at: float) -> RankReport:
        """What the rank's node said at ``at``, the last time it was heard."""
        over = rank.ended_at is not None and rank.ended_at <= at and not rank.silenced
        phase = RankPhase.RUNNING
        if over:
            phase = RankPhase.ENDED
        elif rank.stop_asked_at is not None and rank.stop_asked_at <= at:
            phase = RankPhase.STOPPING
        saved = (save for save in reversed(self.saves) if save.committed_at <= at)
        return RankReport(
            run_id=self.order.run.id,
            rank=rank.rank,
            node_id=rank.node_id,
            phase=phase,
            started_at=rank.started_at,
            ended_at=rank.ended_at if over else None,
            exit_code=rank.exit_code if over else None,
            cause=rank.cause if phase is not RankPhase.RUNNING else None,
            progress=Progress(step=int(self.done_s(at)), total=max(1, int(self.work_s)), at=at),
            checkpoint=next(saved, None),
            checkpoint_problem=self.store.trouble if self.order.job.spec.checkpoint.enabled else "",
        )

    @property
    def _speed(self) -> float:
        return self.order.run.speed

    def _end_of(self, rank: SimRank, lease_end: float) -> tuple[float, int, StopCause | None]:
        """When the rank ends as things stand, with which code, and what made it end."""
        spec, halted = self.order.job.spec, self.halted_at
        ends: list[tuple[float, int, StopCause | None]] = []
        finish = self.finishes_at
        if finish is not None and (halted is None or halted >= finish):
            ends.append((finish, 0, None))
        if rank.stop_at is not None:
            whole = self.began_at is not None and (halted is None or halted >= rank.stop_at)
            saves = whole and spec.checkpoint.enabled
            ends.append((rank.stop_at, EXIT_CHECKPOINTED if saves else KILLED, rank.cause))
        ends.append((rank.started_at + spec.walltime, KILLED, StopCause.TIMEOUT))
        ends.append((lease_end, KILLED, StopCause.LEASE))
        return min(ends, key=lambda end: end[0])

    def _next_save_at(self, now: float) -> float:
        """When the next periodic checkpoint falls due."""
        terms, began = self.order.job.spec.checkpoint, self.began_at
        if not terms.enabled or began is None or self.halted_at is not None:
            return math.inf
        return began + ((now - began) // self._saves_every_s + 1.0) * self._saves_every_s

    @property
    def _saves_every_s(self) -> float:
        terms = self.order.job.spec.checkpoint
        return self.order.run.checkpoint_interval_s or terms.interval_or(OTHERWISE_S)

    def _save_what_is_due(self, until: float) -> None:
        """The newest of the periodic checkpoints that fell due."""
        terms, began = self.order.job.spec.checkpoint, self.began_at
        if not terms.enabled or began is None or self.halted_at is not None:
            return
        every_s = self._saves_every_s
        count = int((until - began) // every_s)
        at = began + count * every_s
        if count > 0 and (not self.saves or at > self.saves[-1].committed_at):
            self._save(at)

    def _save(self, at: float) -> None:
        if self.store.trouble:
            return
        before = self.saves[-1] if self.saves else self.order.job.checkpoint
        self.saves.append(
            Checkpoint(
                seq=1 if before is None else before.seq + 1,
                step=int(self.done_s(at)),
                committed_at=at,
                size_bytes=int(self.order.job.spec.checkpoint.size * 2**30),
                commit_s=self.commit_s,
            )
        )
        del self.saves[:-SAVES_KEPT]
