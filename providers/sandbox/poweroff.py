"""Switch a sandbox machine off from inside: ``python -m providers.sandbox.poweroff``.

Asks the sandbox at ``HYBRID_POWEROFF_URL``, which stops or terminates the instance as its shutdown
behaviour says. It also stands in for ``systemctl``, ``shutdown`` and their kin on the machine's
``PATH``: anything that does not switch the machine off is refused, and never reaches the host's.
"""

from __future__ import annotations

import http.client
import os
import sys
from urllib.parse import urlsplit

TIMEOUT_S = 10.0
SWITCHES_OFF = frozenset({"poweroff", "halt", "reboot", "shutdown"})


def main(argv: list[str]) -> int:
    """Exit code 0 when the cloud took the order; 1 when it could not be asked; 2 when refused."""
    name = argv[0] if argv else "poweroff"
    verb = next((word for word in argv[1:] if not word.startswith("-")), "")
    if name == "systemctl" and verb not in SWITCHES_OFF:
        sys.stderr.write(f"systemctl {verb}: a sandbox machine only knows poweroff\n")
        return 2
    url = os.environ.get("HYBRID_POWEROFF_URL", "")
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        sys.stderr.write("HYBRID_POWEROFF_URL is not set: not on a sandbox machine\n")
        return 1
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("POST", parts.path, body=b"", headers={"Content-Length": "0"})
        status = connection.getresponse().status
    except OSError as error:
        sys.stderr.write(f"the sandbox does not answer: {error}\n")
        return 1
    finally:
        connection.close()
    return 0 if status < 300 else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
