"""A typed client of the REST API."""

from hybrid.client.client import HybridClient
from hybrid.client.errors import ClientError, Fault, Problem, Unreachable, WrongBytes
from hybrid.client.following import LogFollower, events, logs

__all__ = [
    "ClientError",
    "Fault",
    "HybridClient",
    "LogFollower",
    "Problem",
    "Unreachable",
    "WrongBytes",
    "events",
    "logs",
]
