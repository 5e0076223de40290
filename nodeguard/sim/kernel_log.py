"""A simulated kernel log: a FIFO that carries records in the format of /dev/kmsg.

The format is that of Documentation/ABI/testing/dev-kmsg in the kernel. Unlike the device, a FIFO hands every
record out once, whoever reads.
"""

import fcntl
import os
import select
import threading
from pathlib import Path
from typing import Self

from nodeguard.model.clock import Clock, SystemClock
from nodeguard.model.device import pci_address

MAX_TEXT = 960
"""Bytes of text a record; what is longer is cut. Escaped, it still fits one atomic write of a pipe (pipe(7))."""

_PIPE_BYTES = 1 << 20


class KernelLogPipe:
    """The simulated log at ``path``, to be followed with ``--kmsg PATH``. Safe to write from several threads.

    Both ends are held open, so a reader never sees an end of file and the log is never without a place to write.
    A full pipe makes a write wait ``patience`` seconds; then the record is lost and its sequence number with it,
    which is what a reader sees of the real ring when it was too slow.
    """

    def __init__(self, path: Path, *, clock: Clock | None = None, patience: float = 1.0, first: int = 0) -> None:
        os.mkfifo(path, 0o600)
        self.path = path
        self.lost = 0
        """Records that did not fit."""
        self._clock = clock or SystemClock()
        self._patience = patience
        self._next = first
        self._lock = threading.Lock()
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        _enlarge(self._pipe)

    def write(self, text: str, level: int = 4) -> int:
        """Write one record of facility 0 (kernel) and return its sequence number. Time is the clock's since boot."""
        with self._lock:
            sequence, self._next = self._next, self._next + 1
            stamp = int(self._clock.boot() * 1_000_000)
            self._put(f"{level & 7},{sequence},{stamp},-;{escape(text)}\n".encode("ascii"))
            return sequence

    def xid(self, pci: str, code: int, message: str, pid: int | None = None, name: str | None = None) -> int:
        """Write a line as the NVIDIA driver prints an Xid (open-gpu-kernel-modules kernel_rc.c, 595.45.04)."""
        slot = (pci_address(pci) or pci).removesuffix(".0")
        process = "" if pid is None else f" pid={pid}, name={name or '<unknown>'},"
        return self.write(f"NVRM: Xid (PCI:{slot}): {code},{process} {message}")

    def close(self) -> None:
        """Close and remove the FIFO. Closing twice is allowed."""
        with self._lock:
            if self._pipe < 0:
                return
            os.close(self._pipe)
            self._pipe = -1
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, record: bytes) -> None:
        waiter = select.poll()
        waiter.register(self._pipe, select.POLLOUT)
        if not waiter.poll(self._patience * 1000):
            self.lost += 1
            return
        os.write(self._pipe, record)


def escape(text: str) -> str:
    r"""Text as the kernel prints it in a record: bytes outside printable ASCII, and the backslash, as ``\xNN``."""
    raw = text.encode("utf-8", "surrogateescape")[:MAX_TEXT].rstrip(b"\n")
    return "".join(chr(byte) if 0x20 <= byte < 0x7F and byte != 0x5C else f"\\x{byte:02x}" for byte in raw)


def _enlarge(pipe: int) -> None:
    """Ask for room for a burst; the system may refuse (fs.pipe-max-size), and then the default stays."""
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:
        return
