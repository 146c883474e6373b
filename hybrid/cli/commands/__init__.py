"""One module per command, each with a Typer application named `app`."""
