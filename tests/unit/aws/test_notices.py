"""What EventBridge's messages say of machines."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from hybrid.domain.ids import MachineId
from hybrid.ports.capacity import Notice, NoticeKind
from providers.aws import create
from providers.aws.notices import INTERRUPTION, NOTICE_S, REBALANCE, STALE_S, read_event
from tests.doubles.build import NOW


def event(kind: str = INTERRUPTION, at: float = NOW, **fields: Any) -> str:
    """An event as EventBridge writes it."""
    return json.dumps(
        {
            "version": "0",
            "id": "12345678-1234-1234-1234-123456789012",
            "detail-type": kind,
            "source": "aws.ec2",
            "account": "123456789012",
            "time": f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}",
            "region": "us-east-1",
            "resources": ["arn:aws:ec2:us-east-1:123456789012:instance/i-1"],
            "detail": {"instance-id": "i-1", "instance-action": "terminate"},
            **fields,
        }
    )


def test_a_warning_is_a_notice_two_minutes_before_the_end() -> None:
    at = NOW + NOTICE_S
    assert read_event(event(), NOW) == Notice(
        machine_id=MachineId("i-1"), kind=NoticeKind.INTERRUPTION, at=at
    )
    assert NOTICE_S == 120


def test_a_recommendation_is_a_hint_since_when_it_was_said() -> None:
    found = read_event(event(REBALANCE, NOW - 30, detail={"instance-id": "i-1"}), NOW)
    assert found == Notice(machine_id=MachineId("i-1"), kind=NoticeKind.REBALANCE, at=NOW - 30)


def test_a_late_warning_leaves_less_time_and_a_stale_one_none() -> None:
    late = read_event(event(at=NOW - 100), NOW)
    assert late is not None
    assert late.at == NOW + 20
    assert read_event(event(at=NOW - STALE_S - 1), NOW) is None


def test_a_cloud_clock_that_is_ahead_makes_no_time() -> None:
    found = read_event(event(at=NOW + 3600), NOW)
    assert found is not None
    assert found.at == NOW + NOTICE_S


@pytest.mark.parametrize(
    "other", [{"source": "aws.ecs"}, {"detail-type": "EC2 Instance State-change Notification"}]
)
def test_events_of_another_kind_say_nothing(other: dict[str, str]) -> None:
    assert read_event(event(**other), NOW) is None


@pytest.mark.parametrize(
    "body",
    [
        "",
        "not json",
        "[]",
        "[" * 100_000,
        event(detail={}),
        event(detail="i-1"),
        event(detail={"instance-id": 7}),
        event(time="soon"),
        event(time=None),
    ],
    ids=range(9),
)
def test_what_is_no_event_is_an_error(body: str) -> None:
    with pytest.raises(ValueError):
        read_event(body, NOW)


def test_a_queue_that_is_no_url_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="notice_queue is the URL of an SQS queue"):
        create(name="aws", region="us-east-1", installation="i", notice_queue="hybrid-notices")
