"""Bills that clouds export as files, read into lines that the ledger can be compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from hybrid.domain.bill import Bill
from providers.bills.aws_cur import read_cur
from providers.bills.gcp_export import read_export
from providers.bills.table import BillError

READERS: Mapping[str, Callable[[Iterable[str]], Bill]] = MappingProxyType(
    {"aws-cur": read_cur, "gcp-export": read_export}
)
"""By the name of a format: a function from the lines of a CSV file to a bill; raises BillError."""

__all__ = ["READERS", "BillError"]
