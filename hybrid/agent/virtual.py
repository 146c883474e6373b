"""GPUs that are declared, on a machine that has no driver: for trying things out."""

from __future__ import annotations

import uuid

from hybrid.agent.config import AgentConfigError
from hybrid.domain.ids import GpuId
from hybrid.domain.node import Gpu
from hybrid.hardware import gpu_model
from hybrid.ports.gpus import DeclaredGpus, GpuSet
from hybrid.topology import InvalidDeclaration, parse_virtual_gpus

_NAMESPACE = uuid.UUID("6f0b6c8e-2d0e-4d6b-9f0a-3f5d0c2f7a51")


def declared_gpus(text: str | None, node_id: str) -> DeclaredGpus:
    """The devices of a declaration such as ``a100-80gb:4:nvlink-pairs``; none for None.

    Ids follow from the node's, so they stay the same and no two nodes share one. Raises
    AgentConfigError.
    """
    if text is None:
        return DeclaredGpus()
    try:
        declared = parse_virtual_gpus(text)
    except InvalidDeclaration as error:
        raise AgentConfigError(f"virtual_gpus: {error}") from error
    memory_gib = gpu_model(declared.model).usable_memory_gib
    return DeclaredGpus(
        GpuSet(
            gpus=tuple(
                Gpu(
                    id=GpuId(f"GPU-{uuid.uuid5(_NAMESPACE, f'{node_id}:{index}')}"),
                    index=index,
                    model=declared.model,
                    memory_gib=memory_gib,
                    numa=declared.graph.numa[index],
                    virtual=True,
                )
                for index in range(declared.gpus)
            ),
            links_gbps=declared.graph.gbps,
        )
    )
