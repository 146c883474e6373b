"""GPU machine types of EC2 and Compute Engine, for planning without asking the cloud.

EC2: DescribeInstanceTypes, as of 2026-07 (P2, P3 and G3, which it no longer lists, from the
"Amazon EC2 instance types" guide). Compute Engine: "Accelerator-optimized machine family" guide,
as of 2026-07. What the cloud answers at run time goes before this table. Types that carry a part
of a GPU (g6f, gr6f) are left out: what they offer is not one of the GPUs of the catalogue.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from types import MappingProxyType

AS_OF = "2026-07"


class UnknownMachineType(LookupError):
    """The table has no such machine type. ``nearest`` are the likeliest names."""

    def __init__(self, name: str, nearest: tuple[str, ...] = ()) -> None:
        self.name = name
        self.nearest = nearest
        hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
        super().__init__(f"no GPU machine type is called {name!r}{hint}")


@dataclass(frozen=True, slots=True)
class MachineType:
    """One machine type. ``gpu`` is the key of its model, ``links`` the link preset of its GPUs,
    ``architecture`` that of its CPU and so of the images it runs."""

    name: str
    provider: str
    vcpus: int
    memory_gib: float
    gpus: int
    gpu: str
    links: str
    architecture: str = "x86_64"


def _series(
    provider: str, series: str, gpu: str, rows: str, architecture: str = "x86_64"
) -> list[MachineType]:
    """``rows`` is one machine per line: size, vCPUs, memory GiB, GPUs, link preset."""
    found = []
    for row in rows.strip().splitlines():
        size, vcpus, memory_gib, gpus, links = row.split()
        found.append(
            MachineType(
                f"{series}{size}", provider, int(vcpus), float(memory_gib), int(gpus), gpu, links,
                architecture,
            )
        )  # fmt: skip
    return found


_EC2 = (
    _series("aws", "p2.", "k80", """
        xlarge      4    61   1  none
        8xlarge    32   488   8  pcie
        16xlarge   64   732  16  pcie-2-socket"""),
    _series("aws", "p3.", "v100-sxm2-16gb", """
        2xlarge     8    61   1  none
        8xlarge    32   244   4  dgx1
        16xlarge   64   488   8  dgx1"""),
    _series("aws", "p3dn.", "v100-sxm2-32gb", "24xlarge 96 768 8 dgx1"),
    _series("aws", "p4d.", "a100-sxm4-40gb", "24xlarge 96 1152 8 nvswitch"),
    _series("aws", "p4de.", "a100-sxm4-80gb", "24xlarge 96 1152 8 nvswitch"),
    _series("aws", "p5.", "h100-sxm5-80gb", """
        4xlarge    16   256   1  none
        48xlarge  192  2048   8  nvswitch"""),
    _series("aws", "p5e.", "h200-sxm5-141gb", "48xlarge 192 2048 8 nvswitch"),
    _series("aws", "p5en.", "h200-sxm5-141gb", "48xlarge 192 2048 8 nvswitch"),
    _series("aws", "p6-b200.", "b200-sxm6-180gb", "48xlarge 192 2048 8 nvswitch"),
    _series("aws", "p6-b300.", "b300-sxm6-288gb", "48xlarge 192 4096 8 nvswitch"),
    _series("aws", "p6e-gb200.", "gb200-186gb", "36xlarge 144 960 4 nvswitch", "arm64"),
    _series("aws", "g3s.", "m60", "xlarge 4 30.5 1 none"),
    _series("aws", "g3.", "m60", """
        4xlarge    16   122   1  none
        8xlarge    32   244   2  pcie
        16xlarge   64   488   4  pcie-2-socket"""),
    _series("aws", "g4dn.", "t4", """
        xlarge      4    16   1  none
        2xlarge     8    32   1  none
        4xlarge    16    64   1  none
        8xlarge    32   128   1  none
        12xlarge   48   192   4  pcie
        16xlarge   64   256   1  none
        metal      96   384   8  pcie-2-socket"""),
    _series("aws", "g5.", "a10g", """
        xlarge      4    16   1  none
        2xlarge     8    32   1  none
        4xlarge    16    64   1  none
        8xlarge    32   128   1  none
        12xlarge   48   192   4  pcie
        16xlarge   64   256   1  none
        24xlarge   96   384   4  pcie
        48xlarge  192   768   8  pcie-2-socket"""),
    _series("aws", "g5g.", "t4g", """
        xlarge      4     8   1  none
        2xlarge     8    16   1  none
        4xlarge    16    32   1  none
        8xlarge    32    64   1  none
        16xlarge   64   128   2  pcie
        metal      64   128   2  pcie""", "arm64"),
    _series("aws", "g6.", "l4", """
        xlarge      4    16   1  none
        2xlarge     8    32   1  none
        4xlarge    16    64   1  none
        8xlarge    32   128   1  none
        12xlarge   48   192   4  pcie
        16xlarge   64   256   1  none
        24xlarge   96   384   4  pcie
        48xlarge  192   768   8  pcie-2-socket"""),
    _series("aws", "gr6.", "l4", """
        4xlarge    16   128   1  none
        8xlarge    32   256   1  none"""),
    _series("aws", "g6e.", "l40s", """
        xlarge      4    32   1  none
        2xlarge     8    64   1  none
        4xlarge    16   128   1  none
        8xlarge    32   256   1  none
        12xlarge   48   384   4  pcie
        16xlarge   64   512   1  none
        24xlarge   96   768   4  pcie
        48xlarge  192  1536   8  pcie-2-socket"""),
    _series("aws", "g7.", "rtx-pro-4500-server", """
        2xlarge     8    32   1  none
        4xlarge    16    64   1  none
        8xlarge    32   128   1  none
        12xlarge   48   192   2  pcie
        24xlarge   96   384   4  pcie
        48xlarge  192   768   8  pcie-2-socket"""),
    _series("aws", "g7e.", "rtx-pro-6000-server", """
        2xlarge     8    64   1  none
        4xlarge    16   128   1  none
        8xlarge    32   256   1  none
        12xlarge   48   512   2  pcie
        24xlarge   96  1024   4  pcie
        48xlarge  192  2048   8  pcie-2-socket"""),
)  # fmt: skip

_GCE = (
    _series("gcp", "a2-", "a100-sxm4-40gb", """
        highgpu-1g    12    85   1  none
        highgpu-2g    24   170   2  nvswitch
        highgpu-4g    48   340   4  nvswitch
        highgpu-8g    96   680   8  nvswitch
        megagpu-16g   96  1360  16  nvswitch"""),
    _series("gcp", "a2-", "a100-sxm4-80gb", """
        ultragpu-1g   12   170   1  none
        ultragpu-2g   24   340   2  nvswitch
        ultragpu-4g   48   680   4  nvswitch
        ultragpu-8g   96  1360   8  nvswitch"""),
    _series("gcp", "a3-", "h100-sxm5-80gb", """
        highgpu-1g    26   234   1  none
        highgpu-2g    52   468   2  nvswitch
        highgpu-4g   104   936   4  nvswitch
        highgpu-8g   208  1872   8  nvswitch
        edgegpu-8g   208  1872   8  nvswitch
        megagpu-8g   208  1872   8  nvswitch"""),
    _series("gcp", "a3-", "h200-sxm5-141gb", "ultragpu-8g 224 2952 8 nvswitch"),
    _series("gcp", "a4-", "b200-sxm6-180gb", "highgpu-8g 224 3968 8 nvswitch"),
    _series("gcp", "a4x-", "gb200-186gb", "highgpu-4g 140 884 4 nvswitch", "arm64"),
    _series("gcp", "g2-", "l4", """
        standard-4     4    16   1  none
        standard-8     8    32   1  none
        standard-12   12    48   1  none
        standard-16   16    64   1  none
        standard-24   24    96   2  pcie
        standard-32   32   128   1  none
        standard-48   48   192   4  pcie
        standard-96   96   384   8  pcie-2-socket"""),
    _series("gcp", "g4-", "rtx-pro-6000-server", """
        standard-48    48   180   1  none
        standard-96    96   360   2  pcie
        standard-192  192   720   4  pcie
        standard-384  384  1440   8  pcie-2-socket"""),
)  # fmt: skip

_TYPES = MappingProxyType({t.name: t for series in (*_EC2, *_GCE) for t in series})


def machine_type(name: str) -> MachineType:
    """The machine type called ``name``; raises UnknownMachineType."""
    try:
        return _TYPES[name]
    except KeyError:
        nearest = difflib.get_close_matches(name, sorted(_TYPES), n=3, cutoff=0.5)
        raise UnknownMachineType(name, tuple(nearest)) from None


def machine_types(provider: str | None = None) -> tuple[MachineType, ...]:
    """Every machine type of ``provider`` (``aws``, ``gcp``; None: of both), by name."""
    return tuple(t for _, t in sorted(_TYPES.items()) if provider in (None, t.provider))
