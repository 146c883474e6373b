"""Graphs that the tests of this folder share."""

from __future__ import annotations

import random

from hybrid.topology import LinkGraph, preset

EIGHT = {
    "nvswitch": preset("nvswitch", "a100-sxm4-80gb", 8),
    "dgx1": preset("dgx1", "v100-sxm2-16gb", 8),
    "dgx1-p100": preset("dgx1", "p100-sxm2-16gb", 8),
    "nvlink-pairs": preset("nvlink-pairs", "a100-pcie-80gb", 8),
    "pcie": preset("pcie", "l4", 8),
    "pcie-2-socket": preset("pcie-2-socket", "l4", 8),
    "none": preset("none", "l4", 8),
}


def random_graph(seed: int, count: int, levels: int) -> LinkGraph:
    """A graph of a few bandwidths at random, some of them NVLink."""
    draw = random.Random(seed)
    speeds = [float(draw.randint(1, 400)) for _ in range(levels)]
    matrix = [[0.0] * count for _ in range(count)]
    nvlink = [0] * count
    for i in range(count):
        for j in range(i):
            matrix[i][j] = matrix[j][i] = draw.choice([*speeds, 0.0])
            if matrix[i][j] > 0 and draw.random() < 0.3:
                nvlink[i] |= 1 << j
                nvlink[j] |= 1 << i
    numa = tuple(draw.randrange(2) for _ in range(count))
    return LinkGraph(tuple(map(tuple, matrix)), numa, tuple(nvlink))
