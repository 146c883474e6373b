"""Job logs as a stream that may follow the job to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from api.deps import IdPath, Product, Viewer
from api.problems import documented
from hybrid.agent.log_store import LogPiece
from hybrid.bootstrap import App
from hybrid.domain.ids import JobId, RunId
from hybrid.domain.run import Run
from hybrid.services.access import Principal
from hybrid.services.errors import NotFound, NotNow
from hybrid.services.logs import LogState

router = APIRouter(tags=["jobs"])

LOOK_AGAIN_S = 0.5
"""Logs and states written by another process do not ring this one's bell: look this often."""
PIECES_AT_ONCE = 64

Rank = Annotated[int, Query(ge=0, le=4095, description="Which machine of the gang")]


@router.get(
    "/jobs/{job_id}/logs",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {"text/plain": {"schema": {"type": "string", "format": "binary"}}},
            "description": "What the job has printed, stdout and stderr together",
        },
        **documented(404, 503),
    },
)
async def get_logs(
    request: Request,
    job_id: IdPath,
    app: Product,
    who: Viewer,
    follow: Annotated[bool, Query(description="Go on until the job has ended")] = False,
    rank: Rank = 0,
    run: Annotated[
        str | None,
        Query(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
            description="One run only; the latest, and with follow those after it, if omitted",
        ),
    ] = None,
    offset: Annotated[int, Query(ge=0, le=2**62, description="Bytes to skip")] = 0,
) -> StreamingResponse:
    """What a job prints, as it comes. It ends when the job has ended and all has been read."""
    reader = _Reader(app, who, JobId(job_id), None if run is None else RunId(run), rank, offset)
    state = await reader.state()  # so that a wrong name is a 404 and not a broken stream
    if state.run is not None:
        await reader.first(state.run)
    return StreamingResponse(
        reader.following(request) if follow else reader.so_far(),
        media_type="text/plain; charset=utf-8",
        headers={"X-Accel-Buffering": "no"},
    )


class _Reader:
    """One reader's place in a job's logs."""

    def __init__(
        self, app: App, who: Principal, job_id: JobId, run: RunId | None, rank: int, offset: int
    ) -> None:
        self._app, self._who, self._job_id = app, who, job_id
        self._named, self._rank, self._offset = run, rank, offset
        self._at: RunId | None = run

    async def state(self) -> LogState:
        return await run_in_threadpool(self._app.logs.state, self._who, self._job_id, self._at)

    async def first(self, run: Run) -> None:
        """Settle on a run, and see that it can be read."""
        self._at = run.id
        await run_in_threadpool(self._app.logs.check, run, self._rank)

    async def so_far(self) -> AsyncIterator[bytes]:
        """What there is."""
        state = await self.state()
        if state.run is None:
            return
        while pieces := await self._pieces(state.run):
            for piece in pieces:
                yield piece.data

    async def following(self, request: Request) -> AsyncIterator[bytes]:
        """What there is, then what comes, run after run, until the job has ended."""
        from_the_start = False
        while not self._app.bell.closed and not await request.is_disconnected():
            # the state is asked first: what was printed before the end is read after it
            state = await self.state()
            if state.run is None:
                if state.job_over:
                    return
                from_the_start = True
                await self._pause()
                continue
            if from_the_start and self._at is None and state.first is not None:
                # who was here before the first run misses none, however short it was
                self._at = state.first.id
                continue
            self._at = state.run.id
            with self._app.bell.listen(f"log:{self._at}") as listening:
                pieces = await self._pieces(state.run)
                for piece in pieces:
                    yield piece.data
                if pieces:
                    continue
                if state.following is not None and self._named is None:
                    self._at, self._offset = state.following.id, 0
                elif state.run_over and (state.job_over or self._named is not None):
                    return
                else:
                    await listening.wait(LOOK_AGAIN_S)

    async def _pause(self) -> None:
        with self._app.bell.listen(f"job:{self._job_id}") as listening:
            await listening.wait(LOOK_AGAIN_S)

    async def _pieces(self, run: Run) -> list[LogPiece]:
        """The next pieces; none at the end, or while the engine cannot be asked."""

        def read() -> list[LogPiece]:
            found: list[LogPiece] = []
            for piece in self._app.logs.pieces(run, self._rank, self._offset):
                found.append(piece)
                if len(found) == PIECES_AT_ONCE:
                    break
            return found

        try:
            pieces = await run_in_threadpool(read)
        except (NotNow, NotFound):
            return []
        if pieces:
            self._offset = pieces[-1].next_offset
        return pieces
