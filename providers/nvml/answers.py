"""Questions that a device need not answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from providers.nvml.binding import DeviceLost, NvmlError

T = TypeVar("T")


def told(question: Callable[[], T], otherwise: T) -> T:
    """The answer, or ``otherwise`` where the device does not tell; DeviceLost passes."""
    try:
        return question()
    except DeviceLost:
        raise
    except NvmlError:
        return otherwise
