"""What is wrong with the files a benchmark is given, in one line that names the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class InputError(ValueError):
    """A file cannot be used; the message says which, and what is wrong with it."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """While ``path`` (a file, or a folder of them) is read, what its content lets fail becomes an
    :class:`InputError` that names it."""
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror or error}") from error
    except KeyError as error:
        raise InputError(f"{path}: {error} is missing") from error
    except (ValueError, TypeError, AttributeError) as error:
        said = str(error)
        named = said.startswith(str(path))
        raise InputError(said if named else f"{path}: {said}") from error


def read_json(path: Path) -> Any:
    """The document of a file. Raises InputError for a file that is none."""
    with reading(path):
        return json.loads(path.read_text(encoding="utf-8-sig"))
