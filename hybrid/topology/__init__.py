"""What connects the GPUs of a machine, and which of them to give to a job. Pure."""

from hybrid.domain.job_spec import LinkClass
from hybrid.topology.fragmentation import DemandClass, Fragmentation, SharePlacement
from hybrid.topology.graph import (
    MAX_DEVICES,
    InvalidTopology,
    LinkGraph,
    devices_of,
    mask_of,
)
from hybrid.topology.levels import PcieLevel, from_levels, nvlink_generation, pcie_gbps
from hybrid.topology.link_class import MINIMUM_GBPS, link_efficiency, reference_gbps
from hybrid.topology.mig_room import MigDemand, best_mig_placement, mig_growth, mig_unusable
from hybrid.topology.parted import PartedSlots, Slots, check_links, slots_of
from hybrid.topology.presets import (
    PRESETS,
    InvalidDeclaration,
    VirtualGpus,
    default_preset,
    join,
    parse_virtual_gpus,
    preset,
)
from hybrid.topology.slots import Choice, SlotTable, slot_table

__all__ = [
    "MAX_DEVICES",
    "MINIMUM_GBPS",
    "PRESETS",
    "Choice",
    "DemandClass",
    "Fragmentation",
    "InvalidDeclaration",
    "InvalidTopology",
    "LinkClass",
    "LinkGraph",
    "MigDemand",
    "PartedSlots",
    "PcieLevel",
    "SharePlacement",
    "SlotTable",
    "Slots",
    "VirtualGpus",
    "best_mig_placement",
    "check_links",
    "default_preset",
    "devices_of",
    "from_levels",
    "join",
    "link_efficiency",
    "mask_of",
    "mig_growth",
    "mig_unusable",
    "nvlink_generation",
    "parse_virtual_gpus",
    "pcie_gbps",
    "preset",
    "reference_gbps",
    "slot_table",
    "slots_of",
]
