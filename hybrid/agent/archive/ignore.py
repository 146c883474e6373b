"""Which files travel: what .gitignore and .hybridignore do not name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pathspec

IGNORE_FILES = (".gitignore", ".hybridignore")
#: Never part of a job, with or without an ignore file.
_ALWAYS = (".git", "__pycache__/")
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Rules:
    prefix: str
    spec: pathspec.GitIgnoreSpec


class IgnoreRules:
    """The rules that hold in a folder: its own and those of the folders above, as git reads them;
    in one folder .hybridignore comes after .gitignore and may take back what that excludes."""

    def __init__(self, rules: tuple[_Rules, ...] = ()) -> None:
        self._rules = rules

    @classmethod
    def top(cls) -> IgnoreRules:
        """The rules that hold everywhere."""
        return cls((_Rules("", pathspec.GitIgnoreSpec.from_lines(_ALWAYS)),))

    def within(self, root: Path, folder: str) -> IgnoreRules:
        """The rules inside ``folder`` (relative to ``root``, empty for the root itself)."""
        lines: list[str] = []
        for name in IGNORE_FILES:
            path = root / folder / name
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    lines += file.read(_MAX_BYTES).decode(errors="replace").splitlines()
        if not lines:
            return self
        prefix = f"{folder}/" if folder else ""
        return IgnoreRules((*self._rules, _Rules(prefix, pathspec.GitIgnoreSpec.from_lines(lines))))

    def excludes(self, path: str, *, is_directory: bool) -> bool:
        """Whether ``path`` stays behind: the last rule that speaks of it decides."""
        excluded = False
        for rules in self._rules:
            name = path[len(rules.prefix) :] + ("/" if is_directory else "")
            verdict = rules.spec.check_file(name).include
            if verdict is not None:
                excluded = verdict
        return excluded
