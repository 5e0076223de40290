"""The real agent as a process of its own, on a simulated node."""

import contextlib
import os
import signal
import subprocess  # noqa: TID251 # a benchmark measures the agent as users run it: as a process
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nodeguard.sim.node import SimulatedNode

_START_SECONDS = 20.0


class Running(NamedTuple):
    """A running agent."""

    pid: int
    port: int

    def page(self, path: str) -> str:
        """What its status server answers; empty while it does not."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as answer:  # loopback
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return ""

    def rss_mib(self) -> float:
        """Resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def cpu_seconds(self) -> float:
        """CPU time used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def agent(node: SimulatedNode, kubeconfig: Path | None, *, port: int, real_kmsg: bool = False) -> Iterator[Running]:
    """Start the agent, wait until it is ready, and end it."""
    command = [sys.executable, "-m", "nodeguard", "agent", "--node-name", node.name,
               "--proc-root", str(node.proc_root), "--sys-root", str(node.sys_root), "--state-dir", str(node.state_dir),
               "--listen", f"127.0.0.1:{port}", "--log-level", "warning", "--no-nvml"]
    command += ["--kmsg-any-facility"] if real_kmsg else ["--kmsg", str(node.log.path)]
    command += ["--no-kube"] if kubeconfig is None else ["--kubeconfig", str(kubeconfig)]
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, stderr=log) as process:
        running = Running(process.pid, port)
        try:
            await_ready(running, process)
            yield running
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)


def await_ready(running: Running, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the agent answers that it is ready; RuntimeError when it ends or takes too long."""
    deadline = time.monotonic() + _START_SECONDS
    while not running.page("/readyz").startswith("ready"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the agent did not become ready (exit code {process.poll()})")
        time.sleep(0.02)
