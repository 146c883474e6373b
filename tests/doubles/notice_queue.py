"""The queue and the rule that the Terraform module makes, made in a sandbox cloud."""

from __future__ import annotations

import json

from providers.aws.notices import INTERRUPTION, REBALANCE
from providers.sandbox.cloud import SandboxCloud


def notice_queue(ec2: SandboxCloud) -> str:
    """The URL of a queue that hears what EC2 says of spot machines."""
    sqs, events = ec2.client("sqs"), ec2.client("events")
    url: str = sqs.create_queue(QueueName="hybrid-notices")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]
    pattern = {"source": ["aws.ec2"], "detail-type": [INTERRUPTION, REBALANCE]}
    events.put_rule(Name="hybrid-notices", EventPattern=json.dumps(pattern))
    events.put_targets(Rule="hybrid-notices", Targets=[{"Id": "queue", "Arn": arn}])
    return url


def lying_in(ec2: SandboxCloud, url: str) -> int:
    """How many messages the queue holds, received ones included."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    told = ec2.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)
    return sum(int(told["Attributes"][name]) for name in names)
