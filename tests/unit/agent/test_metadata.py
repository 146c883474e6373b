"""The cloud's word that it takes the machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from hybrid.agent.config import Cloud
from hybrid.agent.metadata import (
    AwsMetadata,
    GceMetadata,
    MetadataWatcher,
    metadata_source,
)
from tests.doubles.metadata_server import MetadataServer
from tests.doubles.node_server import wait_until


@pytest.fixture
def ec2(metadata: MetadataServer) -> Iterator[AwsMetadata]:
    source = AwsMetadata(metadata.url)
    yield source
    source.close()


@pytest.fixture
def metadata() -> Iterator[MetadataServer]:
    server = MetadataServer()
    yield server
    server.close()


class Heard:
    """What a watcher told."""

    def __init__(self) -> None:
        self.notices: list[float] = []
        self.hints: list[float] = []
        self.machines: list[str] = []
        self.stopping = threading.Event()

    def watch(self, source: AwsMetadata | GceMetadata) -> MetadataWatcher:
        watcher = MetadataWatcher(
            source,
            on_notice=self.notices.append,
            on_rebalance=self.hints.append,
            on_machine_id=self.machines.append,
            stopping=self.stopping,
        )
        watcher.start()
        return watcher


def test_ec2_is_asked_with_a_token_and_says_nothing_until_it_takes_the_machine(
    metadata: MetadataServer, ec2: AwsMetadata
) -> None:
    assert ec2.machine_id() == "i-0123456789"
    assert ec2.notice() is None
    metadata.interrupt(1_800_000_120)
    assert ec2.notice() == 1_800_000_120.0


def test_a_token_that_ran_out_is_renewed(metadata: MetadataServer, ec2: AwsMetadata) -> None:
    ec2.machine_id()
    metadata.token = "token-2"
    assert ec2.machine_id() == "i-0123456789"


def test_a_rebalance_recommendation_is_no_notice(
    metadata: MetadataServer, ec2: AwsMetadata
) -> None:
    assert ec2.rebalance_at is None
    metadata.rebalance = '{"noticeTime": "2027-01-15T08:00:00Z"}'
    assert ec2.notice() is None
    assert ec2.rebalance_at == 1_800_000_000.0


def test_a_recommendation_that_cannot_be_read_hides_no_interruption(
    metadata: MetadataServer, ec2: AwsMetadata
) -> None:
    metadata.rebalance = "soon"
    metadata.interrupt(1_800_000_120)
    before = time.time()
    assert ec2.notice() == 1_800_000_120.0
    assert ec2.rebalance_at is not None
    assert before <= ec2.rebalance_at <= time.time()


def test_a_watcher_tells_a_recommendation_once(metadata: MetadataServer) -> None:
    heard = Heard()
    metadata.rebalance = '{"noticeTime": "2027-01-15T08:00:00Z"}'
    watcher = heard.watch(AwsMetadata(metadata.url))
    wait_until(lambda: bool(heard.hints))
    asked = len(metadata.asked)
    wait_until(lambda: len(metadata.asked) >= asked + 4)
    heard.stopping.set()
    watcher.join(10)
    assert (heard.hints, heard.notices) == ([1_800_000_000.0], [])


@pytest.mark.parametrize("action", ["[]", '{"action": "stop"}', "soon", '{"time": "soon"}'])
def test_an_action_that_cannot_be_read_is_an_error_and_no_notice(
    metadata: MetadataServer, ec2: AwsMetadata, action: str
) -> None:
    metadata.action = action
    with pytest.raises(ValueError):
        ec2.notice()


def test_a_watcher_tells_each_notice_once_and_the_machines_name(metadata: MetadataServer) -> None:
    heard = Heard()
    source = AwsMetadata(metadata.url)
    metadata.interrupt(1_800_000_120)
    watcher = heard.watch(source)
    wait_until(lambda: heard.notices == [1_800_000_120.0])
    asked = len(metadata.asked)
    wait_until(lambda: len(metadata.asked) >= asked + 2)
    heard.stopping.set()
    watcher.join(10)
    assert heard.notices == [1_800_000_120.0]
    assert heard.machines == ["i-0123456789"]


def test_a_watcher_outlives_a_silent_service(metadata: MetadataServer) -> None:
    metadata.silent = True
    heard = Heard()
    watcher = heard.watch(AwsMetadata(metadata.url))
    time.sleep(0.2)
    metadata.silent = False
    metadata.interrupt(1_800_000_120)
    wait_until(lambda: heard.notices == [1_800_000_120.0])
    heard.stopping.set()
    watcher.join(10)


def test_compute_engine_answers_as_soon_as_the_machine_is_preempted(
    metadata: MetadataServer,
) -> None:
    heard = Heard()
    source = GceMetadata(metadata.url)
    watcher = heard.watch(source)
    wait_until(lambda: any("wait_for_change" in path for path in metadata.asked))
    assert heard.notices == []
    began = time.time()
    metadata.preempt()
    wait_until(lambda: len(heard.notices) == 1, 5)
    assert began + 30.0 <= heard.notices[0] <= time.time() + 30.0
    time.sleep(0.5)  # it stays preempted: the same word again is no news
    heard.stopping.set()
    watcher.join(10)
    assert len(heard.notices) == 1
    assert heard.machines == ["4711"]


def test_each_cloud_has_its_source() -> None:
    for cloud, kind in ((Cloud.AWS, AwsMetadata), (Cloud.GCP, GceMetadata)):
        source = metadata_source(cloud, "http://x")
        assert isinstance(source, kind)
        source.close()
    assert metadata_source(Cloud.NONE, "http://x") is None
