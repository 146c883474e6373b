"""How people write durations and sizes: ``90``, ``"30m"``, ``"1h30m"``, ``"2d"``; ``"40GiB"``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_UNIT_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|d|h|m|s)")
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|d|h|m|s))+")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(MiB|GiB|TiB|MB|GB|TB)")
_SIZE_GIB = {
    "MiB": 1 / 1024,
    "GiB": 1.0,
    "TiB": 1024.0,
    "MB": 1e6 / 2**30,
    "GB": 1e9 / 2**30,
    "TB": 1e12 / 2**30,
}
MAX_DURATION_S = 10 * 365 * 86_400.0


def parse_duration_s(value: object) -> float:
    """Seconds meant by ``value``: a number of seconds, a timedelta, or text such as ``1h30m``.

    Raises ``ValueError`` that shows the accepted forms, also for negative, non-finite or absurdly
    long (over ten years) durations.
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, bool):
        raise ValueError("a duration is a number of seconds or text such as 30m, not true/false")
    elif isinstance(value, int | float):
        seconds = float(value)
    elif isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        seconds = sum(float(n) * _UNIT_S[unit] for n, unit in _PART.findall(value))
    else:
        raise ValueError(f"{value!r} is not a duration; write 90, 45s, 30m, 2h, 1h30m or 2d")
    if not 0 <= seconds <= MAX_DURATION_S:
        raise ValueError(f"a duration lies between 0 and ten years, not {value!r}")
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest text that :func:`parse_duration_s` reads back as the same milliseconds."""
    # hot: one in the sentence of each job that waits
    whole_s, millis = divmod(round(seconds * 1000), 1000)
    minutes, whole_s = divmod(whole_s, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{days}d" if days else ""
    if hours:
        text += f"{hours}h"
    if minutes:
        text += f"{minutes}m"
    if whole_s:
        text += f"{whole_s}s"
    if millis:
        text += f"{millis}ms"
    return text or "0s"


def parse_gib(value: object) -> float:
    """Gibibytes meant by ``value``: a number of GiB, or text such as ``40GiB`` or ``40GB``."""
    if isinstance(value, bool):
        raise ValueError("a size is a number of GiB or text such as 40GiB, not true/false")
    if isinstance(value, int | float):
        gib = float(value)
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        gib = float(match[1]) * _SIZE_GIB[match[2]]
    else:
        raise ValueError(f"{value!r} is not a size; write 40 (GiB), 40GiB, 512MiB or 1TiB")
    if not 0 <= gib <= 2**30:
        raise ValueError(f"a size is finite and not negative, unlike {value!r}")
    return gib


def parse_gpu_gib(value: object) -> float:
    """Gibibytes of a GPU's memory: as :func:`parse_gib`, but ``48GB`` are 48 GiB, because that is
    what ``48 GB`` on a card's box means. Raises ValueError."""
    if isinstance(value, str):
        value = re.sub(r"(?<=[MGT])B\s*$", "iB", value)
    return parse_gib(value)


def _schema(description: str, *examples: Any) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}],
            "description": description,
            "examples": list(examples),
        }
    )


Seconds = Annotated[
    float,
    BeforeValidator(parse_duration_s),
    PlainSerializer(format_duration, return_type=str),
    _schema("A duration: seconds, or text such as 45s, 30m, 1h30m, 2d.", "30m", 90),
]
"""A duration that people write as text and the program keeps as float seconds."""

AUTO: Final = "auto"
"""Written instead of a duration that the planner is to work out."""


def _parse_interval(value: object) -> float | str:
    if value == AUTO:
        return AUTO
    seconds = parse_duration_s(value)
    if seconds <= 0:
        raise ValueError("an interval is longer than nothing; write auto to have it worked out")
    return seconds


def _format_interval(value: float | str) -> str:
    return value if isinstance(value, str) else format_duration(value)


Interval = Annotated[
    float | Literal["auto"],
    BeforeValidator(_parse_interval),
    PlainSerializer(_format_interval, return_type=str),
    _schema("A duration longer than nothing, or auto.", "10m", "auto"),
]
"""A duration, or ``auto`` for one that is worked out."""

Gib = Annotated[
    float,
    BeforeValidator(parse_gib),
    _schema("A size: GiB, or text such as 40GiB, 512MiB.", "40GiB", 40),
]
"""A size that people write with its unit and the program keeps as float GiB."""

GpuGib = Annotated[
    float,
    BeforeValidator(parse_gpu_gib),
    _schema("Memory of a GPU: GiB, or text such as 48GiB; 48GB is the same.", "48GiB", 48),
]
"""A size of GPU memory: people write it as it stands on the box."""
