"""Link graphs of machines people have, by name, and the declaration ``model:count:preset``."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hybrid.hardware import Fabric, GpuModel, UnknownGpuModel, gpu_model, resolve
from hybrid.topology.graph import MAX_DEVICES, InvalidTopology, LinkGraph
from hybrid.topology.levels import PcieLevel, from_levels


class InvalidDeclaration(ValueError):
    """A declaration of virtual GPUs that cannot be read. ``text`` is what was written."""

    def __init__(self, text: str, reason: str) -> None:
        self.text = text
        self.reason = reason
        super().__init__(f"{text!r}: {reason}")


class VirtualGpus(NamedTuple):
    """GPUs as declared: ``gpus`` of the model with key ``model``, connected as ``graph``."""

    model: str
    gpus: int
    graph: LinkGraph


# Links between the eight V100s of a DGX-1 or p3.16xlarge, as `nvidia-smi topo -m` prints them:
# two fully connected quads, each GPU linked to its twin in the other, six links per GPU.
_CUBE_MESH = (
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)

_Links = Callable[[int, int], int]


def preset(name: str, model_key: str, count: int) -> LinkGraph:
    """The graph of ``count`` GPUs of one model wired as ``name`` says.

    - ``nvswitch``: every pair at the full NVLink rate; the model must be sold with NVSwitch.
    - ``dgx1``: hybrid cube mesh of up to 8 P100 or V100 SXM2; fewer GPUs are its first ones.
    - ``nvlink-pairs``: neighbours (0,1), (2,3), … over NVLink, the rest over PCIe.
    - ``pcie``: one root complex, no NVLink.
    - ``pcie-2-socket``: two, the lower half of the GPUs on the first socket.
    - ``none``: no direct path between any two.

    Machines of four or more GPUs have two sockets, except ``pcie`` and ``none``. Raises
    InvalidTopology for an unknown preset, a count out of range, or a model that has no such links,
    and UnknownGpuModel.
    """
    model = gpu_model(model_key)
    if not 1 <= count <= MAX_DEVICES:
        raise InvalidTopology(f"{count} GPUs; a machine has 1 to {MAX_DEVICES}")
    try:
        build = _PRESETS[name]
    except KeyError:
        raise InvalidTopology(
            f"no link preset is called {name!r}; there are {', '.join(_PRESETS)}"
        ) from None
    return build(model, count)


def default_preset(model_key: str, count: int) -> str:
    """How ``count`` GPUs of a model are most often wired; raises UnknownGpuModel."""
    model = gpu_model(model_key)
    if count == 1:
        return "none"
    if model.nvlink is not None and model.nvlink.fabric is Fabric.SWITCH:
        return "nvswitch"
    if model.nvlink is not None and model.nvlink.fabric is Fabric.MESH and count <= len(_CUBE_MESH):
        return "dgx1"
    return "pcie" if count <= 4 else "pcie-2-socket"


def parse_virtual_gpus(text: str) -> VirtualGpus:
    """Read ``a100-80gb:4:nvlink-pairs`` (``MODEL[:COUNT[:PRESET]]``).

    A model name that leaves words out means the variant that such links are sold with: pairs and
    PCIe are the PCIe card, NVSwitch the SXM module; without a preset, the SXM module and its usual
    links. Raises InvalidDeclaration, which says what to write instead.
    """
    parts = [part.strip() for part in text.strip().split(":")]
    if len(parts) > 3 or not all(parts):
        raise InvalidDeclaration(text, "write MODEL, MODEL:COUNT or MODEL:COUNT:LINKS")
    count_text = parts[1] if len(parts) > 1 else "1"
    if not (count_text.isascii() and count_text.isdigit()):
        raise InvalidDeclaration(text, f"the number of GPUs is not a number: {count_text!r}")
    count = int(count_text)
    try:
        keys = resolve(parts[0])
        links = parts[2] if len(parts) > 2 else None
        key = _variant(keys, links)
        graph = preset(links or default_preset(key, count), key, count)
    except (UnknownGpuModel, InvalidTopology) as error:
        raise InvalidDeclaration(text, str(error)) from error
    return VirtualGpus(key, count, graph)


def join(first: LinkGraph, second: LinkGraph, gbps: float) -> LinkGraph:
    """One machine with the devices of both, ``gbps`` GB/s between any two of different graphs: a
    mixed box. NUMA nodes keep their numbers. Raises InvalidTopology."""
    shift = first.count
    rows = [(*row, *(gbps,) * second.count) for row in first.gbps]
    rows += [(*(gbps,) * first.count, *row) for row in second.gbps]
    nvlink = (*first.nvlink, *(mask << shift for mask in second.nvlink))
    return LinkGraph(tuple(rows), (*first.numa, *second.numa), nvlink)


_SOLD_WITH: dict[str | None, tuple[Fabric | None, ...]] = {
    None: (Fabric.SWITCH, Fabric.MESH),
    "nvswitch": (Fabric.SWITCH,),
    "dgx1": (Fabric.MESH,),
    "nvlink-pairs": (Fabric.BRIDGE, Fabric.SWITCH, Fabric.MESH),
}


def _variant(keys: frozenset[str], links: str | None) -> str:
    """The one of ``keys`` that the links are sold with; ties go to the name that sorts first."""
    order = _SOLD_WITH.get(links, (Fabric.BRIDGE, None))

    def misfit(key: str) -> tuple[int, str]:
        port = gpu_model(key).nvlink
        fabric = port.fabric if port else None
        return (order.index(fabric) if fabric in order else len(order), key)

    return min(keys, key=misfit)


def _two_sockets(count: int) -> tuple[int, ...]:
    """NUMA nodes: the lower half of four or more devices on the first socket."""
    half = (count + 1) // 2
    return tuple(int(count >= 4 and i >= half) for i in range(count))


def _build(model: GpuModel, count: int, numa: tuple[int, ...], links: _Links) -> LinkGraph:
    """PCIe through the host bridge, between sockets where they differ; NVLinks as ``links``."""
    pairs = range(count)
    levels = [[PcieLevel.PHB if numa[i] == numa[j] else PcieLevel.SYS for j in pairs]
              for i in pairs]  # fmt: skip
    return from_levels(
        levels,
        [[links(i, j) if i != j else 0 for j in pairs] for i in pairs],
        pcie_generation=model.pcie_generation,
        pcie_lanes=model.pcie_lanes,
        nvlink_gbps_per_link=model.nvlink.gbps_per_link if model.nvlink else 0.0,
        numa=numa,
    )


def _nvswitch(model: GpuModel, count: int) -> LinkGraph:
    port = model.nvlink
    if port is None or port.fabric is not Fabric.SWITCH:
        raise InvalidTopology(f"{model.key} is not sold with NVSwitch")
    links = port.links
    return _build(model, count, _two_sockets(count), lambda _i, _j: links)


def _dgx1(model: GpuModel, count: int) -> LinkGraph:
    port = model.nvlink
    if port is None or port.fabric is not Fabric.MESH:
        raise InvalidTopology(f"{model.key} is not sold in a cube mesh (P100 and V100 SXM2 are)")
    if count > len(_CUBE_MESH):
        raise InvalidTopology(f"{count} GPUs; a cube mesh has {len(_CUBE_MESH)}")
    # the four links of a P100 make the same mesh with every link single
    widest = 2 if port.links >= 6 else 1
    numa = tuple(i // 4 for i in range(count))
    return _build(model, count, numa, lambda i, j: min(_CUBE_MESH[i][j], widest))


def _nvlink_pairs(model: GpuModel, count: int) -> LinkGraph:
    port = model.nvlink
    if port is None:
        raise InvalidTopology(f"{model.key} has no NVLink")
    links = port.links
    return _build(model, count, _pair_sockets(count), lambda i, j: links if i // 2 == j // 2 else 0)


def _pair_sockets(count: int) -> tuple[int, ...]:
    """As ``_two_sockets``, but never with a pair astride."""
    first = (count // 2 + 1) // 2 * 2
    return tuple(int(count >= 4 and i >= first) for i in range(count))


def _pcie(model: GpuModel, count: int) -> LinkGraph:
    return _build(model, count, (0,) * count, lambda _i, _j: 0)


def _pcie_two_socket(model: GpuModel, count: int) -> LinkGraph:
    half = (count + 1) // 2
    return _build(model, count, tuple(int(i >= half) for i in range(count)), lambda _i, _j: 0)


def _none(_model: GpuModel, count: int) -> LinkGraph:
    return LinkGraph(((0.0,) * count,) * count, (0,) * count, (0,) * count)


_PRESETS: dict[str, Callable[[GpuModel, int], LinkGraph]] = {
    "nvswitch": _nvswitch,
    "dgx1": _dgx1,
    "nvlink-pairs": _nvlink_pairs,
    "pcie": _pcie,
    "pcie-2-socket": _pcie_two_socket,
    "none": _none,
}

PRESETS: tuple[str, ...] = tuple(_PRESETS)
"""The names ``preset`` knows."""
