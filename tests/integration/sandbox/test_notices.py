"""EC2's word through EventBridge and SQS: read at least once, deleted when it is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from hybrid.ports.capacity import Notice, NoticeKind
from providers.aws import create
from providers.aws.provider import AwsProvider
from providers.sandbox.cloud import SandboxCloud
from tests.doubles.notice_queue import lying_in, notice_queue
from tests.integration.sandbox.conftest import eventually, launch

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("sandbox-cloud")]

SPOT = {"InstanceMarketOptions": {"MarketType": "spot"}}


@pytest.fixture
def queue(cloud: SandboxCloud, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("providers.aws.notices.WAIT_S", 1)
    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)
    return notice_queue(cloud)


@pytest.fixture
def reader(cloud: SandboxCloud, queue: str) -> Iterator[Callable[[], AwsProvider]]:
    made = []

    def make() -> AwsProvider:
        provider = create(
            name="aws",
            region="us-east-1",
            installation="inst",
            endpoint_url=cloud.url,
            notice_queue=queue,
        )
        made.append(provider)
        return provider

    yield make
    for provider in made:
        provider.close()


def heard(provider: AwsProvider, count: int = 1) -> tuple[Notice, ...]:
    eventually(lambda: len(provider.notices()) >= count)
    return provider.notices()


def test_a_warning_stays_until_it_is_recorded_and_is_deleted_then(
    cloud: SandboxCloud, queue: str, reader: Callable[[], AwsProvider]
) -> None:
    provider = reader()
    instance_id = launch(cloud, **SPOT)
    end_at = cloud.interrupt(instance_id)
    (notice,) = heard(provider)
    assert (notice.machine_id, notice.kind) == (instance_id, NoticeKind.INTERRUPTION)
    assert notice.at == pytest.approx(end_at, abs=1.0)
    assert provider.notices() == (notice,)
    assert lying_in(cloud, queue) == 1
    provider.recorded([notice])
    assert provider.notices() == ()
    eventually(lambda: lying_in(cloud, queue) == 0)


def test_a_recommendation_is_told_as_a_hint(
    cloud: SandboxCloud, reader: Callable[[], AwsProvider]
) -> None:
    provider = reader()
    instance_id = launch(cloud, **SPOT)
    at = cloud.recommend_rebalance(instance_id)
    (hint,) = heard(provider)
    assert (hint.machine_id, hint.kind) == (instance_id, NoticeKind.REBALANCE)
    assert hint.at == pytest.approx(at, abs=1.0)


def test_the_same_warning_twice_is_two_messages_and_one_notice_recorded_ends_both(
    cloud: SandboxCloud, queue: str, reader: Callable[[], AwsProvider]
) -> None:
    provider = reader()
    cloud.interrupt(launch(cloud, **SPOT))
    (notice,) = heard(provider)
    sqs = cloud.client("sqs")
    body = (
        '{"source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning", "time":'
        f' "{_written(notice.at - 120)}", "detail": {{"instance-id": "{notice.machine_id}"}}}}'
    )
    sqs.send_message(QueueUrl=queue, MessageBody=body)
    assert heard(provider, 2) == (notice, notice)
    provider.recorded([notice])
    assert provider.notices() == ()
    eventually(lambda: lying_in(cloud, queue) == 0)


def _written(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def test_what_cannot_be_read_is_dropped_and_the_next_is_heard(
    cloud: SandboxCloud, queue: str, reader: Callable[[], AwsProvider]
) -> None:
    provider = reader()
    for body in ("not an event", '{"source": "aws.s3"}', '{"source": "aws.ec2", "detail-type": 1}'):
        cloud.client("sqs").send_message(QueueUrl=queue, MessageBody=body)
    cloud.interrupt(launch(cloud, **SPOT))
    (notice,) = heard(provider)
    provider.recorded([notice])
    eventually(lambda: lying_in(cloud, queue) == 0)


def test_a_queue_that_refuses_for_a_while_is_read_afterwards(
    cloud: SandboxCloud, reader: Callable[[], AwsProvider]
) -> None:
    cloud.fault("AmazonSQS.ReceiveMessage", code="AccessDenied", http_status=403, times=2)
    provider = reader()
    cloud.interrupt(launch(cloud, **SPOT))
    assert heard(provider)


def test_a_server_that_ends_leaves_what_it_had_not_recorded_to_the_next(
    cloud: SandboxCloud,
    reader: Callable[[], AwsProvider],
    queue: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("providers.aws.notices.HIDDEN_S", 2)
    first = reader()
    cloud.interrupt(launch(cloud, **SPOT))
    (notice,) = heard(first)
    first.close()
    assert lying_in(cloud, queue) == 1
    assert heard(reader()) == (notice,)
