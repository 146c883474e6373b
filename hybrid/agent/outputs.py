"""Brings what a job left behind to the artifact store."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid.agent.archive import ArchiveError, Limits, pack_paths
from hybrid.agent.run_folder import RunFolder
from hybrid.agent.transport import ServerClient, ServerRefused

OUTPUT_LIMITS = Limits(total_bytes=64 << 30)


class OutputsRefused(Exception):
    """They cannot be packed, or the store does not want them; the words say why."""


def send_outputs(client: ServerClient, folder: RunFolder, names: Sequence[str], run_id: str) -> str:
    """Pack the named paths and send the archive; its digest. Names that do not exist are left
    out. Raises OutputsRefused, ServerUnreachable."""
    try:
        packed = pack_paths(folder.work, names, folder.outputs, OUTPUT_LIMITS)
        client.upload(packed.digest, folder.outputs, run_id=run_id)
    except ArchiveError as error:
        raise OutputsRefused(str(error)) from error
    except ServerRefused as error:
        raise OutputsRefused(f"the server refuses them: {error}") from error
    except OSError as error:
        raise OutputsRefused(f"they cannot be packed: {error.strerror or error}") from error
    finally:
        folder.outputs.unlink(missing_ok=True)
    return packed.digest
