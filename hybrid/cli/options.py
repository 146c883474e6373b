"""Options that several commands have, written once.

``@takes(session=session_of)`` gives a command the parameters of ``session_of`` as options and what
that returns as its argument ``session``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def takes(**parts: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator for commands: each named part is made from options of its own, and closed after
    the command if it can be."""
    options = {
        part: [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for each in inspect.signature(made, eval_str=True).parameters.values()
        ]
        for part, made in parts.items()
    }

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        # only its own parameters: the types of its parts are not imported where it stands
        own = [
            each.replace(annotation=eval(each.annotation, command.__globals__))  # noqa: S307
            for each in inspect.signature(command).parameters.values()
            if each.name not in parts
        ]

        def call(**values: Any) -> None:
            made = {
                part: parts[part](**{each.name: values.pop(each.name) for each in theirs})
                for part, theirs in options.items()
            }
            try:
                command(**values, **made)
            finally:
                for part in made.values():
                    if hasattr(part, "close"):
                        part.close()

        listed = [*own, *(each for theirs in options.values() for each in theirs)]
        keyword_only = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in listed]
        call.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in keyword_only}
        call.__name__, call.__doc__ = command.__name__, command.__doc__
        call.__module__ = command.__module__
        return call

    return wrap


def _evaluated(annotation: Any, command: Any) -> Any:
    """An annotation as the object it names. Those of the parts need not exist when the program
    runs: they may be imported for the type checker alone."""
    if not isinstance(annotation, str):
        return annotation
    return eval(annotation, command.__globals__)  # noqa: S307  our own source, as inspect does
