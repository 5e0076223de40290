"""Child processes that never outlive the tests.

Every component leads a process group of its own, logs to a file, and is ended by
`Component.stop`: SIGTERM, a wait, SIGKILL, always to exactly that group. Should the
test run itself be killed, the reaper ends what it left.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess  # noqa: TID251  # runs the components
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import ControlPlaneError

if TYPE_CHECKING:
    from collections.abc import Sequence

_TAIL_LINES = 15


def free_port() -> int:
    """A TCP port on loopback that nothing listens on at this moment.

    Below the range that Linux gives to outgoing connections: a client that dials an
    ephemeral port during an outage can otherwise connect to itself and keep the port.
    """
    for _ in range(100):
        port = random.randrange(20_000, 32_000)  # noqa: S311  # no secret
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise ControlPlaneError("no free TCP port on loopback")


class Reaper:
    """The other end of `reaper`: tell it which groups must not outlive this process."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("reaper.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    @property
    def pid(self) -> int:
        """The reaper's own process."""
        return self._process.pid

    def watch(self, group: int) -> None:
        """Kill `group` if this process ends before `forget`."""
        self._say(f"+{group}")

    def forget(self, group: int) -> None:
        """`group` has ended; its number may be someone else's soon."""
        self._say(f"-{group}")

    def close(self) -> None:
        """End the reaper, which kills whatever was not forgotten."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(timeout=10)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


class Component:
    """One running component: a process, its group and its log file."""

    def __init__(self, name: str, command: Sequence[str], log: Path, reaper: Reaper) -> None:
        self.name = name
        self.log = log
        self._reaper = reaper
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        reaper.watch(self.pid)

    @property
    def pid(self) -> int:
        """The process, which also leads its group."""
        return self._process.pid

    def check_alive(self) -> None:
        """Raise with the log's tail if the process has ended."""
        code = self._process.poll()
        if code is not None:
            raise ControlPlaneError(f"{self.name} ended with {code}; its log ends:\n{self.tail()}")

    def tail(self) -> str:
        """The last lines of the log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    def stop(self, grace: float = 5.0) -> None:
        """End the process and its group; with no `grace`, as a crash would."""
        if grace > 0:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._reaper.forget(self.pid)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def deadline(seconds: float) -> float:
    """The monotonic time `seconds` from now."""
    return time.monotonic() + seconds
