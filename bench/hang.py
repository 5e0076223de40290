"""The agent while every NVML call hangs: threads, liveness, and how soon a kernel line is on the Node.

``python -m bench.hang MINUTES`` for another time than ten minutes.
"""

import contextlib
import os
import signal
import subprocess  # noqa: TID251 # measures the agent as a process of its own
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from bench.agents import Running, await_ready
from bench.table import Row, percentile, show
from nodeguard.kube.client import KubeClient
from nodeguard.sim.apiserver import EmbeddedApiServer
from nodeguard.sim.node import SimulatedNode
from nodeguard.sim.timeline import Watcher, annotation

_PORTS = (29824, 29825)
_MINUTES = 10.0
_SETTLE = 10.0
_LINES = tuple((code, words) for code, words in (
    (109, "CTX SWITCH TIMEOUT, Info 0x8003"), (95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No")))


class Minute(NamedTuple):
    """What was seen in one minute of one agent."""

    threads: tuple[int, int]
    """The least and the most."""
    dead: int
    """Looks at liveness, one a second, that were not answered with "alive"."""
    line_ms: float | None
    """From a kernel line to its fault on the Node; None: not within 5 s."""


class Hung:
    """One agent above a driver that hangs, and a watcher of its Node."""

    def __init__(self, node: SimulatedNode, running: Running, watcher: Watcher) -> None:
        self.node, self.running, self.watcher = node, running, watcher
        self._lines = ((slot, *line) for line in _LINES for slot in node.slots)

    def threads(self) -> int:
        """Threads of its process now."""
        status = Path(f"/proc/{self.running.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Threads"))

    def stalled_after(self, began: float) -> float | None:
        """Seconds from ``began`` until a watcher saw the stalled driver on the Node."""
        seen = self.watcher.wait_for(lambda node: "gpu-driver-stalled" in annotation(node), timeout=20.0)
        return None if seen is None else seen - began

    def line(self) -> float | None:
        """Write a kernel line that nobody has told yet; milliseconds until its fault was seen on the Node."""
        found = next(self._lines, None)
        if found is None:
            return None
        slot, code, words = found
        rule = "gpu-xid-context-switch-timeout" if code == 109 else "gpu-xid-uncontained-ecc"
        number = list(self.node.slots).index(slot)
        names = slot, self.node.uuids[number]
        began = time.monotonic()
        self.node.log.xid(slot, code, words, pid=71, name="bench")
        seen = self.watcher.wait_for(lambda node: any(
            f'"rule":"{rule}","device":"gpu/{name}"' in annotation(node) for name in names), after=began, timeout=5.0)
        return None if seen is None else (seen - began) * 1000

    def minute(self, seconds: float) -> Minute:
        """One minute, or so much of it."""
        end = time.monotonic() + seconds
        line, dead, threads = self.line(), 0, []
        while time.monotonic() < end:
            time.sleep(1.0)
            threads.append(self.threads())  # before the agent's port is asked: each connection is a thread for a moment
            dead += not self.running.page("/healthz")
        return Minute((min(threads), max(threads)), dead, line)


@contextlib.contextmanager
def _agent(server: EmbeddedApiServer, port: int, *, at_once: bool) -> Iterator[Hung]:
    name = "bench-hang"
    server.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    with SimulatedNode(name) as node:
        kubeconfig = node.root / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        watcher = Watcher(KubeClient.from_kubeconfig(kubeconfig), name)
        command = [sys.executable, "-m", "bench.simulated_agent", ",".join(node.uuids), ",".join(node.slots),
                   *(["hang"] if at_once else []), "agent",
                   "--node-name", name, "--kubeconfig", str(kubeconfig), "--kmsg", str(node.log.path),
                   "--proc-root", str(node.proc_root), "--sys-root", str(node.sys_root),
                   "--state-dir", str(node.state_dir), "--listen", f"127.0.0.1:{port}", "--log-level", "warning"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            running = Running(process.pid, port)
            watcher.start()
            try:
                await_ready(running, process)
                yield Hung(node, running, watcher)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(10)
                watcher.stop()


def _measure(minutes: float, *, at_once: bool) -> list[Row]:
    what = "hung from the start" if at_once else "hung while it ran"
    with EmbeddedApiServer() as server, _agent(server, _PORTS[at_once], at_once=at_once) as hung:
        began = time.monotonic()
        if not at_once:
            time.sleep(3.0)
            began = time.monotonic()
            os.kill(hung.running.pid, signal.SIGUSR1)
        stalled = hung.stalled_after(began)
        time.sleep(_SETTLE)
        before = hung.threads()
        seen: list[Minute] = []
        while len(seen) < minutes:
            one = hung.minute(min(minutes - len(seen), 1.0) * 60.0)
            seen.append(one)
            line = "not seen" if one.line_ms is None else f"on the Node after {one.line_ms:.1f} ms"
            print(f"bench: {what}, minute {len(seen)}: threads {one.threads[0]} to {one.threads[1]}, liveness failed "
                  f"{one.dead} times, kernel line {line}", file=sys.stderr)
    lines = [one.line_ms for one in seen if one.line_ms is not None]
    return [
        Row(f"{what}: stalled driver on the Node", stalled, "s", 2, "after the agent said that it is ready" if at_once
            else "after the driver began to hang, up to 1 s before the first call that meets it"),
        Row(f"{what}: threads, at most", max(one.threads[1] for one in seen), "threads", before,
            f"budget: threads {_SETTLE:g} s after it began; over {minutes:g} min"),
        Row(f"{what}: liveness failures", sum(one.dead for one in seen), "", None, "of one look a second"),
        Row(f"{what}: line on the Node, worst", percentile(lines, 1.0) if lines else None, "ms", 60,
            f"{len(lines)} of {len(seen)} lines seen, one a minute"),
    ]


def run(minutes: float = _MINUTES) -> list[Row]:
    """Two agents side by side for so many minutes: every call hangs from the start, or from a moment on."""
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda at_once: _measure(minutes, at_once=at_once), (True, False)))
    return [row for rows in both for row in rows]


if __name__ == "__main__":
    print(show(run(float(sys.argv[1]) if len(sys.argv) > 1 else _MINUTES)))
