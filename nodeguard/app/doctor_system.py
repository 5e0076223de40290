"""A question to the kernel that Python has no function for."""

import ctypes

_SIZE_BUFFER = 10
"""SYSLOG_ACTION_SIZE_BUFFER (syslog(2))."""


def kernel_log_bytes() -> int | None:
    """Size of the kernel's log buffer; None where the kernel does not tell this user."""
    size = int(ctypes.CDLL(None, use_errno=True).klogctl(_SIZE_BUFFER, None, 0))
    return size if size > 0 else None
