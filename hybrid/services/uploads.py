"""Uploads: whose they are, and who may read them."""

from __future__ import annotations

from dataclasses import dataclass

from hybrid.ports.access import Artifact, ArtifactIndex, Role
from hybrid.ports.clock import Clock
from hybrid.services.access import Principal
from hybrid.services.artifacts import Artifacts
from hybrid.services.errors import NotAllowed, NotFound
from hybrid.services.live import Live


@dataclass(frozen=True, slots=True)
class Uploads:
    """The artifact store, by team."""

    artifacts: Artifacts
    index: ArtifactIndex
    live: Live
    clock: Clock

    def teams_for_writing(self, asker: Principal, team: str | None) -> tuple[str, ...]:
        """Whose the upload will be: the named team's, the token's own, or, for a node, of every
        team whose job it runs now. Raises NotAllowed."""
        if asker.role is not Role.NODE:
            if not asker.may(Role.SUBMITTER):
                raise NotAllowed("role_too_low", "uploading takes the role submitter")
            return (asker.paying_team(team),)
        teams = self._teams_on(asker)
        if not teams:
            raise NotAllowed("nothing_runs_here", "no job of anybody runs on this node")
        return teams

    def note(self, digest: str, teams: tuple[str, ...], size_bytes: int) -> None:
        """Write down whose the bytes are, once they are stored."""
        now = self.clock.now()
        for team in teams:
            self.index.add_artifact(
                Artifact(digest=digest, team=team, size_bytes=size_bytes, created_at=now)
            )

    def size(self, asker: Principal, digest: str) -> int:
        """Bytes of an upload that the asker may read; NotFound otherwise, whatever the reason."""
        if not self._readable(asker, digest):
            raise NotFound("no_such_artifact", f"there is no artifact {digest}")
        return self.artifacts.size(digest)

    def _readable(self, asker: Principal, digest: str) -> bool:
        if asker.role is Role.NODE:
            teams: tuple[str, ...] | None = self._teams_on(asker)
        else:
            teams = asker.teams
        if teams is None:
            return True
        return any(self.index.artifact(digest, team) is not None for team in teams)

    def _teams_on(self, asker: Principal) -> tuple[str, ...]:
        assert asker.node is not None
        world = self.live.world()
        jobs = (
            world.jobs.get(run.job_id)
            for run in world.runs.values()
            if asker.node.node_id in run.node_ids
        )
        return tuple(sorted({job.team for job in jobs if job is not None}))
