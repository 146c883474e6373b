"""A whole sandbox cloud inside this process: for tests, and for the sandbox process itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from providers.sandbox.cloud_core import Clock, CloudCore
from providers.sandbox.config import (
    CapacityRule,
    FaultRule,
    Market,
    QuotaRule,
    SandboxConfig,
    SpotPrice,
)
from providers.sandbox.control_api import ControlApi
from providers.sandbox.http_server import HttpServer
from providers.sandbox.machines import AGENT_UNIT, MachinePark
from providers.sandbox.moto_ec2 import new_account_id
from providers.sandbox.process import client_environment
from providers.sandbox.server import AwsHandler, Doors
from providers.sandbox.views import Bill, InstanceView, SandboxState

CONNECT_S = 5
READ_S = 30


class SandboxCloud:
    """A cloud on a loopback port, served by threads of this process.

    With ``machines`` off (in the config) instances are rows only; else ``state_dir`` is where the
    machines live. ``clock`` gives seconds since the Unix epoch. Use as a context manager::

        with SandboxCloud(SandboxConfig(machines=False)) as cloud:
            cloud.exhaust(zone="us-east-1a", machine_type="g5.xlarge")
            ec2 = cloud.client("ec2")
    """

    def __init__(
        self,
        config: SandboxConfig | None = None,
        *,
        state_dir: Path | None = None,
        port: int = 0,
        clock: Clock = time.time,
    ) -> None:
        self.config = config or SandboxConfig(machines=False)
        if self.config.machines and state_dir is None:
            raise ValueError("a cloud with machines needs a state directory")
        self._clients: list[Any] = []
        self._http = HttpServer(port, AwsHandler)
        try:
            self._park = (
                MachinePark(state_dir / "machines", self.config, self._http.url)
                if self.config.machines and state_dir is not None
                else None
            )
            self._core = CloudCore(self.config, new_account_id(), self._park, clock)
            self.ended = threading.Event()
            self._control = ControlApi(self._core, self._park, self.ended.set)
        except BaseException:
            self._http.close()
            raise

    def __enter__(self) -> SandboxCloud:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Begin to serve and to let time pass."""
        self._core.start()
        self._http.serve(Doors(self._core, self._control))

    def close(self) -> None:
        """Stop answering, end every machine and forget everything."""
        self._http.close()
        self._core.close()
        for client in self._clients:
            client.close()

    # -- where it is ------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return self._http.url

    @property
    def port(self) -> int:
        return self._http.port

    @property
    def region(self) -> str:
        return self.config.region

    @property
    def account_id(self) -> str:
        return self._core.account_id

    @property
    def started_at(self) -> float:
        return self._core.started_at

    @property
    def subnets(self) -> dict[str, str]:
        """Zone → its subnet."""
        return dict(self._core.subnets)

    @property
    def image_id(self) -> str:
        """The registered image that machines boot."""
        return self.config.image_id

    def environment(self) -> dict[str, str]:
        """The variables that point any AWS SDK here."""
        return client_environment(self.url, self.region)

    def client(self, service: str, *, attempts: int = 1) -> Any:
        """A boto3 client of this cloud, closed with it. ``attempts`` counts the SDK's own tries."""
        import boto3
        from botocore.config import Config

        client = boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.url,
            region_name=self.region,
            aws_access_key_id="sandbox",
            aws_secret_access_key="sandbox",
            config=Config(
                connect_timeout=CONNECT_S,
                read_timeout=READ_S,
                retries={"mode": "standard", "total_max_attempts": attempts},
                s3={"addressing_style": "path"},
                proxies={},
            ),
        )
        self._clients.append(client)
        return client

    # -- what it shows ----------------------------------------------------------------------

    def now(self) -> float:
        """The cloud's clock."""
        return self._core.now()

    def instances(self) -> tuple[InstanceView, ...]:
        """Every instance that ever was, oldest first."""
        return self._control.overview.instances()

    def instance(self, instance_id: str) -> InstanceView:
        """One instance. Raises ``KeyError``."""
        for view in self.instances():
            if view.instance_id == instance_id:
                return view
        raise KeyError(instance_id)

    def state(self) -> SandboxState:
        return self._control.overview.state()

    def bill(self) -> Bill:
        return self._control.overview.bill()

    def console(self, instance_id: str) -> str:
        return self._control.console(instance_id).decode("utf-8", "replace")

    # -- what can be done to it -------------------------------------------------------------

    def fault(self, action: str, **rule: Any) -> str:
        """Arm a fault; the fields are those of ``FaultRule``. Returns its id."""
        return self._core.faults.arm(FaultRule(action=action, **rule))

    def clear_faults(self, fault_id: str | None = None) -> int:
        return self._core.faults.disarm(fault_id)

    def set_capacity(
        self,
        machines: int,
        *,
        zone: str | None = None,
        machine_type: str | None = None,
        market: Market | None = None,
    ) -> None:
        """At most ``machines`` of this scope run at once; None as a scope matches anything."""
        rule = CapacityRule(zone=zone, machine_type=machine_type, market=market, machines=machines)
        with self._core.lock:
            self._core.capacity.set(rule)

    def exhaust(
        self,
        *,
        zone: str | None = None,
        machine_type: str | None = None,
        market: Market | None = None,
    ) -> None:
        """Nothing more of this scope can be had; what runs goes on."""
        self.set_capacity(0, zone=zone, machine_type=machine_type, market=market)

    def restore(
        self,
        *,
        zone: str | None = None,
        machine_type: str | None = None,
        market: Market | None = None,
    ) -> None:
        """Forget the capacity rule of exactly this scope."""
        with self._core.lock:
            self._core.capacity.clear(zone, machine_type, market)

    def set_quota(self, group: str, market: Market, vcpus: int) -> None:
        """Limit the vCPUs of a quota group (``G and VT``, ``P``, …) in a market."""
        with self._core.lock:
            self._core.quotas.set(QuotaRule(group=group, market=market, vcpus=vcpus))

    def script_spot_prices(self, prices: Sequence[SpotPrice]) -> None:
        self._core.script_spot_prices(prices)

    def interrupt(self, instance_id: str, notice_s: float | None = None) -> float:
        """Take a spot machine back; returns when it ends. Raises ``WrongState``."""
        return self._core.interrupt(instance_id, notice_s)

    def recommend_rebalance(self, instance_id: str) -> float:
        return self._core.recommend_rebalance(instance_id)

    def terminate(self, instance_id: str) -> None:
        """End an instance by hand, as an operator in the console would."""
        self._core.terminate([instance_id])

    def power_off(self, instance_id: str) -> None:
        """What a power-off from inside the machine does."""
        self._core.power_off(instance_id)

    def kill_agent(self, instance_id: str, unit: str = AGENT_UNIT) -> int:
        """SIGKILL a service's main process; returns its pid."""
        return self._machines().kill_unit(instance_id, unit)

    def freeze(self, instance_id: str) -> int:
        return self._machines().freeze(instance_id)

    def thaw(self, instance_id: str) -> int:
        return self._machines().thaw(instance_id)

    def _machines(self) -> MachinePark:
        if self._park is None:
            raise ValueError("this cloud has instances without machines")
        return self._park
