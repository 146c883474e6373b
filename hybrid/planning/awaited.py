"""What a job waits for at home, in words that fit what it asks for."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid.domain.ids import PoolName
from hybrid.domain.reasons import Reason, WaitingForGpus, WaitingForInstance
from hybrid.planning.classes import JobClass
from hybrid.planning.nodes import NodeType
from hybrid.planning.parting import either, table_of
from hybrid.planning.timeline import Timeline
from hybrid.planning.workspace import Workspace

_Supply = tuple[int, bool, tuple[str, ...]]
"""Instances of a profile in a pool, whether there is room for another, and where."""


_CORES, _MEMORY = "CPU cores", "memory"
_SLACK = 1e-9

_Idle = tuple[NodeType, int, float, float]
"""A node that has GPUs free now: its type, their mask, and what is free of cores and memory."""


class Awaited:
    """Of one plan, whose runs and reservations are in ``lines``; what pools have of a profile, and
    what they lack beside free GPUs, is counted once."""

    def __init__(self, ws: Workspace, lines: Sequence[Timeline]) -> None:
        self._ws = ws
        self._lines = lines
        self._supplies: dict[tuple[int, PoolName], _Supply] = {}
        self._idle: dict[PoolName, list[_Idle]] = {}
        self._scarce: dict[tuple[int, PoolName], str] = {}

    def reason(self, cls: JobClass, pool: PoolName, p50_s: float, ahead: int) -> Reason:
        """Why a job is not running yet that is to start later in an owned pool."""
        profile = cls.need.mig_profile
        if profile is None:
            return WaitingForGpus(pool, p50_s, ahead, self._lacking(cls, pool))
        key = (cls.need_index, pool)
        supply = self._supplies.get(key)
        if supply is None:
            supply = self._supplies[key] = self._supply(cls, pool, profile)
        return WaitingForInstance(pool, p50_s, ahead, profile, *supply)

    def _lacking(self, cls: JobClass, pool: PoolName) -> str:
        """What the job lacks in the pool, where that is not GPUs: cores or memory beside as many
        GPUs as it wants, free now on a machine that fits."""
        key = (cls.need_index, pool)
        found = self._scarce.get(key)
        if found is None:
            found = self._scarce[key] = self._lacking_of(cls, pool)
        return found

    def _lacking_of(self, cls: JobClass, pool: PoolName) -> str:
        need = cls.need
        if need.gpus == 0:
            return "room"
        idle = self._idle_nodes(pool)
        # hot: mostly there is enough of both everywhere
        if all(cpus >= need.cpus and gib >= need.host_memory_gib for _, _, cpus, gib in idle):
            return ""
        lacking = ""
        for type_, mask, cpus, memory_gib in idle:
            fits = self._ws.fits_of(cls, type_)
            if not isinstance(fits, tuple):
                continue
            if not any((mask & fit.allowed).bit_count() >= need.gpus for fit in fits):
                continue
            if cpus < need.cpus:
                lacking = _CORES
            elif memory_gib < need.host_memory_gib:
                lacking = lacking or _MEMORY
            else:
                return ""  # there would be room: another job has it reserved
        return lacking

    def _idle_nodes(self, pool: PoolName) -> list[_Idle]:
        found = self._idle.get(pool)
        if found is None:
            found = self._idle[pool] = [
                (view.type, line.masks[0], line.cpus[0] + _SLACK, line.memory[0] + _SLACK)
                for view, line in zip(self._ws.nodes, self._lines, strict=True)
                if line.masks[0] and view.type.pool == pool and not view.type.held
            ]
        return found

    def _supply(self, cls: JobClass, pool: PoolName, profile: str) -> _Supply:
        count = 0
        rooms: set[tuple[str, tuple[int, ...]]] = set()
        models: set[str] = set()
        for type_ in self._ws.types:
            if type_.pool != pool:
                continue
            rooms |= {(m, at) for m, name, at in type_.shape.parting.room if name == profile}
            found = self._ws.fits_of(cls, type_)
            if isinstance(found, tuple):
                devices = sum(fit.allowed.bit_count() for fit in found)
                count += devices * len(self._ws.members[type_.index])
                models |= {fit.model.partition(":")[0] for fit in found}
        if rooms:
            told = [f"{model} at memory slice {either(at)}" for model, at in sorted(rooms)]
            return count, True, tuple(told)
        tables = [(model, table_of(model)) for model in sorted(models)]
        told = [
            f"{model} takes one at memory slice {either(table.profile(profile).starts)}"
            for model, table in tables
            if table is not None and profile in table.names
        ]
        return count, False, tuple(told)
