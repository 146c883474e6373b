"""Bytes in and out of a cloud."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hybrid.domain.job import Checkpoint
from hybrid.domain.pool_spec import POOL_SPEC, BurstPool
from hybrid.estimation import transfer
from tests.doubles.build import NOW, a_job, a_spec


@pytest.fixture
def pool() -> BurstPool:
    found = POOL_SPEC.validate_python(
        {
            "kind": "burst",
            "name": "cloud",
            "provider": "aws",
            "region": "r",
            "zones": [{"name": "a"}],
            "template": {"image": "i"},
            "machine_types": ["m"],
            "ceilings": {"machines": 1, "usd_per_hour": 1},
            "transfer_gib_per_s": 0.5,
        }
    )
    assert isinstance(found, BurstPool)
    return found


def test_input_is_brought_and_output_taken_back(pool: BurstPool) -> None:
    job = a_job(spec=a_spec(data={"input": 10, "output": 4}))
    assert transfer.inbound_s(job, pool) == 20.0
    assert transfer.outbound_s(job, pool) == 8.0
    assert transfer.egress_gib(job) == 4.0


def test_a_checkpoint_travels_along_in_its_measured_size(pool: BurstPool) -> None:
    spec = a_spec(data={"input": 10, "output": 4}, checkpoint={"enabled": True, "size": 8})
    job = a_job(spec=spec)
    assert transfer.inbound_s(job, pool) == 20.0
    assert transfer.restore_s(job, pool) == 36.0
    assert transfer.egress_bound_gib(job) == 12.0
    saved = Checkpoint(seq=1, step=1, committed_at=NOW, size_bytes=2**31, commit_s=1.0)
    resumed = replace(job, checkpoint=saved)
    assert transfer.inbound_s(resumed, pool) == 24.0
    assert transfer.egress_bound_gib(resumed) == 6.0
