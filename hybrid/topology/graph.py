"""Which devices of one machine are connected, and how fast."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

from hybrid.hardware import MODELS

MAX_DEVICES = 16
"""The most devices one machine may have: what fits the slot tables, and no machine sold has more
(racks of NVLink-connected machines are several machines)."""


class InvalidTopology(ValueError):
    """The links given cannot be those of a machine.

    ``pair`` names the two devices at fault (by position or by name), None when the fault is not
    about a pair; ``reason`` says what is wrong.
    """

    def __init__(self, reason: str, pair: tuple[object, object] | None = None) -> None:
        self.reason = reason
        self.pair = pair
        where = f"link between {pair[0]} and {pair[1]}: " if pair else ""
        super().__init__(f"{where}{reason}")


@dataclass(frozen=True, slots=True, eq=False)
class LinkGraph:
    """The devices of one machine and the bandwidth between any two.

    ``gbps[i][j]`` is GB/s in one direction between devices ``i`` and ``j``: symmetric, 0 on the
    diagonal and where two devices cannot reach each other directly. ``numa[i]`` is the NUMA node
    of device ``i``. ``nvlink[i]`` is the mask of the devices that ``i`` reaches over NVLink.
    Equal and hashed by content, so that tables are shared by all machines of one shape.

    Raises InvalidTopology when the matrix is not square, not symmetric, or holds a negative or
    non-finite figure.
    """

    gbps: tuple[tuple[float, ...], ...]
    numa: tuple[int, ...]
    nvlink: tuple[int, ...]
    # hashing n*n floats on each lookup would cost more than the lookup
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _validate(self)
        object.__setattr__(self, "_hash", hash((self.gbps, self.numa, self.nvlink)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, LinkGraph):
            return NotImplemented
        return (self.gbps, self.numa, self.nvlink) == (other.gbps, other.numa, other.nvlink)

    @property
    def count(self) -> int:
        """The number of devices."""
        return len(self.gbps)

    @property
    def full_mask(self) -> int:
        """The mask of all devices."""
        return (1 << self.count) - 1

    def edges(self) -> Iterator[tuple[int, int, float]]:
        """Every pair ``i < j`` with its GB/s, including those with none."""
        for i in range(self.count):
            for j in range(i + 1, self.count):
                yield i, j, self.gbps[i][j]

    def is_nvlink(self, i: int, j: int) -> bool:
        """Whether ``i`` and ``j`` are connected over NVLink."""
        return bool(self.nvlink[i] >> j & 1)

    def induced(self, devices: Sequence[int]) -> LinkGraph:
        """The graph of ``devices`` alone, renumbered in the order given."""
        return LinkGraph(
            gbps=tuple(tuple(self.gbps[i][j] for j in devices) for i in devices),
            numa=tuple(self.numa[i] for i in devices),
            nvlink=tuple(mask_of(k for k, j in enumerate(devices) if self.is_nvlink(i, j))
                         for i in devices),
        )  # fmt: skip

    @classmethod
    def of_matrix(
        cls,
        gbps: Sequence[Sequence[float]],
        *,
        numa: Sequence[int] | None = None,
        models: Sequence[str] | None = None,
    ) -> Self:
        """The graph of a reported GB/s matrix.

        ``models`` (catalogue keys, one per device) tell which links are NVLink: those faster than
        any PCIe path of either device, between two devices that have NVLink. An unknown model has
        none. Without ``models`` no link is taken for NVLink. Raises InvalidTopology.
        """
        rows = tuple(tuple(float(v) for v in row) for row in gbps)
        count = len(rows)
        if models is not None and len(models) != count:
            raise InvalidTopology(f"{count} devices but {len(models)} models")
        nvlink = [0] * count
        for i, row in enumerate(rows):
            for j, value in enumerate(row[:count]):
                if models is not None and i != j and _is_nvlink_speed(models[i], models[j], value):
                    nvlink[i] |= 1 << j
        return cls(rows, tuple(numa) if numa is not None else (0,) * count, tuple(nvlink))

    @classmethod
    def of_links(
        cls,
        devices: Sequence[str],
        links: Iterable[tuple[str, str, float]],
        *,
        numa: Sequence[int] | None = None,
        models: Sequence[str] | None = None,
    ) -> Self:
        """The graph of named devices and the links between them; pairs not named have no link.

        Raises InvalidTopology naming the pair when a link goes to an unknown device or to itself,
        or is given twice with different bandwidths.
        """
        index = {name: i for i, name in enumerate(devices)}
        if len(index) != len(devices):
            raise InvalidTopology("two devices have one name")
        matrix = [[0.0] * len(devices) for _ in devices]
        seen: dict[tuple[str, str], float] = {}
        for a, b, gbps in links:
            for name in (a, b):
                if name not in index:
                    raise InvalidTopology(f"there is no device {name}", (a, b))
            if a == b:
                raise InvalidTopology("a device has no link to itself", (a, b))
            known = seen.setdefault((min(a, b), max(a, b)), gbps)
            if known != gbps:
                raise InvalidTopology(f"given as both {known} and {gbps} GB/s", (a, b))
            matrix[index[a]][index[b]] = matrix[index[b]][index[a]] = gbps
        return cls.of_matrix(matrix, numa=numa, models=models)


def mask_of(devices: Iterable[int]) -> int:
    """The mask with the bits of ``devices`` set."""
    mask = 0
    for device in devices:
        mask |= 1 << device
    return mask


def devices_of(mask: int) -> tuple[int, ...]:
    """The devices whose bits are set in ``mask``, lowest first."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)


def _validate(graph: LinkGraph) -> None:
    count = len(graph.gbps)
    if count > MAX_DEVICES:
        raise InvalidTopology(f"{count} devices; a machine has at most {MAX_DEVICES}")
    if len(graph.numa) != count:
        raise InvalidTopology(f"{count} devices but {len(graph.numa)} NUMA nodes")
    if len(graph.nvlink) != count:
        raise InvalidTopology(f"{count} devices but {len(graph.nvlink)} NVLink masks")
    for i, row in enumerate(graph.gbps):
        if len(row) > count:
            raise InvalidTopology(f"there is no device {count}", (i, count))
        if len(row) < count:
            raise InvalidTopology("is missing", (i, len(row)))
        for j, value in enumerate(row):
            if not math.isfinite(value):
                raise InvalidTopology(f"{value} is not a bandwidth", (i, j))
            if value < 0:
                raise InvalidTopology(f"{value} GB/s is negative", (i, j))
    for i in range(count):
        if graph.gbps[i][i] != 0:
            raise InvalidTopology("a device has no link to itself", (i, i))
        if graph.nvlink[i] >> count:
            raise InvalidTopology(
                f"there is no device {graph.nvlink[i].bit_length() - 1}",
                (i, graph.nvlink[i].bit_length() - 1),
            )
        for j in range(i + 1):
            there, back = graph.gbps[j][i], graph.gbps[i][j]
            if there != back:
                raise InvalidTopology(f"{there} GB/s one way and {back} back", (j, i))
            if graph.is_nvlink(i, j) != graph.is_nvlink(j, i):
                raise InvalidTopology("is NVLink one way only", (j, i))
            if graph.is_nvlink(i, j) and there <= 0:
                raise InvalidTopology("is NVLink but has no bandwidth", (j, i))


def _is_nvlink_speed(one: str, other: str, gbps: float) -> bool:
    ends = (MODELS.get(one), MODELS.get(other))
    return all(end is not None and end.nvlink and gbps > end.pcie_gbps for end in ends)
