"""``hybrid ledger``: show, verify, compare, import."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from hybrid.cli.exits import CliError, Exit
from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app(no_args_is_help=True)

FilesArgument = Annotated[
    list[Path], typer.Argument(metavar="FILE…", help="CSV files, gzipped or not, of one bill.")
]
FormatOption = Annotated[
    str, typer.Option("--format", help="aws-cur (Cost and Usage Report 2.0) or gcp-export.")
]
ProviderOption = Annotated[
    str, typer.Option("--provider", help="Whose bill it is, by its name in the server's settings.")
]
_GZIP = b"\x1f\x8b"


@app.callback()
def ledger() -> None:
    """Look at the ledger, verify it, and compare it with what clouds bill."""


@app.command()
@takes(session=session_of)
def show(
    session: Session,
    claim: Annotated[str, typer.Argument(metavar="CLAIM", help="A claim's id.")],
) -> None:
    """Show what was held, charged and corrected for a cloud machine, line by line."""
    from hybrid.cli import money_views

    found = session.client.claim_ledger(claim)
    session.show(found, lambda: money_views.claim_ledger(found))


@app.command()
@takes(session=session_of)
def verify(session: Session) -> None:
    """Recompute every balance from the whole ledger and compare it with what is kept."""
    from hybrid.cli import money_views

    found = session.client.verify_ledger()
    session.show(found, lambda: money_views.ledger_check(found))
    if not found.ok:
        raise typer.Exit(Exit.REFUSED)


@app.command()
@takes(session=session_of)
def compare(
    session: Session, files: FilesArgument, format_: FormatOption, provider: ProviderOption
) -> None:
    """See what a bill says of each claim against what it was charged. Nothing is kept."""
    _against(session, files, format_, provider, settle=False)


@app.command(name="import")
@takes(session=session_of)
def import_(
    session: Session, files: FilesArgument, format_: FormatOption, provider: ProviderOption
) -> None:
    """Settle the differences between a bill and the ledger. The same bill again adds nothing."""
    _against(session, files, format_, provider, settle=True)


def _against(
    session: Session, files: list[Path], format_: str, provider: str, *, settle: bool
) -> None:
    from hybrid.cli import money_views
    from hybrid.cli.billing import batches, together
    from providers.bills import READERS, BillError

    read = READERS.get(format_)
    if read is None:
        raise CliError(Exit.USAGE, f"there is no format {format_}; there are {', '.join(READERS)}")
    bills = []
    for file in files:
        try:
            with _lines(file) as lines:
                bills.append(read(lines))
        except BillError as problem:
            raise CliError(Exit.REFUSED, f"{file}: {problem}") from problem
        except UnicodeDecodeError as problem:
            raise CliError(Exit.REFUSED, f"{file}: not text in UTF-8") from problem
        except (OSError, EOFError) as problem:
            raise CliError(
                Exit.USAGE, f"{file}: {getattr(problem, 'strerror', '') or problem}"
            ) from problem
    answers = [
        session.client.compare_bill(batch, settle=settle) for batch in batches(bills, provider)
    ]
    found = together(answers)
    session.show(found, lambda: money_views.bill(found, settled=settle))


@contextmanager
def _lines(file: Path) -> Iterator[io.TextIOBase]:
    with file.open("rb") as raw:
        packed = raw.peek(2)[:2] == _GZIP
        data = gzip.GzipFile(fileobj=raw) if packed else raw
        yield io.TextIOWrapper(data, encoding="utf-8-sig", newline="")
