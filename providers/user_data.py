"""What a machine is told at boot, as cloud-init reads it.

The lease timer is written and started before anything that can fail: a machine whose agent never
comes up, or whose control plane is gone for good, still ends when nobody has paid for it any
longer. The timer is a shell loop over two files and needs nothing that is not in every image.
"""

from __future__ import annotations

import json
from typing import Final

import yaml

from hybrid.domain.claim import Claim
from hybrid.domain.pool_spec import BurstPool
from hybrid.ports.capacity import BootInfo

JOIN_TOKEN: Final = "@HYBRID_JOIN_TOKEN@"
"""Stands for the join token in a stored request; the launch call puts the token there."""

AGENT_CONFIG: Final = "/etc/hybrid/agent.json"

_WATCHDOG: Final = """\
#!/bin/sh
# Ends this machine once its lease is over. $1: seconds it is paid for from its start.
# The agent writes a later end (seconds of uptime) to the lease file each time the lease is renewed.
root="${HYBRID_ROOT:-}"
lease="$root/var/lib/hybrid/lease"
boot="$root/var/lib/hybrid/lease.boot"
mkdir -p "$root/var/lib/hybrid"
read -r up _ </proc/uptime
read -r this_boot </proc/sys/kernel/random/boot_id
# uptime counts from the boot: what another boot wrote means nothing in this one
if [ ! -s "$lease" ] || [ "$(cat "$boot" 2>/dev/null)" != "$this_boot" ]; then
  echo "$((${up%%.*} + $1))" >"$lease.new" && mv "$lease.new" "$lease"
  echo "$this_boot" >"$boot"
fi
until_s=$((${up%%.*} + $1))
while :; do
  read -r said <"$lease"
  case "$said" in
    '' | *[!0-9]*) ;; # unreadable: the last end that could be read holds
    *) until_s=$said ;;
  esac
  read -r up _ </proc/uptime
  if [ "${up%%.*}" -ge "$until_s" ]; then
    ${HYBRID_POWEROFF_COMMAND:-systemctl poweroff}
  fi
  sleep 2
done
"""

_LEASE_UNIT: Final = """\
[Unit]
Description=End this machine when its lease is over
StartLimitIntervalSec=0

[Service]
ExecStart=/bin/sh /opt/hybrid/lease-watchdog.sh {lease_s}
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
"""

_AGENT_UNIT: Final = """\
[Unit]
Description=hybrid node agent
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=/opt/hybrid/bin/hybrid agent --config /etc/hybrid/agent.json
Restart=always
RestartSec=1
KillMode=process

[Install]
WantedBy=multi-user.target
"""


def render(claim: Claim, pool: BurstPool, boot: BootInfo, *, cloud: str) -> str:
    """The cloud-config of a claim's machine, with :data:`JOIN_TOKEN` where the token belongs.

    ``cloud`` is whose metadata service the agent listens to for notices: ``aws`` or ``gcp``.
    """
    agent = {
        "server": boot.server_url,
        "join_token": JOIN_TOKEN,
        "pool": pool.name,
        "claim_id": claim.id,
        "machine": "burst",
        "cloud": cloud,
        "end_tail": min(15.0, pool.lease.end_tail),
    }
    if boot.server_ca_pem:
        agent["server_ca_pem"] = boot.server_ca_pem
    # what is paid for counts from the request; the machine counts from its start, which is later
    # by at most the launch slack that is held besides
    lease_s = int(pool.lease.duration)
    document = {
        "write_files": [
            _file("/opt/hybrid/lease-watchdog.sh", _WATCHDOG, "0755"),
            _file("/etc/systemd/system/hybrid-lease.service", _LEASE_UNIT.format(lease_s=lease_s)),
            _file("/etc/systemd/system/hybrid-agent.service", _AGENT_UNIT),
            _file(AGENT_CONFIG, json.dumps(agent, indent=1, sort_keys=True), "0600"),
        ],
        "runcmd": [
            ["systemctl", "enable", "--now", "hybrid-lease.service"],
            *_install(pool),
            ["systemctl", "enable", "--now", "hybrid-agent.service"],
        ],
    }
    return "#cloud-config\n" + yaml.safe_dump(document, sort_keys=False, width=1000)


def _install(pool: BurstPool) -> list[list[str]]:
    if pool.boot.install is None:
        return []
    return [
        ["python3", "-m", "venv", "/opt/hybrid"],
        ["/opt/hybrid/bin/pip", "install", "--quiet", pool.boot.install],
    ]


def _file(path: str, content: str, permissions: str = "0644") -> dict[str, str]:
    return {"path": path, "permissions": permissions, "content": content}
