"""The agent as a real process, and what the tests ask of it and of its Node."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import subprocess  # noqa: TID251  # runs the agent
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Self

from nodeguard.sim.node import SimulatedNode

from .controlplane.process import Reaper, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .controlplane.admin import Object

_LOOK = 0.01
ROOT = Path(__file__).parents[2]
FULL = os.environ.get("NODEGUARD_E2E_FULL") == "1"
"""Whether to repeat and to wait as often and as long as the promises say, not only enough to notice a defect."""


@functools.cache
def reaper() -> Reaper:
    """Ends agents that a killed test run left."""
    reaper = Reaper()
    atexit.register(reaper.close)
    return reaper


class AgentProcess:
    """One ``nodeguard agent``. A context manager: leaving it kills what still runs."""

    def __init__(self, *arguments: str, log: Path, env: Mapping[str, str] | None = None,
                 program: tuple[str, ...] = ("nodeguard",), command: str = "agent") -> None:
        """``program``: the module, and what it takes before the command's word."""
        self.log = log
        self._from = log.stat().st_size if log.exists() else 0
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("NODEGUARD_", "KUBERNETES_"))}
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *program, command, *arguments], cwd=ROOT, env={**clean, **(env or {})},
                stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True)
        reaper().watch(self.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, and gone when this returns. May be called twice."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        reaper().forget(self.pid)

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self, seconds: float = 10.0) -> int:
        """The exit code; AssertionError when it does not end in time."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the agent did not end within {seconds} s:\n{self.output()}") from None

    def end(self, seconds: float = 10.0) -> float:
        """SIGTERM; how many seconds it took. It must exit with 0."""
        began = time.monotonic()
        self.signal()
        code = self.wait(seconds)
        assert code == 0, self.output()
        return time.monotonic() - began

    def output(self) -> str:
        """What this process wrote to stdout and stderr."""
        return self.log.read_bytes()[self._from:].decode(errors="replace")

    def said(self, text: str) -> bool:
        """Whether its log holds ``text``."""
        return text in self.output()

    def wait_said(self, text: str, seconds: float = 10.0) -> None:
        """Wait until its log holds ``text``."""
        eventually(lambda: self.said(text), f"the log says {text!r}", seconds, self.output)

    def rss(self) -> int:
        """Resident bytes now."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return 1024 * int(status.partition("VmRSS:")[2].split()[0])


class Rig:
    """A simulated node's files and the arguments that point an agent at them. A context manager."""

    def __init__(self, node: str, kubeconfig: Path, *, gpus: int = 8, kmsg: Path | None = None) -> None:
        self.node = node
        self.hardware = SimulatedNode(node, gpus=gpus)
        self._kubeconfig = kubeconfig
        self._kmsg = kmsg
        self._running: list[AgentProcess] = []
        self.port = free_port()

    def __enter__(self) -> Self:
        self.hardware.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self._running:
            agent.kill()
        self.hardware.__exit__(None, None, None)

    @property
    def log(self) -> Path:
        """Where every agent of this rig logs to."""
        return self.hardware.root / "agent.log"

    @property
    def state(self) -> Path:
        """The state file."""
        return self.hardware.state_dir / "state.json"

    def log_file(self) -> LogFile:
        """Let the agents follow a regular file from now on, not the pipe."""
        log = LogFile(self.hardware.root / "kernel.log")
        self._kmsg = log.path
        return log

    def arguments(self) -> list[str]:
        """The flags of :meth:`start`."""
        kmsg = self._kmsg or self.hardware.log.path
        return ["--node-name", self.node, "--no-nvml", "--kubeconfig", str(self._kubeconfig), "--kmsg", str(kmsg),
                "--proc-root", str(self.hardware.proc_root), "--sys-root", str(self.hardware.sys_root),
                "--state-dir", str(self.hardware.state_dir), "--listen", f"127.0.0.1:{self.port}"]

    def start(self, *more: str) -> AgentProcess:
        """Start an agent; the one before must have ended."""
        agent = AgentProcess(*self.arguments(), *more, log=self.log)
        self._running = [agent]
        return agent

    @property
    def running(self) -> bool:
        """Whether its agent runs."""
        return any(agent.running() for agent in self._running)

    def refuse_state(self) -> Path:
        """Put a directory where the agent would write its next state; remove it to let it save again."""
        in_the_way = self.state.with_suffix(".json.new")

        def done() -> bool:
            try:
                in_the_way.mkdir()
            except FileExistsError:  # the agent is writing it just now
                return False
            return True

        eventually(done, "the state file is out of reach")
        return in_the_way

    def reboot(self) -> None:
        """Another boot ID."""
        self.hardware.boot_id = str(uuid.uuid4())
        (self.hardware.proc_root / "sys/kernel/random/boot_id").write_text(self.hardware.boot_id + "\n")

    def metrics(self) -> dict[str, float]:
        """The page: values by name and labels as written."""
        return read_metrics(self.port)

    def wait_ready(self, seconds: float = 15.0) -> None:
        """Wait until the agent has read everything once."""
        eventually(lambda: http_status(self.port, "/readyz") == 200, "the agent is ready", seconds,
                   lambda: self.log.read_text(errors="replace"))

    def faults(self) -> list[Object]:
        """The open faults in the state file."""
        snapshot = json.loads(self.state.read_text())
        faults: list[Object] = snapshot["boot"]["engine"]["faults"]
        return faults


class LogFile:
    """A kernel log in a regular file: unlike a pipe it can be read again after a restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._next = 0
        path.touch()

    def write(self, text: str) -> int:
        """Append one record of the kernel's, as of now; its sequence number."""
        number, self._next = self._next, self._next + 1
        stamp = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
        with self.path.open("ab", buffering=0) as file:
            file.write(f"4,{number},{stamp},-;{text}\n".encode())
        return number

    def xid(self, pci: str, code: int, words: str) -> int:
        """An Xid as the driver prints it."""
        return self.write(xid_line(pci, code, words))


def xid_line(pci: str, code: int, words: str) -> str:
    """An Xid as the driver prints it (open-gpu-kernel-modules, kernel_rc.c)."""
    return f"NVRM: Xid (PCI:{pci.removesuffix('.0')}): {code}, {words}"


TIMEOUT_WORDS = "pid=71, name=python3, Ch 00000010, errorString CTX SWITCH TIMEOUT, Info 0x8003"
RESET_DUE = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
RESET_DONE = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


def eventually(holds: Callable[[], object], what: str, seconds: float = 10.0,
               more: Callable[[], object] = lambda: "") -> None:
    """Wait until ``holds``; AssertionError that says ``what`` did not come."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}\n{more()}")
        time.sleep(_LOOK)


def http_status(port: int, path: str) -> int:
    """The status of a page of the agent's port; 0 when nothing answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def read_metrics(port: int) -> dict[str, float]:
    """The agent's Prometheus page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def keep(name: str, text: str) -> None:
    """Print something worth reading, and write it to the folder ``NODEGUARD_E2E_OUT`` if that is set."""
    sys.stdout.write(f"\n--- {name}\n{text}\n")
    folder = os.environ.get("NODEGUARD_E2E_OUT")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / name).write_text(text)


PRINTK_DEVKMSG = Path("/proc/sys/kernel/printk_devkmsg")


@contextlib.contextmanager
def printk_devkmsg(word: str | None) -> Iterator[None]:
    """Set how freely programs may write to /dev/kmsg, and set it back; None leaves it alone."""
    if word is None:
        yield
        return
    before = PRINTK_DEVKMSG.read_text()
    PRINTK_DEVKMSG.write_text(f"{word}\n")  # without the newline the kernel refuses it
    try:
        yield
    finally:
        PRINTK_DEVKMSG.write_text(before)
