"""The CapacityProvider of one AWS account in one region."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from hybrid.domain.claim import Claim
from hybrid.domain.ids import MachineId
from hybrid.domain.pool_spec import BurstPool
from hybrid.ports.capacity import BootInfo, Leftover, Machine, Notice, Offers, Permission
from hybrid.ports.errors import AuthFailed, Gone, OutcomeUnknown
from providers.aws import leftovers, machine_facts, requests
from providers.aws.doctor import Clients, examine
from providers.aws.errors import GROUP_EXISTS, Scopes, translated
from providers.aws.machines import machine
from providers.aws.notices import NoticeQueue
from providers.aws.prices import Prices
from providers.aws.quotas import Quotas, quota_family
from providers.kept import default_cache_dir
from providers.offering import MachineFacts, Region, offers

CONSOLE_LIMIT: Final = 65_536
PAGE: Final = 1_000
"""Instances in one answer: the most that DescribeInstances gives."""

# Reads are safe to repeat. A launch is repeated by us, under its token: repeats by the SDK would
# hammer a zone that is full (InsufficientInstanceCapacity comes as a retryable HTTP 500).
_READS: Final = Config(
    connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 3}
)
_WRITES: Final = Config(
    connect_timeout=5, read_timeout=45, retries={"mode": "standard", "total_max_attempts": 1}
)
PRICING_REGION: Final = "us-east-1"
"""The Pricing API answers in a few regions only; this one holds the prices of all."""


@cache
def _session() -> Any:
    """One for all providers: it keeps the service descriptions, which take long to read."""
    return boto3.session.Session()


class AwsProvider:
    """Launches, lists and ends EC2 instances. Safe to call from several threads."""

    def __init__(
        self,
        *,
        name: str,
        region: str,
        installation: str,
        endpoint_url: str | None = None,
        notice_queue: str | None = None,
        cache_dir: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Raises ValueError when ``notice_queue`` is not a URL."""
        if notice_queue is not None and not notice_queue.startswith(("https://", "http://")):
            raise ValueError("notice_queue is the URL of an SQS queue")
        self._name, self._installation = name, installation
        self._scopes = Scopes(provider=name, region=region)
        session = _session()

        def client(service: str, config: Config, at: str = region) -> Any:
            return session.client(service, region_name=at, config=config, endpoint_url=endpoint_url)

        self._reads = client("ec2", _READS)
        self._writes = client("ec2", _WRITES)
        pricing = client("pricing", _READS, PRICING_REGION)
        self._prices = Prices(
            self._reads,
            pricing,
            region=region,
            scopes=self._scopes,
            cache_dir=cache_dir or default_cache_dir(),
            cache_name=_cache_name(region, endpoint_url),
            now=now,
        )
        service_quotas = client("service-quotas", _READS)
        self._queue: NoticeQueue | None = None
        sqs = None if notice_queue is None else client("sqs", _READS)
        if notice_queue is not None:
            self._queue = NoticeQueue(sqs, notice_queue, scopes=self._scopes, now=now)
        self._clients = Clients(self._reads, pricing, service_quotas, sqs, notice_queue or "")
        self._quotas = Quotas(
            self._reads,
            service_quotas,
            region=region,
            scopes=self._scopes,
            now=now,
        )
        self._lock = threading.Lock()
        self._facts: dict[str, MachineFacts] = {}
        self._sold: dict[str, frozenset[tuple[str, str]]] = {}
        self._adapters: dict[str, int] = {}

    @property
    def name(self) -> str:
        """What pools call it."""
        return self._name

    @property
    def token_validity_s(self) -> float:
        """EC2 keeps a ClientToken for at least as long as its instance shows, an hour past its
        end, and at least 24 hours."""
        return 86_400.0

    def offers(self, pools: Sequence[BurstPool]) -> Offers:
        """What the pools could get now, priced."""
        types = sorted({each for pool in pools for each in pool.machine_types})
        zones = sorted({zone.name for pool in pools for zone in pool.zones})
        if not types:
            return Offers(())
        self._learn_types(types)
        spot_types = sorted(
            {each for pool in pools if "spot" in pool.markets for each in pool.machine_types}
        )
        listed = self._prices.on_demand(types)
        region = Region(
            cloud="EC2",
            facts=self._facts,
            sold=frozenset().union(*(self._sold.get(each, frozenset()) for each in types)),
            on_demand={(each, zone): price for each, price in listed.items() for zone in zones},
            spot=self._prices.spot(spot_types, zones) if spot_types else {},
            quota_family=quota_family,
            quotas=self._quotas.of(
                {each: int(self._facts[each].cpus) for each in types if each in self._facts}
            ),
        )
        return offers(pools, region)

    def list_machines(self) -> tuple[Machine, ...]:
        """Every instance tagged with this installation, those ended lately included."""
        filters = [{"Name": f"tag:{requests.TAG_INSTALLATION}", "Values": [self._installation]}]
        with translated(self._scopes):
            pages = self._reads.get_paginator("describe_instances").paginate(
                Filters=filters, PaginationConfig={"PageSize": PAGE}
            )
            instances = [
                instance
                for page in pages
                for reservation in page["Reservations"]
                for instance in reservation["Instances"]
            ]
        return tuple(machine(instance) for instance in instances)

    def prepare(self, claim: Claim, pool: BurstPool, boot: BootInfo) -> str:
        """The complete RunInstances request of a claim, as JSON."""
        with self._lock:
            adapters = self._adapters.get(claim.offer.machine_type, 0)
        return requests.prepare(claim, pool, boot, adapters=adapters)

    def launch(self, request: str, join_token: str) -> Machine:
        """Run the instance of a prepared request, its gang's placement group first."""
        parameters = requests.parameters(request, join_token)
        group = requests.placement_group(request)
        if group is not None:
            self._ensure_group(group, self._launch_scopes(parameters))
        with translated(self._launch_scopes(parameters)):
            answer = self._writes.run_instances(**parameters)
        if not answer["Instances"]:
            raise OutcomeUnknown("RunInstances answered without an instance")
        return machine(answer["Instances"][0])

    def terminate(self, machine_id: MachineId) -> None:
        """End an instance; one that is not there any more is ended already."""
        try:
            with translated(self._scopes):
                self._writes.terminate_instances(InstanceIds=[machine_id])
        except Gone:
            return

    def leftovers(self) -> tuple[Leftover, ...]:
        """Volumes of ours that are attached to nothing, and placement groups of gangs."""
        return (
            *leftovers.volumes(self._reads, self._installation, self._scopes),
            *leftovers.groups(self._reads, self._installation, self._scopes),
        )

    def remove(self, leftover: Leftover) -> None:
        """Delete it."""
        with translated(self._scopes):
            if leftover.kind == leftovers.GROUP:
                self._writes.delete_placement_group(GroupName=leftover.id)
            else:
                self._writes.delete_volume(VolumeId=leftover.id)

    def notices(self) -> tuple[Notice, ...]:
        """What the queue of notices brought, if there is one; EC2 tells its machines themselves
        besides, and their agents tell us."""
        return () if self._queue is None else self._queue.notices()

    def recorded(self, notices: Sequence[Notice]) -> None:
        """Let the queue forget them."""
        if self._queue is not None:
            self._queue.recorded(notices)

    def close(self) -> None:
        """Listen to the queue no more."""
        if self._queue is not None:
            self._queue.close()

    def console(self, machine_id: MachineId) -> str:
        """The instance's console output, the last 64 KiB."""
        with translated(self._scopes):
            answer = self._reads.get_console_output(InstanceId=machine_id)
        return str(answer.get("Output") or "")[-CONSOLE_LIMIT:]

    def permissions(self, pools: Sequence[BurstPool]) -> tuple[Permission, ...]:
        """What the account grants these credentials, by dry runs: nothing is launched or ended."""
        try:
            machines = [machine.id for machine in self.list_machines()]
        except AuthFailed:
            machines = []  # what is missing is told below
        return examine(self._clients, pools, self._installation, machines, self._scopes)

    def _ensure_group(self, group: dict[str, Any], scopes: Scopes) -> None:
        """Its name is derived, so that of each of the gang's machines the first makes it."""
        with translated(scopes):
            try:
                self._writes.create_placement_group(**group)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") != GROUP_EXISTS:
                    raise

    def _launch_scopes(self, parameters: dict[str, Any]) -> Scopes:
        tags = {t["Key"]: t["Value"] for t in parameters["TagSpecifications"][0]["Tags"]}
        options = parameters.get("InstanceMarketOptions", {})
        market = "spot" if options.get("MarketType") == "spot" else "on_demand"
        machine_type = parameters["InstanceType"]
        zone = tags[requests.TAG_ZONE]
        return Scopes(
            provider=self._name,
            region=self._scopes.region,
            zone=zone,
            offer=f"{tags[requests.TAG_POOL]}/{zone}/{machine_type}/{market}",
            family=quota_family(machine_type),
            market=market,
        )

    def _learn_types(self, types: Sequence[str]) -> None:
        """What EC2 lists of types we have not met; kept for as long as we run."""
        with self._lock:
            new = [each for each in types if each not in self._sold]
        if not new:
            return
        with translated(self._scopes):
            # a filter, not a list of names: one unknown name must not hide the others
            rows = [
                row
                for page in self._reads.get_paginator("describe_instance_types").paginate(
                    Filters=[{"Name": "instance-type", "Values": new}]
                )
                for row in page["InstanceTypes"]
            ]
            offered = [
                (row["InstanceType"], row["Location"])
                for page in self._reads.get_paginator("describe_instance_type_offerings").paginate(
                    LocationType="availability-zone",
                    Filters=[{"Name": "instance-type", "Values": new}],
                )
                for row in page["InstanceTypeOfferings"]
            ]
        with self._lock:
            self._facts |= machine_facts.facts(rows)
            self._adapters |= machine_facts.fabric_adapters(rows)
            for each in new:
                self._sold[each] = frozenset(pair for pair in offered if pair[0] == each)


def _cache_name(region: str, endpoint_url: str | None) -> str:
    """A sandbox has prices of its own."""
    name = f"aws-prices-{region}"
    if endpoint_url is None:
        return name
    return f"{name}-{hashlib.sha256(endpoint_url.encode()).hexdigest()[:12]}"
