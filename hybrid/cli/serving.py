"""What ``up`` and ``serve`` have in common: the server's settings, and what is said once it
answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hybrid.cli.session import StateDirOption

if TYPE_CHECKING:
    from api.server import Ready


def server_settings(
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on. Default: 127.0.0.1", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port; 0 for any that is free. Default: 8440", show_default=False),
    ] = None,
    state_dir: StateDirOption = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings in YAML.")
    ] = None,
    advertise_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where nodes and users reach the server.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate chain, to speak TLS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key.")] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy in front speaks TLS.")
    ] = False,
) -> Any:
    """Options of a server, as settings; what is not given comes from the environment and the
    file. Raises StartupError."""
    from hybrid.config import load_settings

    return load_settings(
        host=host,
        port=port,
        state_dir=state_dir,
        config_file=config,
        advertise_url=advertise_url,
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy or None,
    )


def announce(ready: Ready, state_dir: Path, *, with_token: bool = True) -> None:
    """Say where the server is and, the only time it can be said, its first admin token."""
    lines = [f"hybrid serves at {ready.url}"]
    if ready.admin_token is not None and with_token:
        lines += [
            f"admin token (shown once): {ready.admin_token}",
            f"the command line on this machine finds it in {state_dir / 'admin.token'}",
        ]
    print("\n".join(lines), flush=True)


def remark(text: str) -> None:
    """Say something that is no result."""
    print(text, file=sys.stderr, flush=True)
