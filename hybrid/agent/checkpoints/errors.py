"""What can go wrong with a checkpoint, each with its own name."""

from __future__ import annotations


class CheckpointError(Exception):
    """Base of all errors of this package."""


class StoreFull(CheckpointError):
    """The store has no room, or the quota is used up. The last checkpoint stands."""


class StoreReadOnly(CheckpointError):
    """The store does not let us write. The last checkpoint stands."""


class StoreUnavailable(CheckpointError):
    """The store did not answer, or not in time; repeating may help."""


class CorruptCheckpoint(CheckpointError):
    """A checkpoint is incomplete or altered, and was not restored."""


class CheckpointMissing(CorruptCheckpoint):
    """No such checkpoint can be seen. A store that shows late what was written may show it yet."""


class PartSpoilt(CorruptCheckpoint):
    """What a rank of a gang was to go on from proved bad when it was read. The other ranks cannot
    know, so it must not go back to an earlier step by itself."""


class SnapshotChanged(CheckpointError):
    """The job wrote to its checkpoint while it was read; nothing was published."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} changed while it was read")


class UnsafeEntry(CheckpointError):
    """Something in the checkpoint directory cannot be carried elsewhere: a device, a link out."""

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"{path}: {why}")
