"""Agents forked from one process that has imported everything: ten of them start within a second, not within ten.

Each is the real agent in a process of its own; only its imports were done before. ``python -m tests.e2e.forked`` reads
lines of JSON, ``[log, argument, …]``, and answers each with the new process's number. At the end of its input it kills
what it has forked, so nothing outlives the test.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess  # noqa: TID251  # starts the process that forks
import sys
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

from .agents import ROOT, reaper


class Forks:
    """Starts and kills agents. A context manager; for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("NODEGUARD_", "KUBERNETES_"))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.forked"], cwd=ROOT, env=clean, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        reaper().watch(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
        reaper().forget(self._process.pid)

    def start(self, arguments: Sequence[str], log: Path) -> int:
        """Start ``nodeguard`` with these words; its process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps([str(log), *arguments]) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def kill(self, pid: int) -> None:
        """SIGKILL, at once; the process that forked it takes its end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Fork one agent for each line."""
    importlib.import_module("nodeguard.cli.agent")  # so that the children need not
    from nodeguard.__main__ import main as run  # noqa: PLC0415

    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    children = []
    for line in sys.stdin:
        log, *words = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(log)
            os._exit(run(words))
        children.append(child)
        print(child, flush=True)  # noqa: T201  # the answer
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def _become(log: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sink = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, sink), (2, sink)):
        os.dup2(source, target)


if __name__ == "__main__":
    main()
