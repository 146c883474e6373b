"""What the server's credentials have to be allowed to do, and what for: nothing besides.

The custom role of ``terraform/modules/gcp-burst-pool`` and of docs/providers/gcp.md is this list.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

PERMISSIONS: Final = MappingProxyType(
    {
        "compute.instances.create": "launch machines",
        "compute.instances.setLabels": "label machines as ours at launch",
        "compute.instances.setMetadata": "give machines their user data",
        "compute.instances.setServiceAccount": "give machines their service account",
        "compute.instances.setTags": "give machines the pool's network tags",
        "compute.disks.create": "make the boot disks of machines",
        "compute.disks.setLabels": "label boot disks as ours",
        "compute.disks.list": "find disks that machines left behind",
        "compute.disks.delete": "delete those",
        "compute.images.useReadOnly": "boot from the pool's image",
        "compute.instanceTemplates.useReadOnly": "launch from the pool's template",
        "compute.subnetworks.use": "put machines into the pool's subnets",
        "compute.subnetworks.useExternalIp": "give machines an address where a template says so",
        "compute.instances.delete": "end machines and their disks",
        "compute.instances.list": "see which machines there are",
        "compute.instances.get": "find the machine of a repeated launch",
        "compute.instances.getSerialPortOutput": "keep the console of a machine that never joined",
        "compute.zoneOperations.get": "wait for a launch",
        "compute.zoneOperations.list": "see when machines ended, and which were preempted",
        "compute.machineTypes.list": "see what machine types have",
        "compute.projects.get": "read the GPU quota of the project",
        "compute.regions.get": "read the GPU quotas of the region",
    }
)
