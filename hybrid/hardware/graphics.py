"""GPUs with graphics memory: inference cards, workstation cards and GeForce.

Tensor rates follow from the FP32 rate by a factor that is the same for a whole product line, as
NVIDIA's architecture whitepapers tabulate them (dense, FP32 accumulation): GeForce runs tensor
work at twice the FP32 rate, professional cards at four times, and FP8 doubles that from Ada on.
Where a datasheet differs (L40, A10, A10G) the entry carries its own figure.
"""

from __future__ import annotations

from hybrid.hardware import mig
from hybrid.hardware.model import Architecture, Fabric, GpuModel, NvlinkPort

_TU102_BRIDGE = NvlinkPort(2, 2, 25.0, Fabric.BRIDGE)
_GA102_BRIDGE = NvlinkPort(3, 4, 14.0625, Fabric.BRIDGE)

_TURING = (Architecture.TURING, 7, 5)
_AMPERE = (Architecture.AMPERE, 8, 6)
_ADA = (Architecture.ADA, 8, 9)
_BLACKWELL = (Architecture.BLACKWELL, 12, 0)


def _gpu(
    key: str,
    name: str,
    *,
    chip: tuple[Architecture, int, int],
    gb: int,
    usable_mib: int,
    gbps: float,
    fp32: float,
    fp16: float,
    fp8: float | None,
    mhz: int,
    pcie: int,
    watts: float,
    source: str,
    family: str = "",
    lanes: int = 16,
    nvlink: NvlinkPort | None = None,
    table: mig.MigTable | None = None,
    nvml: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
) -> GpuModel:
    architecture, major, minor = chip
    return GpuModel(
        key=key,
        name=name,
        family=family or key,
        form="",
        size=f"{gb}gb",
        architecture=architecture,
        compute_capability=(major, minor),
        memory_gib=gb,
        usable_memory_gib=usable_mib / 1024,
        memory_bandwidth_gbps=gbps,
        fp32_tflops=fp32,
        fp16_tflops=fp16,
        # Turing's tensor cores have no BF16
        bf16_tflops=None if architecture is Architecture.TURING else fp16,
        fp8_tflops=fp8,
        boost_clock_mhz=mhz,
        pcie_generation=pcie,
        pcie_lanes=lanes,
        tdp_w=watts,
        source=source,
        nvlink=nvlink,
        mig=table,
        nvml_names=nvml or (f"NVIDIA {name}",),
        aliases=aliases,
    )


_SERVER = (
    _gpu("t4", "Tesla T4", chip=_TURING, gb=16, usable_mib=15360, gbps=320, fp32=8.1, fp16=65,
         fp8=None, mhz=1590, pcie=3, watts=70, nvml=("Tesla T4", "NVIDIA T4"),
         aliases=("nvidia-tesla-t4",), source="NVIDIA T4 datasheet"),
    _gpu("t4g", "T4G", chip=_TURING, gb=16, usable_mib=15360, gbps=320, fp32=8.1, fp16=65,
         fp8=None, mhz=1590, pcie=3, watts=70, nvml=("NVIDIA T4G", "NVIDIA T4g"),
         source="Amazon EC2 G5g documentation; the chip is that of the T4"),
    _gpu("a2", "A2", chip=_AMPERE, gb=16, usable_mib=15356, gbps=200, fp32=4.5, fp16=18,
         fp8=None, mhz=1770, pcie=4, lanes=8, watts=60, source="NVIDIA A2 datasheet"),
    _gpu("a10", "A10", chip=_AMPERE, gb=24, usable_mib=23028, gbps=600, fp32=31.2, fp16=125,
         fp8=None, mhz=1695, pcie=4, watts=150, source="NVIDIA A10 datasheet"),
    _gpu("a10g", "A10G", chip=_AMPERE, gb=24, usable_mib=23028, gbps=600, fp32=35, fp16=70,
         fp8=None, mhz=1710, pcie=4, watts=300, source="NVIDIA A10G datasheet"),
    _gpu("a16", "A16", chip=_AMPERE, gb=16, usable_mib=15356, gbps=200, fp32=4.5, fp16=17.9,
         fp8=None, mhz=1695, pcie=4, watts=62.5, source="NVIDIA A16 datasheet, per GPU of four"),
    _gpu("a40", "A40", chip=_AMPERE, gb=48, usable_mib=46068, gbps=696, fp32=37.4, fp16=149.7,
         fp8=None, mhz=1740, pcie=4, watts=300, nvlink=_GA102_BRIDGE,
         source="NVIDIA A40 datasheet"),
    _gpu("l4", "L4", chip=_ADA, gb=24, usable_mib=23034, gbps=300, fp32=30.3, fp16=121, fp8=242,
         mhz=2040, pcie=4, watts=72, source="NVIDIA L4 datasheet"),
    _gpu("l20", "L20", chip=_ADA, gb=48, usable_mib=46068, gbps=864, fp32=59.8, fp16=119.5,
         fp8=239, mhz=2520, pcie=4, watts=275, source="NVIDIA L20 datasheet"),
    _gpu("l40", "L40", chip=_ADA, gb=48, usable_mib=46068, gbps=864, fp32=90.5, fp16=181,
         fp8=362, mhz=2490, pcie=4, watts=300, source="NVIDIA L40 datasheet"),
    _gpu("l40s", "L40S", chip=_ADA, gb=48, usable_mib=46068, gbps=864, fp32=91.6, fp16=362,
         fp8=733, mhz=2520, pcie=4, watts=350, source="NVIDIA L40S datasheet"),
)  # fmt: skip

_QUADRO = "NVIDIA Turing GPU architecture whitepaper WP-09183"
_TURING_CARDS = (
    _gpu("rtx-2080-ti", "GeForce RTX 2080 Ti", chip=_TURING, gb=11, usable_mib=11264, gbps=616,
         fp32=13.4, fp16=53.8, fp8=None, mhz=1545, pcie=3, watts=250, nvlink=_TU102_BRIDGE,
         nvml=("NVIDIA GeForce RTX 2080 Ti", "GeForce RTX 2080 Ti"), source=_QUADRO),
    _gpu("titan-rtx", "TITAN RTX", chip=_TURING, gb=24, usable_mib=24220, gbps=672, fp32=16.3,
         fp16=130.5, fp8=None, mhz=1770, pcie=3, watts=280, nvlink=_TU102_BRIDGE,
         nvml=("TITAN RTX", "NVIDIA TITAN RTX"), source=_QUADRO),
    _gpu("quadro-rtx-6000", "Quadro RTX 6000", chip=_TURING, gb=24, usable_mib=22698, gbps=672,
         fp32=16.3, fp16=130.5, fp8=None, mhz=1770, pcie=3, watts=260, nvlink=_TU102_BRIDGE,
         nvml=("Quadro RTX 6000",), source=_QUADRO),
    _gpu("quadro-rtx-8000", "Quadro RTX 8000", chip=_TURING, gb=48, usable_mib=45556, gbps=672,
         fp32=16.3, fp16=130.5, fp8=None, mhz=1770, pcie=3, watts=260, nvlink=_TU102_BRIDGE,
         nvml=("Quadro RTX 8000",), source=_QUADRO),
)  # fmt: skip


def _workstation(
    key: str, name: str, chip: tuple[Architecture, int, int], gb: int, usable_mib: int,
    gbps: float, fp32: float, mhz: int, watts: float, *, nvlink: NvlinkPort | None = None,
    table: mig.MigTable | None = None, nvml: tuple[str, ...] = (), aliases: tuple[str, ...] = (),
    family: str = "", lanes: int = 16,
) -> GpuModel:  # fmt: skip
    """A professional card: tensor work at four times the FP32 rate."""
    return _gpu(
        key, name, chip=chip, gb=gb, usable_mib=usable_mib, gbps=gbps, fp32=fp32,
        fp16=round(4 * fp32, 1), fp8=None if chip is _AMPERE else round(8 * fp32, 1), mhz=mhz,
        pcie=5 if chip is _BLACKWELL else 4, lanes=lanes, watts=watts, nvlink=nvlink,
        table=table, nvml=nvml, aliases=aliases, family=family, source=f"NVIDIA {name} datasheet",
    )  # fmt: skip


_PRO_6000 = "RTX PRO 6000 Blackwell"
_WORKSTATION = (
    _workstation("rtx-a2000-6gb", "RTX A2000", _AMPERE, 6, 6138, 288, 8.0, 1200, 70,
                 family="rtx-a2000"),
    _workstation("rtx-a2000-12gb", "RTX A2000 12GB", _AMPERE, 12, 12282, 288, 8.0, 1200, 70,
                 family="rtx-a2000"),
    _workstation("rtx-a4000", "RTX A4000", _AMPERE, 16, 16376, 448, 19.2, 1560, 140),
    _workstation("rtx-a4500", "RTX A4500", _AMPERE, 20, 20470, 640, 23.7, 1650, 200,
                 nvlink=_GA102_BRIDGE),
    _workstation("rtx-a5000", "RTX A5000", _AMPERE, 24, 24564, 768, 27.8, 1695, 230,
                 nvlink=_GA102_BRIDGE),
    _workstation("rtx-a5500", "RTX A5500", _AMPERE, 24, 24564, 768, 34.1, 1665, 230,
                 nvlink=_GA102_BRIDGE),
    _workstation("rtx-a6000", "RTX A6000", _AMPERE, 48, 49140, 768, 38.7, 1800, 300,
                 nvlink=_GA102_BRIDGE),
    _workstation("rtx-2000-ada", "RTX 2000 Ada Generation", _ADA, 16, 16380, 224, 12.0, 2130, 70,
                 lanes=8),
    _workstation("rtx-4000-sff-ada", "RTX 4000 SFF Ada Generation", _ADA, 20, 20475, 280, 19.2,
                 1560, 70),
    _workstation("rtx-4000-ada", "RTX 4000 Ada Generation", _ADA, 20, 20475, 360, 26.7, 2175, 130),
    _workstation("rtx-4500-ada", "RTX 4500 Ada Generation", _ADA, 24, 24570, 432, 39.6, 2580, 210),
    _workstation("rtx-5000-ada", "RTX 5000 Ada Generation", _ADA, 32, 32760, 576, 65.3, 2550, 250),
    _workstation("rtx-5880-ada", "RTX 5880 Ada Generation", _ADA, 48, 49140, 960, 69.3, 2460, 285),
    _workstation("rtx-6000-ada", "RTX 6000 Ada Generation", _ADA, 48, 49140, 960, 91.1, 2505, 300),
    # FP32 rates of RTX PRO are NVIDIA's FP4 "AI TOPS" divided by 32
    _workstation("rtx-pro-2000", "RTX PRO 2000 Blackwell", _BLACKWELL, 16, 16311, 288, 17.0, 1950,
                 70, lanes=8),
    _workstation("rtx-pro-4000", "RTX PRO 4000 Blackwell", _BLACKWELL, 24, 24467, 672, 36.8, 2055,
                 140),
    _workstation("rtx-pro-4000-sff", "RTX PRO 4000 Blackwell SFF Edition", _BLACKWELL, 24, 24467,
                 432, 24.0, 1620, 70, lanes=8),
    _workstation("rtx-pro-4500", "RTX PRO 4500 Blackwell", _BLACKWELL, 32, 32623, 896, 52.7, 2510,
                 200),
    _workstation("rtx-pro-4500-server", "RTX PRO 4500 Blackwell Server Edition", _BLACKWELL, 32,
                 32623, 800, 50.0, 2382, 165),
    _workstation("rtx-pro-5000-48gb", "RTX PRO 5000 Blackwell", _BLACKWELL, 48, 48935, 1344, 64.5,
                 2290, 300, family="rtx-pro-5000"),
    _workstation("rtx-pro-5000-72gb", "RTX PRO 5000 72GB Blackwell", _BLACKWELL, 72, 73415, 1344,
                 64.5, 2290, 300, family="rtx-pro-5000"),
    _workstation("rtx-pro-6000-workstation", f"{_PRO_6000} Workstation Edition", _BLACKWELL, 96,
                 97887, 1792, 125.0, 2617, 600, table=mig.RTX_PRO_6000, family="rtx-pro-6000"),
    _workstation("rtx-pro-6000-max-q", f"{_PRO_6000} Max-Q Workstation Edition", _BLACKWELL, 96,
                 97887, 1792, 110.0, 2280, 300, table=mig.RTX_PRO_6000, family="rtx-pro-6000"),
    _workstation("rtx-pro-6000-server", f"{_PRO_6000} Server Edition", _BLACKWELL, 96, 97887,
                 1597, 120.0, 2493, 600, table=mig.RTX_PRO_6000, family="rtx-pro-6000",
                 aliases=("nvidia-rtx-pro-6000", "rtx-pro-server-6000")),
)  # fmt: skip


def _geforce(
    number: str, chip: tuple[Architecture, int, int], gb: int, usable_mib: int, gbps: float,
    fp32: float, mhz: int, watts: float, *, nvlink: NvlinkPort | None = None, lanes: int = 16,
    two_sizes: bool = False,
) -> GpuModel:  # fmt: skip
    """A GeForce card: tensor work at twice the FP32 rate. ``two_sizes``: NVML says the same for
    a card with more memory, so the size is part of the key."""
    slug = "rtx-" + number.lower().replace(" ", "-")
    name = f"GeForce RTX {number}"
    return _gpu(
        f"{slug}-{gb}gb" if two_sizes else slug, name, family=slug, chip=chip, gb=gb,
        usable_mib=usable_mib, gbps=gbps, fp32=fp32, fp16=round(2 * fp32, 1),
        fp8=None if chip is _AMPERE else round(4 * fp32, 1), mhz=mhz,
        pcie=5 if chip is _BLACKWELL else 4, lanes=lanes, watts=watts, nvlink=nvlink,
        nvml=(f"NVIDIA {name}", name), source=f"NVIDIA {name} specification",
    )  # fmt: skip


_GEFORCE = (
    _geforce("3050", _AMPERE, 8, 8188, 224, 9.1, 1777, 130, lanes=8),
    _geforce("3060", _AMPERE, 12, 12288, 360, 12.7, 1777, 170),
    _geforce("3060 Ti", _AMPERE, 8, 8192, 448, 16.2, 1665, 200),
    _geforce("3070", _AMPERE, 8, 8192, 448, 20.3, 1725, 220),
    _geforce("3070 Ti", _AMPERE, 8, 8192, 608, 21.7, 1770, 290),
    _geforce("3080", _AMPERE, 10, 10240, 760, 29.8, 1710, 320, two_sizes=True),
    _geforce("3080", _AMPERE, 12, 12288, 912, 30.6, 1710, 350, two_sizes=True),
    _geforce("3080 Ti", _AMPERE, 12, 12288, 912, 34.1, 1665, 350),
    _geforce("3090", _AMPERE, 24, 24576, 936, 35.6, 1695, 350, nvlink=_GA102_BRIDGE),
    _geforce("3090 Ti", _AMPERE, 24, 24564, 1008, 40.0, 1860, 450, nvlink=_GA102_BRIDGE),
    _geforce("4060", _ADA, 8, 8188, 272, 15.1, 2460, 115, lanes=8),
    _geforce("4060 Ti", _ADA, 8, 8188, 288, 22.1, 2535, 160, lanes=8, two_sizes=True),
    _geforce("4060 Ti", _ADA, 16, 16380, 288, 22.1, 2535, 165, lanes=8, two_sizes=True),
    _geforce("4070", _ADA, 12, 12282, 504, 29.1, 2475, 200),
    _geforce("4070 SUPER", _ADA, 12, 12282, 504, 35.5, 2475, 220),
    _geforce("4070 Ti", _ADA, 12, 12282, 504, 40.1, 2610, 285),
    _geforce("4070 Ti SUPER", _ADA, 16, 16376, 672, 44.1, 2610, 285),
    _geforce("4080", _ADA, 16, 16376, 717, 48.7, 2505, 320),
    _geforce("4080 SUPER", _ADA, 16, 16376, 736, 52.2, 2550, 320),
    _geforce("4090", _ADA, 24, 24564, 1008, 82.6, 2520, 450),
    _geforce("4090 D", _ADA, 24, 24564, 1008, 73.5, 2520, 425),
    _geforce("5050", _BLACKWELL, 8, 8151, 320, 13.2, 2572, 130, lanes=8),
    _geforce("5060", _BLACKWELL, 8, 8151, 448, 19.2, 2497, 145, lanes=8),
    _geforce("5060 Ti", _BLACKWELL, 8, 8151, 448, 23.7, 2572, 180, lanes=8, two_sizes=True),
    _geforce("5060 Ti", _BLACKWELL, 16, 16311, 448, 23.7, 2572, 180, lanes=8, two_sizes=True),
    _geforce("5070", _BLACKWELL, 12, 12227, 672, 30.9, 2512, 250),
    _geforce("5070 Ti", _BLACKWELL, 16, 16303, 896, 43.9, 2452, 300),
    _geforce("5080", _BLACKWELL, 16, 16303, 960, 56.3, 2617, 360),
    _geforce("5090", _BLACKWELL, 32, 32607, 1792, 104.8, 2407, 575),
    _geforce("5090 D", _BLACKWELL, 32, 32607, 1792, 104.8, 2407, 575),
)  # fmt: skip

MODELS: tuple[GpuModel, ...] = (*_SERVER, *_TURING_CARDS, *_WORKSTATION, *_GEFORCE)
