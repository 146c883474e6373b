"""What a job waits for at home, in words that fit what it asks for."""

from __future__ import annotations

from hybrid.domain.ids import PoolName
from hybrid.domain.reasons import Reason, WaitingForGpus, WaitingForInstance
from hybrid.planning.classes import JobClass
from hybrid.planning.parting import either, table_of
from hybrid.planning.workspace import Workspace

_Supply = tuple[int, bool, tuple[str, ...]]
"""Instances of a profile in a pool, whether there is room for another, and where."""


class Awaited:
    """Of one plan; what pools have of a profile is counted once."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self._supplies: dict[tuple[int, PoolName], _Supply] = {}

    def reason(self, cls: JobClass, pool: PoolName, p50_s: float, ahead: int) -> Reason:
        """Why a job is not running yet that is to start later in an owned pool."""
        profile = cls.need.mig_profile
        if profile is None:
            return WaitingForGpus(pool, p50_s, ahead)
        key = (cls.need_index, pool)
        supply = self._supplies.get(key)
        if supply is None:
            supply = self._supplies[key] = self._supply(cls, pool, profile)
        return WaitingForInstance(pool, p50_s, ahead, profile, *supply)

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
