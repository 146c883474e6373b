"""Rings: the bandwidth a set of GPUs can use together, and the order to use them in.

The *usable bottleneck* of a set is what a ring all-reduce over it can use: over all ways to order
the set in a ring, the largest possible bandwidth of the ring's slowest link. In a ring all-reduce
every GPU sends to its neighbour all the time, so the slowest link sets the pace (Patarasuk & Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009), and the library
is free to choose the ring. Two other definitions were not taken: the slowest link of any pair
condemns meshes in which a ring avoids that pair, and the widest spanning tree promises the
bandwidth of a chain although the ring must also close.

One GPU has no link to wait for: its bottleneck is infinite. Two have that of their link.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hybrid.topology.graph import devices_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def lowest_bits(count: int) -> Ints:
    """For every mask of ``count`` devices its lowest device; -1 for the empty mask."""
    masks = np.arange(1 << count, dtype=np.int64)
    low = np.full(1 << count, -1, dtype=np.int64)
    for device in reversed(range(count)):
        low[(masks >> device) & 1 == 1] = device
    return low


def popcounts(count: int) -> Ints:
    """For every mask of ``count`` devices how many it holds."""
    masks = np.arange(1 << count, dtype=np.int64)
    sizes = np.zeros_like(masks)
    for device in range(count):
        sizes += (masks >> device) & 1
    return sizes


def ring_bottlenecks(weights: Floats) -> Floats:
    """The usable bottleneck of every set of devices.

    ``weights``: (n, n) symmetric GB/s. Returns (2^n,) GB/s indexed by mask; infinite for sets of
    at most one. Held and Karp's recursion with (max, min) for (min, +): ``path[mask, v]`` is the
    widest path that starts at the lowest device of ``mask``, visits all of it and ends at ``v``.
    """
    count = len(weights)
    masks = np.arange(1 << count, dtype=np.int64)
    low, size = lowest_bits(count), popcounts(count)
    path = np.full((1 << count, count), -1.0)
    path[1 << np.arange(count), np.arange(count)] = math.inf
    for length in range(2, count + 1):
        for end in range(count):
            here = masks[(size == length) & ((masks >> end) & 1 == 1) & (low != end)]
            before = path[here ^ (1 << end)]
            path[here, end] = np.minimum(before, weights[:, end]).max(axis=1, initial=-1.0)
    widest = np.full(1 << count, math.inf)
    several = masks[size >= 2]
    closing = np.minimum(path[several], weights[low[several]])
    widest[several] = closing.max(axis=1, initial=-1.0)
    return widest


def ring_order(weights: Floats, mask: int) -> tuple[int, ...]:
    """The devices of ``mask`` in the order of their best ring, the lowest device first.

    Best: the widest slowest link, then the largest sum of the ring's links, then the order that
    sorts first. ``weights`` as in ``ring_bottlenecks``.
    """
    members = devices_of(mask)
    if len(members) <= 2:
        return members
    local = weights[np.ix_(members, members)]
    floor = float(ring_bottlenecks(local)[-1])
    # exact sums: MB/s as integers, so that equal rings compare equal
    scaled = np.where(local >= floor, np.rint(local * 1000), -np.inf)
    best = _longest_paths(scaled)
    return tuple(members[i] for i in _first_longest_ring(scaled, best))


def _longest_paths(weights: Floats) -> Floats:
    """``best[mask, v]``: the largest sum along a path from device 0 over ``mask`` to ``v``."""
    count = len(weights)
    masks = np.arange(1 << count, dtype=np.int64)
    size = popcounts(count)
    best = np.full((1 << count, count), -np.inf)
    best[1, 0] = 0.0
    for length in range(2, count + 1):
        for end in range(1, count):
            with_end = (size == length) & (masks & 1 == 1) & ((masks >> end) & 1 == 1)
            here = masks[with_end]
            best[here, end] = (best[here ^ (1 << end)] + weights[:, end]).max(axis=1)
    return best


def _first_longest_ring(weights: Floats, best: Floats) -> list[int]:
    """Walk from device 0, always to the lowest device from which the rest of a longest ring can
    still be closed. A path from 0 read backwards is the rest of a ring, so ``best`` serves."""
    count = len(weights)
    full = (1 << count) - 1
    total = float((best[full] + weights[0]).max())
    order, travelled, left = [0], 0.0, full
    while len(order) < count:
        here = order[-1]
        for device in range(1, count):
            if not left >> device & 1:
                continue
            if travelled + weights[here, device] + best[left, device] == total:
                order.append(device)
                travelled += float(weights[here, device])
                left ^= 1 << device
                break
    return order
