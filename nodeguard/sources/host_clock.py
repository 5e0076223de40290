"""How the wall clock is kept, as the kernel tells: Python has no function for it."""

import ctypes
from dataclasses import dataclass

_TIME_ERROR = 5
"""What adjtimex(2) returns while nobody keeps the clock."""
_MICRO = 1e-6


@dataclass(frozen=True, slots=True)
class WallClock:
    """How the wall clock is kept."""

    synchronized: bool
    max_error: float
    """Seconds that it may be wrong by, as its keeper estimates."""


class _Timex(ctypes.Structure):
    """The beginning of ``struct timex``; the rest is only room."""

    _fields_ = (
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("frequency", ctypes.c_long), ("maxerror", ctypes.c_long),
        ("rest", ctypes.c_byte * 512))


def wall_clock() -> WallClock | None:
    """How the wall clock is kept; None where the kernel does not tell."""
    timex = _Timex()
    state = int(ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)))
    return None if state < 0 else WallClock(state != _TIME_ERROR, timex.maxerror * _MICRO)
