"""The instance metadata service (IMDSv2) of every machine, below ``/imds/<instance id>``.

A machine finds its own through ``AWS_EC2_METADATA_SERVICE_ENDPOINT``, as the AWS SDKs do. Paths
that have nothing to say answer 404: that is how a machine learns that no notice is out.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from providers.sandbox.cloud_core import CloudCore
from providers.sandbox.instances import ENDED, Instance
from providers.sandbox.wsgi import Environ, Reply, text_reply

ROLE = "sandbox-node"
TOKEN_HEADER = "HTTP_X_AWS_EC2_METADATA_TOKEN"
TTL_HEADER = "HTTP_X_AWS_EC2_METADATA_TOKEN_TTL_SECONDS"
MAX_TTL_S = 21_600
CREDENTIALS_S = 3600


class MetadataService:
    """Answers ``/imds/<instance id>/latest/...`` for every instance that has not ended."""

    def __init__(self, core: CloudCore) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._sessions: dict[str, tuple[str, float]] = {}
        self._paths: dict[str, Callable[[Instance], str | None]] = {
            "meta-data/instance-id": lambda each: each.instance_id,
            "meta-data/instance-type": lambda each: each.machine_type,
            "meta-data/instance-life-cycle": _life_cycle,
            "meta-data/ami-id": lambda each: str(each.moto.image_id),
            "meta-data/local-ipv4": lambda _: "127.0.0.1",
            "meta-data/local-hostname": lambda each: each.instance_id,
            "meta-data/placement/availability-zone": lambda each: each.zone,
            "meta-data/placement/region": lambda _: core.config.region,
            "meta-data/spot/instance-action": _instance_action,
            "meta-data/spot/termination-time": _termination_time,
            "meta-data/events/recommendations/rebalance": _rebalance,
            "meta-data/iam/security-credentials": lambda _: ROLE,
            f"meta-data/iam/security-credentials/{ROLE}": self._credentials,
            "dynamic/instance-identity/document": self._identity,
        }

    def handle(self, environ: Environ) -> Reply:
        """Answer one metadata call."""
        _, _, rest = environ["PATH_INFO"].partition("/imds/")
        instance_id, _, path = rest.partition("/latest/")
        with self._core.lock:
            instance = self._core.instances.get(instance_id)
            if instance is None or instance.state in ENDED:
                return text_reply("no such machine", 404)
            method = environ["REQUEST_METHOD"]
            if method == "PUT" and path == "api/token":
                return self._open_session(instance_id, environ.get(TTL_HEADER, ""))
            if method != "GET":
                return text_reply("method not allowed", 405)
            if not self._is_open(instance_id, environ.get(TOKEN_HEADER, "")):
                return text_reply("a session token is needed", 401)
            if path == "user-data":
                return Reply(
                    200 if instance.user_data else 404,
                    "application/octet-stream",
                    instance.user_data,
                )
            tell = self._paths.get(path.rstrip("/"))
            told = None if tell is None else tell(instance)
        return text_reply("not found", 404) if told is None else text_reply(told)

    def _open_session(self, instance_id: str, ttl: str) -> Reply:
        if not ttl.isdigit() or not 1 <= int(ttl) <= MAX_TTL_S:
            return text_reply("the token's lifetime is 1 to 21600 seconds", 400)
        token = secrets.token_urlsafe(24)
        now = time.monotonic()
        with self._lock:
            self._sessions = {
                known: (owner, until)
                for known, (owner, until) in self._sessions.items()
                if until > now
            }
            self._sessions[token] = (instance_id, now + int(ttl))
        return text_reply(token)

    def _is_open(self, instance_id: str, token: str) -> bool:
        with self._lock:
            owner, until = self._sessions.get(token, ("", 0.0))
        return owner == instance_id and until > time.monotonic()

    def _credentials(self, instance: Instance) -> str:
        now = self._core.now()
        return json.dumps(
            {
                "Code": "Success",
                "LastUpdated": _instant(now),
                "Type": "AWS-HMAC",
                "AccessKeyId": "ASIASANDBOX" + instance.instance_id[2:11].upper(),
                "SecretAccessKey": "sandbox-" + instance.instance_id,
                "Token": "sandbox-" + instance.instance_id,
                "Expiration": _instant(now + CREDENTIALS_S),
            }
        )

    def _identity(self, instance: Instance) -> str:
        return json.dumps(
            {
                "accountId": self._core.account_id,
                "architecture": "x86_64",
                "availabilityZone": instance.zone,
                "imageId": str(instance.moto.image_id),
                "instanceId": instance.instance_id,
                "instanceType": instance.machine_type,
                "pendingTime": _instant(instance.launched_at),
                "privateIp": "127.0.0.1",
                "region": self._core.config.region,
                "version": "2017-09-30",
            }
        )


def _life_cycle(instance: Instance) -> str:
    return "spot" if instance.market == "spot" else "on-demand"


def _instance_action(instance: Instance) -> str | None:
    if instance.interruption_at is None:
        return None
    return json.dumps({"action": "terminate", "time": _instant(instance.interruption_at)})


def _termination_time(instance: Instance) -> str | None:
    return None if instance.interruption_at is None else _instant(instance.interruption_at)


def _rebalance(instance: Instance) -> str | None:
    if instance.rebalance_at is None:
        return None
    return json.dumps({"noticeTime": _instant(instance.rebalance_at)})


def _instant(at: float) -> str:
    # whole seconds, as EC2 writes them; a notice never claims more time than there is
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
