"""Two questions to the kernel that Python has no function for."""

import ctypes
from dataclasses import dataclass

_SIZE_BUFFER = 10
"""SYSLOG_ACTION_SIZE_BUFFER (syslog(2))."""
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


def kernel_log_bytes() -> int | None:
    """Size of the kernel's log buffer; None where the kernel does not tell this user."""
    size = int(_libc().klogctl(_SIZE_BUFFER, None, 0))
    return size if size > 0 else None


def wall_clock() -> WallClock | None:
    """How the wall clock is kept; None where the kernel does not tell."""
    timex = _Timex()
    state = int(_libc().adjtimex(ctypes.byref(timex)))
    return None if state < 0 else WallClock(state != _TIME_ERROR, timex.maxerror * _MICRO)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
