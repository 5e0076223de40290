"""What the kernel log is read from: /dev/kmsg, or a pipe or file in its place, and the shipped fake."""

import contextlib
import errno
import os
import select
import stat
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from nodeguard.model.errors import SourceError

_READ = 16384  # bytes; a record with its escapes and attributes stays below 8 KiB (printk.c PRINTK_MESSAGE_MAX)
_LINE_LIMIT = 16384  # bytes of a line in a pipe or file; what is longer is cut
_FILE_POLL = 0.05  # seconds; poll() calls a regular file readable always, so its end must be looked at again
_UNREADABLE = b""  # stands for a record that was there and could not be read


class KmsgDevice(Protocol):
    """Where raw records come from. One thread reads; ``wake`` may come from any."""

    def open(self) -> None:
        """Start at the oldest record that is left. Raises SourceError."""
        ...

    def read(self) -> Sequence[bytes]:
        """The records of one read, never waiting.

        Raises BlockingIOError when nothing waits, BrokenPipeError when records were overwritten, SourceError when
        the device is gone.
        """
        ...

    def wait(self, timeout: float | None) -> None:
        """Block until something may be there to read, ``wake`` was called, or ``timeout`` seconds passed."""
        ...

    def wake(self) -> None:
        """End the ``wait`` that is on, or else the next one."""
        ...

    def close(self) -> None:
        """Give the device back; it may be opened again."""
        ...


class Framer:
    """Cuts a stream of bytes into records, one a line.

    Lines that begin with a space are attributes of the record above, which nothing reads, and are left out: waiting
    for them would delay the record.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False

    def push(self, data: bytes) -> list[bytes]:
        """The records that ``data`` completes. An overlong one is cut at the limit."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines and self._skipping:
            self._skipping = False
            del lines[0]
        if self._skipping:
            self._rest = b""
        elif len(self._rest) > _LINE_LIMIT:
            lines.append(self._rest[:_LINE_LIMIT])
            self._rest, self._skipping = b"", True
        return [line for line in lines if line and not line.startswith(b" ")]

    def flush(self) -> list[bytes]:
        """The last line, where the stream ended without a newline."""
        return self.push(b"\n") if self._rest else []


class FileKmsgDevice:
    """A path. One read of a character device is one record; anything else holds one record a line.

    A pipe whose last writer went is closed; one that has had no writer yet is only quiet. A regular file never ends:
    its growth is looked for every 50 ms, everything else is waited for with poll(2).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._mode = 0
        self._framer = Framer()
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def open(self) -> None:
        """See :class:`KmsgDevice`."""
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise self._error("be opened", error) from error
        self._mode = os.fstat(self._fd).st_mode
        self._framer = Framer()

    def read(self) -> Sequence[bytes]:
        """See :class:`KmsgDevice`."""
        if self._fd is None:
            raise SourceError(f"{self._path} is not open")
        try:
            data = os.read(self._fd, _READ)
        except (BlockingIOError, BrokenPipeError):
            raise
        except OSError as error:
            if error.errno == errno.EINVAL:  # longer than the buffer: the kernel has moved on to the next record
                return (_UNREADABLE,)
            raise self._error("be read", error) from error
        if not data:
            return self._ended(self._fd)
        return (data,) if stat.S_ISCHR(self._mode) else self._framer.push(data)

    def wait(self, timeout: float | None) -> None:
        """See :class:`KmsgDevice`."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if self._fd is not None and stat.S_ISREG(self._mode):
            timeout = _FILE_POLL if timeout is None else min(timeout, _FILE_POLL)
        elif self._fd is not None:
            poll.register(self._fd, select.POLLIN)
        poll.poll(None if timeout is None else timeout * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)

    def wake(self) -> None:
        """See :class:`KmsgDevice`."""
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._waker, b"\0")

    def close(self) -> None:
        """See :class:`KmsgDevice`."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _ended(self, fd: int) -> Sequence[bytes]:
        if stat.S_ISREG(self._mode) or (stat.S_ISFIFO(self._mode) and not _hung_up(fd)):
            raise BlockingIOError
        rest = self._framer.flush()
        if not rest:
            raise SourceError(f"{self._path} was closed by its writer")
        return rest

    def _error(self, deed: str, error: OSError) -> SourceError:
        hint = {
            errno.EPERM: "; the agent's container must be privileged, for the device cgroup guards it",
            errno.EACCES: "; the agent must run as root",
        }.get(error.errno or 0, "")
        return SourceError(f"{self._path} cannot {deed}: {error.strerror}{hint}")


def _hung_up(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


Step = bytes | OSError | SourceError
"""A read's record, or what the read raises: BrokenPipeError for an overrun, SourceError for a closed device."""


class FakeKmsgDevice:
    """A scripted device. Each ``open`` plays the next session; a session may be the error that ``open`` raises.

    When a session's steps are used up, ``wait`` calls ``when_idle`` and returns, so that one thread can do all; or,
    without it, sets the event ``idle`` and blocks until ``push`` or ``wake``.
    """

    def __init__(self, sessions: Sequence[Sequence[Step] | SourceError],
                 when_idle: Callable[[], None] | None = None) -> None:
        self._sessions = deque(sessions)
        self._steps: deque[Step] = deque()
        self._when_idle = when_idle
        self._wake = threading.Event()
        self.idle = threading.Event()
        """Set while the reader waits for more."""
        self.opens = 0
        """How often ``open`` was called."""

    def open(self) -> None:
        """See :class:`KmsgDevice`."""
        self.opens += 1
        session = self._sessions.popleft() if self._sessions else ()
        if isinstance(session, SourceError):
            raise session
        self._steps.extend(session)

    def push(self, *steps: Step) -> None:
        """Play these steps next and wake the reader."""
        self.idle.clear()
        self._steps.extend(steps)
        self._wake.set()

    def read(self) -> Sequence[bytes]:
        """See :class:`KmsgDevice`."""
        if not self._steps:
            raise BlockingIOError
        step = self._steps.popleft()
        if isinstance(step, bytes):
            return (step,)
        raise step

    def wait(self, timeout: float | None) -> None:
        """See :class:`KmsgDevice`."""
        if self._when_idle is not None:
            self._when_idle()
            return
        self.idle.set()
        self._wake.wait(timeout)
        self._wake.clear()

    def wake(self) -> None:
        """See :class:`KmsgDevice`."""
        self._wake.set()

    def close(self) -> None:
        """See :class:`KmsgDevice`."""
        self._steps.clear()
