"""Gets a run ready: work folder, checkpoint, secrets, command line."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import tenacity

from hybrid.agent.archive import ArchiveError, Limits, unpack
from hybrid.agent.checkpoints import CheckpointError
from hybrid.agent.config import AgentConfig
from hybrid.agent.guardian import InvalidOrder
from hybrid.agent.inventory import HostInventory
from hybrid.agent.launch import (
    Contract,
    Gang,
    GpuPart,
    InvalidContainer,
    Launch,
    Launchable,
    NoContainerRuntime,
    ReservedName,
    SecretSources,
    SecretUnavailable,
    build_order,
)
from hybrid.agent.periodic import CheckpointKeeper
from hybrid.agent.protocol import RunDocument
from hybrid.agent.run_folder import RunFolder
from hybrid.agent.transport import ServerClient, ServerRefused, ServerUnreachable, WrongBytes

DOWNLOAD_DEADLINE_S = 900.0
CATCHING_UP_S = 3.0
WORKDIR_LIMITS = Limits(total_bytes=64 << 30)


class StagingFailed(Exception):
    """The run cannot be started on this node; the words are for whoever submitted it."""


class StagingStopped(Exception):
    """A stop came before the run had begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What staging needs of the node."""

    config: AgentConfig
    client: ServerClient
    inventory: HostInventory
    environ: Mapping[str, str]

    def prepare(
        self,
        folder: RunFolder,
        document: RunDocument,
        keeper: CheckpointKeeper,
        stopped: Callable[[], bool],
    ) -> tuple[Launchable, int | None]:
        """Everything but starting it; what to start, and the step that the checkpoint brought
        back (None when the run begins afresh). Raises StagingFailed, StagingStopped."""
        folder.clear_for_staging()
        self._bring_work(folder, document, stopped)
        _check(stopped)
        step = self._restore(folder, document, keeper)
        _check(stopped)
        return self.launchable(folder, document, resumed=step is not None), step

    def launchable(self, folder: RunFolder, document: RunDocument, *, resumed: bool) -> Launchable:
        """The guardian's order, secrets resolved now; raises StagingFailed."""
        spec = document.spec
        gang = None
        if document.nodes > 1:
            gang = Gang(
                master_addr=document.master_addr,
                master_port=document.master_port,
                node_rank=document.rank,
                nnodes=document.nodes,
            )
        sources = SecretSources(environ=self.environ, directories=self.config.secret_directories)
        try:
            launch = Launch(
                contract=Contract(
                    job_id=document.job_id,
                    run_id=document.run_id,
                    attempt=document.attempt,
                    resume=resumed,
                    checkpoint_dir=folder.checkpoint,
                    progress_file=folder.progress,
                    gpus=document.gpu_ids,
                    part=_part(document),
                    stop_signal=spec.stop.signal,
                    gang=gang,
                    checkpoint_interval_s=document.checkpoint_interval_s,
                ),
                command=spec.command,
                workdir=folder.work,
                image=spec.image,
                env=spec.env,
                secrets=sources.resolve(spec.secrets),
                grace_s=spec.stop.grace,
                walltime_s=spec.walltime,
                virtual_gpus=self.inventory.virtual(document.gpu_ids),
                rank=document.rank,
                output_limit_bytes=self.config.log_limit_bytes,
            )
            return build_order(launch, self.inventory.runtime, self.environ)
        except (
            ReservedName,
            SecretUnavailable,
            InvalidContainer,
            NoContainerRuntime,
            InvalidOrder,
        ) as error:
            raise StagingFailed(str(error)) from error

    def _bring_work(
        self, folder: RunFolder, document: RunDocument, stopped: Callable[[], bool]
    ) -> None:
        digest = document.spec.workdir
        if digest is None:
            return
        overdue = tenacity.stop_after_delay(DOWNLOAD_DEADLINE_S)
        began_s = time.monotonic()

        def may_pass(error: BaseException) -> bool:
            if isinstance(error, ServerRefused):
                # A server that has not caught up with the order yet does not know us for its run.
                early = time.monotonic() - began_s < CATCHING_UP_S
                return early and error.status in (403, 404)
            return isinstance(error, ServerUnreachable | WrongBytes)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(may_pass),
            wait=tenacity.wait_random_exponential(multiplier=0.3, max=15.0),
            stop=lambda state: stopped() or overdue(state),
            reraise=True,
        )
        try:
            retrying(
                self.client.download,
                digest,
                folder.download,
                run_id=document.run_id,
                limit_bytes=WORKDIR_LIMITS.total_bytes,
            )
            unpack(folder.download, folder.work, digest, WORKDIR_LIMITS)
        except (ServerUnreachable, WrongBytes, ServerRefused) as error:
            _check(stopped)
            raise StagingFailed(f"the work folder {digest} cannot be had: {error}") from error
        except ArchiveError as error:
            raise StagingFailed(f"the work folder {digest} is refused: {error}") from error
        except OSError as error:
            words = error.strerror or str(error)
            raise StagingFailed(f"the work folder cannot be unpacked here: {words}") from error
        finally:
            folder.download.unlink(missing_ok=True)

    def _restore(
        self, folder: RunFolder, document: RunDocument, keeper: CheckpointKeeper
    ) -> int | None:
        if document.resume is None:
            return None
        saver = keeper.saver()
        if saver is None:
            words = keeper.problem or "no checkpoint store was named"
            raise StagingFailed(f"the run resumes from a checkpoint: {words}")
        try:
            return saver.restore(folder.checkpoint, document.resume)
        except CheckpointError as error:
            raise StagingFailed(f"the checkpoint cannot be restored: {error}") from error
        except OSError as error:
            words = error.strerror or str(error)
            raise StagingFailed(f"the checkpoint cannot be written here: {words}") from error


def _part(document: RunDocument) -> GpuPart | None:
    if document.share >= 1 and document.gpu_memory_gib is None:
        return None
    return GpuPart(
        share=document.share,
        memory_gib=document.gpu_memory_gib,
        computing=document.spec.resources.gpu.share < 1 and document.replicas == 1,
    )


def _check(stopped: Callable[[], bool]) -> None:
    if stopped():
        raise StagingStopped
