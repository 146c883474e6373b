"""What the credentials are allowed to do, by dry run.

EC2 answers a call with ``DryRun`` by ``DryRunOperation`` when it would have been allowed and by
``UnauthorizedOperation`` when not, and does nothing either way ("DryRun", EC2 API reference).
Prices and quotas know no dry run: asking for one row is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from botocore.exceptions import ClientError

from hybrid.domain.ids import MachineId
from hybrid.domain.pool_spec import BurstPool
from hybrid.ports.capacity import Permission
from providers.aws.errors import CODES, Kind, Scopes, translated
from providers.aws.requests import TAG_INSTALLATION, group_parameters, machine_parameters

ALLOWED: Final = frozenset({"DryRunOperation", "ReceiptHandleIsInvalid"})
DENIED: Final = frozenset({"UnauthorizedOperation", "AccessDeniedException", "AccessDenied"})
NO_RECEIPT: Final = "none"
"""SQS refuses it as ``ReceiptHandleIsInvalid``, to those who may delete."""
NO_VOLUME: Final = "vol-00000000000000000"
NO_GROUP: Final = "hybrid-doctor"
NO_MACHINE: Final = MachineId("i-00000000000000000")


@dataclass(frozen=True, slots=True)
class Clients:
    """boto3's clients of EC2, Pricing and Service Quotas, and of SQS where there is a queue."""

    ec2: Any
    pricing: Any
    quotas: Any
    sqs: Any = None
    queue: str = ""


def examine(
    clients: Clients,
    pools: Sequence[BurstPool],
    installation: str,
    machines: Sequence[MachineId],
    scopes: Scopes,
) -> tuple[Permission, ...]:
    """Every permission of docs/providers/aws.md.

    Launching is tried with each pool's template, ending with a machine of ours where there is one:
    without them these two cannot be told. What is granted for tagged things alone is refused for
    one that is not there, which says nothing. Raises PortError when AWS cannot be asked at all.
    """
    ec2 = clients.ec2

    def dry(name: str, what_for: str, call: Callable[..., Any], **asked: Any) -> Permission:
        return _tried(f"ec2:{name}", what_for, lambda: call(DryRun=True, **asked), scopes)

    found = [
        dry("DescribeInstances", "see which machines there are", ec2.describe_instances),
        dry("DescribeInstanceTypes", "see what types have", ec2.describe_instance_types),
        dry(
            "DescribeInstanceTypeOfferings",
            "see where types are sold",
            ec2.describe_instance_type_offerings,
        ),
        dry("DescribeSpotPriceHistory", "price spot", ec2.describe_spot_price_history),
        _tried(
            "pricing:GetProducts",
            "price on-demand",
            lambda: clients.pricing.get_products(ServiceCode="AmazonEC2", MaxResults=1),
            scopes,
        ),
        _tried(
            "servicequotas:ListServiceQuotas",
            "read vCPU quotas",
            lambda: clients.quotas.list_service_quotas(ServiceCode="ec2", MaxResults=1),
            scopes,
        ),
    ]
    launching = [
        dry(
            "RunInstances",
            f"launch machines of pool {pool.name}, tagged, with their role",
            ec2.run_instances,
            **_launch(pool, installation),
        )
        for pool in pools
    ]
    found += launching or [
        Permission(
            name="ec2:RunInstances, ec2:CreateTags, iam:PassRole",
            what_for="launch machines",
            granted=None,
            words="no pool to try it with: name one with --pool",
        )
    ]
    found += _ending(ec2, machines, scopes)
    for pool in pools:
        if pool.gangs.placement_group:
            asked = group_parameters(pool.name, installation, "doctor")
            what_for = f"place the machines of a gang of pool {pool.name} together"
            found.append(dry("CreatePlacementGroup", what_for, ec2.create_placement_group, **asked))
    if clients.sqs is not None:
        found += _listening(clients, scopes)
    return tuple(found)


def _ending(ec2: Any, machines: Sequence[MachineId], scopes: Scopes) -> list[Permission]:
    """Ending machines and finding and removing what they leave behind."""

    def dry(
        name: str, what_for: str, call: Callable[..., Any], *, there: bool = True, **asked: Any
    ) -> Permission:
        tried = _tried(f"ec2:{name}", what_for, lambda: call(DryRun=True, **asked), scopes)
        if there or tried.granted is not False:
            return tried
        words = f"{tried.words}, with nothing of ours there to try it with"
        return replace(tried, granted=None, words=words)

    ours, there = (machines[0], True) if machines else (NO_MACHINE, False)
    return [
        dry("TerminateInstances", "end them", ec2.terminate_instances, there=there,
            InstanceIds=[ours]),
        dry("GetConsoleOutput", "keep the console of one that never joined",
            ec2.get_console_output, there=there, InstanceId=ours),
        dry("DescribeVolumes", "find disks that machines left behind", ec2.describe_volumes),
        dry("DeleteVolume", "delete those", ec2.delete_volume, there=False, VolumeId=NO_VOLUME),
        dry("DescribePlacementGroups", "find groups of gangs that are over",
            ec2.describe_placement_groups),
        dry("DeletePlacementGroup", "remove those", ec2.delete_placement_group, there=False,
            GroupName=NO_GROUP),
    ]  # fmt: skip


def _listening(clients: Clients, scopes: Scopes) -> list[Permission]:
    """SQS knows no dry run: a message is looked at and stays visible, and what is deleted is named
    by a receipt that nobody was given."""
    sqs, queue = clients.sqs, clients.queue
    return [
        _tried(
            "sqs:ReceiveMessage",
            "hear of interruptions from the queue of notices",
            lambda: sqs.receive_message(QueueUrl=queue, VisibilityTimeout=0),
            scopes,
        ),
        _tried(
            "sqs:DeleteMessage",
            "empty the queue of notices",
            lambda: sqs.delete_message(QueueUrl=queue, ReceiptHandle=NO_RECEIPT),
            scopes,
        ),
    ]


def _launch(pool: BurstPool, installation: str) -> dict[str, Any]:
    """A launch as the provider asks for it, without user data and market."""
    tags = [{"Key": TAG_INSTALLATION, "Value": installation}]
    return machine_parameters(pool, pool.zones[0], pool.machine_types[0], tags)


def _tried(name: str, what_for: str, call: Callable[[], Any], scopes: Scopes) -> Permission:
    try:
        call()
    except ClientError as error:
        said = error.response.get("Error", {})
        code, words = str(said.get("Code", "")), str(said.get("Message", ""))
        if code in ALLOWED:
            return Permission(name=name, what_for=what_for, granted=True)
        if code in DENIED:
            return Permission(name=name, what_for=what_for, granted=False, words=code)
        if CODES.get(code) is Kind.AUTH:
            # not this permission but the credentials themselves
            with translated(scopes):
                raise
        return Permission(
            name=name, what_for=what_for, granted=None, words=f"{code}: {words}".strip(": ")
        )
    return Permission(name=name, what_for=what_for, granted=True)
