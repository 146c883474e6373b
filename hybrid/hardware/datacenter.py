"""Data-centre GPUs with HBM, and those before it: K80 to B300.

Each entry names NVIDIA's own publication. Usable memory is the total that ``nvidia-smi`` reports
in MiB with the model's default ECC setting.
"""

from __future__ import annotations

from hybrid.hardware import mig
from hybrid.hardware.model import Architecture, Fabric, GpuModel, NvlinkPort

_P100_LINKS = NvlinkPort(1, 4, 20.0, Fabric.MESH)
_V100_LINKS = NvlinkPort(2, 6, 25.0, Fabric.MESH)
_V100_SWITCH = NvlinkPort(2, 6, 25.0, Fabric.SWITCH)
_A100_BRIDGE = NvlinkPort(3, 12, 25.0, Fabric.BRIDGE)
_A100_SWITCH = NvlinkPort(3, 12, 25.0, Fabric.SWITCH)
_A800_SWITCH = NvlinkPort(3, 8, 25.0, Fabric.SWITCH)
_A30_BRIDGE = NvlinkPort(3, 4, 25.0, Fabric.BRIDGE)
_H100_BRIDGE = NvlinkPort(4, 12, 25.0, Fabric.BRIDGE)
_H100_SWITCH = NvlinkPort(4, 18, 25.0, Fabric.SWITCH)
_H800_SWITCH = NvlinkPort(4, 8, 25.0, Fabric.SWITCH)
_H200_BRIDGE = NvlinkPort(4, 18, 25.0, Fabric.BRIDGE)
_B200_SWITCH = NvlinkPort(5, 18, 50.0, Fabric.SWITCH)


def _gpu(
    key: str,
    name: str,
    *,
    family: str,
    form: str = "",
    chip: tuple[Architecture, int, int],
    gb: int,
    usable_mib: int,
    gbps: float,
    fp32: float,
    fp16: float | None = None,
    bf16: float | None = None,
    fp8: float | None = None,
    mhz: int,
    pcie: int,
    watts: float,
    source: str,
    nvlink: NvlinkPort | None = None,
    table: mig.MigTable | None = None,
    nvml: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
) -> GpuModel:
    architecture, major, minor = chip
    return GpuModel(
        key=key,
        name=name,
        family=family,
        form=form,
        size=f"{gb}gb",
        architecture=architecture,
        compute_capability=(major, minor),
        memory_gib=gb,
        usable_memory_gib=usable_mib / 1024,
        memory_bandwidth_gbps=gbps,
        fp32_tflops=fp32,
        fp16_tflops=fp16,
        bf16_tflops=bf16,
        fp8_tflops=fp8,
        boost_clock_mhz=mhz,
        pcie_generation=pcie,
        tdp_w=watts,
        source=source,
        nvlink=nvlink,
        mig=table,
        nvml_names=nvml,
        aliases=aliases,
    )


_GK210 = (Architecture.KEPLER, 3, 7)
_GM204 = (Architecture.MAXWELL, 5, 2)
_GP100 = (Architecture.PASCAL, 6, 0)
_GP10X = (Architecture.PASCAL, 6, 1)
_GV100 = (Architecture.VOLTA, 7, 0)
_GA100 = (Architecture.AMPERE, 8, 0)
_GH100 = (Architecture.HOPPER, 9, 0)
_GB100 = (Architecture.BLACKWELL, 10, 0)
_GB110 = (Architecture.BLACKWELL, 10, 3)

_BEFORE_VOLTA = (
    # figures per chip; the K80 and M60 boards carry two
    _gpu("k80", "Tesla K80", family="k80", chip=_GK210, gb=12, usable_mib=11441, gbps=240,
         fp32=4.37, mhz=875, pcie=3, watts=150, nvml=("Tesla K80",),
         aliases=("nvidia-tesla-k80",), source="NVIDIA Tesla K80 board specification BD-07317"),
    _gpu("m60", "Tesla M60", family="m60", chip=_GM204, gb=8, usable_mib=7618, gbps=160,
         fp32=4.82, mhz=1178, pcie=3, watts=150, nvml=("Tesla M60",),
         source="NVIDIA Tesla M60 product brief"),
    _gpu("p4", "Tesla P4", family="p4", chip=_GP10X, gb=8, usable_mib=7611, gbps=192,
         fp32=5.5, mhz=1114, pcie=3, watts=75, nvml=("Tesla P4",),
         aliases=("nvidia-tesla-p4",), source="NVIDIA Tesla P4 datasheet"),
    _gpu("p40", "Tesla P40", family="p40", chip=_GP10X, gb=24, usable_mib=22919, gbps=346,
         fp32=12.0, mhz=1531, pcie=3, watts=250, nvml=("Tesla P40",),
         source="NVIDIA Tesla P40 datasheet"),
    _gpu("p100-pcie-12gb", "Tesla P100 PCIe 12GB", family="p100", form="pcie", chip=_GP100,
         gb=12, usable_mib=12198, gbps=549, fp32=9.3, fp16=18.7, mhz=1303, pcie=3, watts=250,
         nvml=("Tesla P100-PCIE-12GB",), source="NVIDIA Tesla P100 PCIe datasheet"),
    _gpu("p100-pcie-16gb", "Tesla P100 PCIe 16GB", family="p100", form="pcie", chip=_GP100,
         gb=16, usable_mib=16280, gbps=732, fp32=9.3, fp16=18.7, mhz=1303, pcie=3, watts=250,
         nvml=("Tesla P100-PCIE-16GB",), aliases=("nvidia-tesla-p100",),
         source="NVIDIA Tesla P100 PCIe datasheet"),
    _gpu("p100-sxm2-16gb", "Tesla P100 SXM2 16GB", family="p100", form="sxm2", chip=_GP100,
         gb=16, usable_mib=16280, gbps=732, fp32=10.6, fp16=21.2, mhz=1480, pcie=3, watts=300,
         nvlink=_P100_LINKS, nvml=("Tesla P100-SXM2-16GB",),
         source="NVIDIA Tesla P100 whitepaper WP-08019"),
)  # fmt: skip

_VOLTA = (
    _gpu("v100-pcie-16gb", "Tesla V100 PCIe 16GB", family="v100", form="pcie", chip=_GV100,
         gb=16, usable_mib=16160, gbps=900, fp32=14.0, fp16=112, mhz=1380, pcie=3, watts=250,
         nvml=("Tesla V100-PCIE-16GB",), source="NVIDIA V100 datasheet"),
    _gpu("v100-pcie-32gb", "Tesla V100 PCIe 32GB", family="v100", form="pcie", chip=_GV100,
         gb=32, usable_mib=32510, gbps=900, fp32=14.0, fp16=112, mhz=1380, pcie=3, watts=250,
         nvml=("Tesla V100-PCIE-32GB",), source="NVIDIA V100 datasheet"),
    _gpu("v100-sxm2-16gb", "Tesla V100 SXM2 16GB", family="v100", form="sxm2", chip=_GV100,
         gb=16, usable_mib=16160, gbps=900, fp32=15.7, fp16=125, mhz=1530, pcie=3, watts=300,
         nvlink=_V100_LINKS, nvml=("Tesla V100-SXM2-16GB",), aliases=("nvidia-tesla-v100",),
         source="NVIDIA V100 datasheet"),
    _gpu("v100-sxm2-32gb", "Tesla V100 SXM2 32GB", family="v100", form="sxm2", chip=_GV100,
         gb=32, usable_mib=32510, gbps=900, fp32=15.7, fp16=125, mhz=1530, pcie=3, watts=300,
         nvlink=_V100_LINKS, nvml=("Tesla V100-SXM2-32GB",), source="NVIDIA V100 datasheet"),
    _gpu("v100-sxm3-32gb", "Tesla V100 SXM3 32GB", family="v100", form="sxm3", chip=_GV100,
         gb=32, usable_mib=32510, gbps=981, fp32=16.35, fp16=131, mhz=1597, pcie=3, watts=350,
         nvlink=_V100_SWITCH, nvml=("Tesla V100-SXM3-32GB",), source="NVIDIA DGX-2 datasheet"),
    _gpu("v100s-pcie-32gb", "Tesla V100S PCIe 32GB", family="v100s", form="pcie", chip=_GV100,
         gb=32, usable_mib=32510, gbps=1134, fp32=16.4, fp16=130, mhz=1597, pcie=3, watts=250,
         nvml=("Tesla V100S-PCIE-32GB",), source="NVIDIA V100S datasheet"),
)  # fmt: skip

_AMPERE = (
    _gpu("a100-pcie-40gb", "A100 PCIe 40GB", family="a100", form="pcie", chip=_GA100, gb=40,
         usable_mib=40960, gbps=1555, fp32=19.5, fp16=312, bf16=312, mhz=1410, pcie=4, watts=250,
         nvlink=_A100_BRIDGE, table=mig.A100_40, nvml=("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"),
         source="NVIDIA A100 PCIe product brief PB-10137"),
    _gpu("a100-pcie-80gb", "A100 PCIe 80GB", family="a100", form="pcie", chip=_GA100, gb=80,
         usable_mib=81920, gbps=1935, fp32=19.5, fp16=312, bf16=312, mhz=1410, pcie=4, watts=300,
         nvlink=_A100_BRIDGE, table=mig.A100_80, nvml=("NVIDIA A100 80GB PCIe",),
         aliases=("a100-80gb-pcie",), source="NVIDIA A100 datasheet"),
    _gpu("a100-sxm4-40gb", "A100 SXM4 40GB", family="a100", form="sxm4", chip=_GA100, gb=40,
         usable_mib=40960, gbps=1555, fp32=19.5, fp16=312, bf16=312, mhz=1410, pcie=4, watts=400,
         nvlink=_A100_SWITCH, table=mig.A100_40,
         nvml=("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"), aliases=("nvidia-tesla-a100",),
         source="NVIDIA A100 datasheet"),
    _gpu("a100-sxm4-80gb", "A100 SXM4 80GB", family="a100", form="sxm4", chip=_GA100, gb=80,
         usable_mib=81920, gbps=2039, fp32=19.5, fp16=312, bf16=312, mhz=1410, pcie=4, watts=400,
         nvlink=_A100_SWITCH, table=mig.A100_80,
         nvml=("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB", "A100-SXM-80GB"),
         aliases=("nvidia-a100-80gb",), source="NVIDIA A100 datasheet"),
    _gpu("a800-pcie-80gb", "A800 PCIe 80GB", family="a800", form="pcie", chip=_GA100, gb=80,
         usable_mib=81920, gbps=1935, fp32=19.5, fp16=312, bf16=312, mhz=1410, pcie=4, watts=300,
         nvlink=NvlinkPort(3, 8, 25.0, Fabric.BRIDGE), table=mig.A100_80,
         nvml=("NVIDIA A800 80GB PCIe",), source="NVIDIA A800 datasheet"),
    _gpu("a800-sxm4-80gb", "A800 SXM4 80GB", family="a800", form="sxm4", chip=_GA100, gb=80,
         usable_mib=81920, gbps=2039, fp32=19.5, fp16=312, bf16=312, mhz=1410, pcie=4, watts=400,
         nvlink=_A800_SWITCH, table=mig.A100_80, nvml=("NVIDIA A800-SXM4-80GB",),
         source="NVIDIA A800 datasheet"),
    _gpu("a30", "A30", family="a30", chip=_GA100, gb=24, usable_mib=24576, gbps=933, fp32=10.3,
         fp16=165, bf16=165, mhz=1440, pcie=4, watts=165, nvlink=_A30_BRIDGE, table=mig.A30,
         nvml=("NVIDIA A30", "A30"), source="NVIDIA A30 datasheet"),
)  # fmt: skip

_HOPPER = (
    _gpu("h100-pcie-80gb", "H100 PCIe 80GB", family="h100", form="pcie", chip=_GH100, gb=80,
         usable_mib=81559, gbps=2039, fp32=51, fp16=756, bf16=756, fp8=1513, mhz=1755, pcie=5,
         watts=350, nvlink=_H100_BRIDGE, table=mig.H100_80, nvml=("NVIDIA H100 PCIe",),
         source="NVIDIA H100 PCIe product brief PB-11133"),
    _gpu("h100-sxm5-80gb", "H100 SXM5 80GB", family="h100", form="sxm5", chip=_GH100, gb=80,
         usable_mib=81559, gbps=3350, fp32=67, fp16=989, bf16=989, fp8=1979, mhz=1980, pcie=5,
         watts=700, nvlink=_H100_SWITCH, table=mig.H100_80, nvml=("NVIDIA H100 80GB HBM3",),
         aliases=("nvidia-h100-80gb", "nvidia-h100-mega-80gb"), source="NVIDIA H100 datasheet"),
    _gpu("h100-nvl-94gb", "H100 NVL 94GB", family="h100", form="nvl", chip=_GH100, gb=94,
         usable_mib=95830, gbps=3938, fp32=60, fp16=835, bf16=835, fp8=1671, mhz=1785, pcie=5,
         watts=400, nvlink=_H100_BRIDGE, table=mig.H100_94, nvml=("NVIDIA H100 NVL",),
         source="NVIDIA H100 NVL product brief PB-11773"),
    _gpu("h800-sxm5-80gb", "H800 SXM5 80GB", family="h800", form="sxm5", chip=_GH100, gb=80,
         usable_mib=81559, gbps=3350, fp32=67, fp16=989, bf16=989, fp8=1979, mhz=1980, pcie=5,
         watts=700, nvlink=_H800_SWITCH, table=mig.H100_80, nvml=("NVIDIA H800",),
         source="NVIDIA H800 datasheet"),
    _gpu("h20-sxm5-96gb", "H20 SXM5 96GB", family="h20", form="sxm5", chip=_GH100, gb=96,
         usable_mib=97871, gbps=4000, fp32=44, fp16=148, bf16=148, fp8=296, mhz=1980, pcie=5,
         watts=500, nvlink=_H100_SWITCH, table=mig.H100_96, nvml=("NVIDIA H20",),
         source="NVIDIA H20 datasheet"),
    _gpu("h200-sxm5-141gb", "H200 SXM5 141GB", family="h200", form="sxm5", chip=_GH100, gb=141,
         usable_mib=143771, gbps=4800, fp32=67, fp16=989, bf16=989, fp8=1979, mhz=1980, pcie=5,
         watts=700, nvlink=_H100_SWITCH, table=mig.H200_141, nvml=("NVIDIA H200",),
         aliases=("nvidia-h200-141gb", "h200-sxm-141gb"), source="NVIDIA H200 datasheet"),
    _gpu("h200-nvl-141gb", "H200 NVL 141GB", family="h200", form="nvl", chip=_GH100, gb=141,
         usable_mib=143771, gbps=4800, fp32=60, fp16=835, bf16=835, fp8=1671, mhz=1785, pcie=5,
         watts=600, nvlink=_H200_BRIDGE, table=mig.H200_141, nvml=("NVIDIA H200 NVL",),
         source="NVIDIA H200 datasheet"),
    # NVML names a GH200 by the CPU's memory: 480 GB of LPDDR5X beside 96 GB of HBM3
    _gpu("gh200-96gb", "GH200 96GB HBM3", family="gh200", chip=_GH100, gb=96, usable_mib=97871,
         gbps=4000, fp32=67, fp16=989, bf16=989, fp8=1979, mhz=1980, pcie=5, watts=700,
         nvlink=_H100_SWITCH, table=mig.H100_96,
         nvml=("NVIDIA GH200 480GB", "NVIDIA GH200 120GB"), aliases=("gh200-96gb-hbm3",),
         source="NVIDIA GH200 Grace Hopper Superchip datasheet"),
    _gpu("gh200-144gb", "GH200 144GB HBM3e", family="gh200", chip=_GH100, gb=144,
         usable_mib=146831, gbps=4900, fp32=67, fp16=989, bf16=989, fp8=1979, mhz=1980, pcie=5,
         watts=700, nvlink=_H100_SWITCH, nvml=("NVIDIA GH200 144G HBM3e",),
         aliases=("gh200-144gb-hbm3e",), source="NVIDIA GH200 Grace Hopper Superchip datasheet"),
)  # fmt: skip

_BLACKWELL = (
    _gpu("b200-sxm6-180gb", "B200 SXM6 180GB", family="b200", form="sxm6", chip=_GB100, gb=180,
         usable_mib=183359, gbps=8000, fp32=75, fp16=2250, bf16=2250, fp8=4500, mhz=1965, pcie=5,
         watts=1000, nvlink=_B200_SWITCH, table=mig.B200_180, nvml=("NVIDIA B200",),
         aliases=("nvidia-b200", "b200"), source="NVIDIA DGX B200 datasheet"),
    _gpu("b300-sxm6-288gb", "B300 SXM6 288GB", family="b300", form="sxm6", chip=_GB110, gb=288,
         usable_mib=275040, gbps=8000, fp32=75, fp16=2250, bf16=2250, fp8=4500, mhz=1920, pcie=6,
         watts=1100, nvlink=_B200_SWITCH, table=mig.B300_269,
         nvml=("NVIDIA B300 SXM6 AC", "NVIDIA B300"), aliases=("nvidia-b300", "b300"),
         source="NVIDIA DGX B300 datasheet"),
    _gpu("gb200-186gb", "GB200 186GB", family="gb200", chip=_GB100, gb=186, usable_mib=189471,
         gbps=8000, fp32=80, fp16=2500, bf16=2500, fp8=5000, mhz=2062, pcie=5, watts=1200,
         nvlink=_B200_SWITCH, table=mig.GB200_186, nvml=("NVIDIA GB200",),
         aliases=("nvidia-gb200",), source="NVIDIA GB200 NVL72 datasheet"),
    _gpu("gb300-288gb", "GB300 288GB", family="gb300", chip=_GB110, gb=288, usable_mib=284208,
         gbps=8000, fp32=80, fp16=2500, bf16=2500, fp8=5000, mhz=2032, pcie=6, watts=1400,
         nvlink=_B200_SWITCH, nvml=("NVIDIA GB300",), aliases=("nvidia-gb300",),
         source="NVIDIA GB300 NVL72 datasheet"),
)  # fmt: skip

MODELS: tuple[GpuModel, ...] = (*_BEFORE_VOLTA, *_VOLTA, *_AMPERE, *_HOPPER, *_BLACKWELL)
