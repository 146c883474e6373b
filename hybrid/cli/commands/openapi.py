"""``hybrid openapi``: the description of the REST API."""

from __future__ import annotations

from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Connection, connection_of

app = new_app()


@app.command()
@takes(connection=connection_of)
def openapi(connection: Connection) -> None:
    """Print the OpenAPI document of the server, as JSON."""
    from hybrid.cli.tables import write_json

    write_json(connection.client.openapi())
