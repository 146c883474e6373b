"""Amazon EC2 as capacity.

============================  ==================================================================
:mod:`.provider`              the CapacityProvider: lists, launches, ends
:mod:`.errors`                EC2's codes → typed errors, in one table
:mod:`.requests`              a claim → the complete RunInstances request, as stored JSON
:mod:`.machines`              what DescribeInstances says → Machine
:mod:`.leftovers`             volumes that did not go with their instances
:mod:`.prices`                list prices and spot prices
:mod:`.quotas`                which quota a machine type counts against
:mod:`.notices`               what EC2 says of machines through a queue
:mod:`.machine_facts`         a machine type's GPUs, links, processors and memory
============================  ==================================================================

boto3 is imported when a provider is made, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from providers.aws.provider import AwsProvider


def create(
    *,
    name: str,
    region: str,
    installation: str,
    endpoint_url: str | None = None,
    notice_queue: str | None = None,
) -> AwsProvider:
    """The provider of one account and region, by boto3's own chain of credentials.

    ``notice_queue`` is the URL of an SQS queue that EventBridge puts EC2's notices into.
    """
    from providers.aws.provider import AwsProvider

    return AwsProvider(
        name=name,
        region=region,
        installation=installation,
        endpoint_url=endpoint_url,
        notice_queue=notice_queue,
    )
