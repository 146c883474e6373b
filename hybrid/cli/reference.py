"""The reference page of exit codes: ``python -m hybrid.cli.reference`` writes it."""

from __future__ import annotations

from pathlib import Path

from hybrid.cli.exits import Exit

PAGE = Path("docs/reference/exit-codes.md")

_HEAD = """\
# Exit codes

<!-- Made by `python -m hybrid.cli.reference`: change hybrid/cli/exits.py, not this page. -->

Every command of `hybrid` ends with one of these. What went wrong is said in one line on standard
error: what, where, and what to do.

| code | means |
|---|---|
"""

_TAIL = """
## Commands that end with a job

`hybrid run` ends with the job's own exit code: 0 if it succeeded, 128 + n if signal n ended it, and
1 if it failed without a code of its own or was cancelled. Its codes may be any of those above; what
happened is on standard error. Interrupted with Ctrl-C and detached from, it ends with 130, and the
job goes on.

`hybrid logs --follow` ends with 0 if the job succeeded, else with 1.

`hybrid doctor` ends with 1 if one of its checks failed; a note is no failure.
"""


def page() -> str:
    """The page, as it should be."""
    rows = "".join(f"| {each.value} | {each.meaning} |\n" for each in Exit)
    return _HEAD + rows + _TAIL


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
