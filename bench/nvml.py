"""What NVML costs the agent: memory, CPU, calls, with 8 simulated GPUs below real pynvml and every shipped rule."""

import json
import signal
import subprocess  # noqa: TID251 # measures the agent as a process of its own
import sys
import time

from bench.agents import Running, await_ready
from bench.table import Row
from nodeguard.sim.apiserver import EmbeddedApiServer
from nodeguard.sim.node import SimulatedNode

_PORT = 29823
_SECONDS = 60.0


def _rss_of(code: str) -> float:
    """Resident memory of a Python process after ``code``, in MiB."""
    words = "print([int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('VmRSS')][0])"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{words}"], capture_output=True, check=True)
    return int(done.stdout) / 1024


def run() -> list[Row]:
    """A minute of the agent with NVML."""
    name = "bench-nvml"
    with EmbeddedApiServer() as server, SimulatedNode(name) as node:
        server.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        kubeconfig = node.root / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        command = [sys.executable, "-m", "bench.simulated_agent", ",".join(node.uuids), ",".join(node.slots), "agent",
                   "--node-name", name, "--kubeconfig", str(kubeconfig), "--kmsg", str(node.log.path),
                   "--proc-root", str(node.proc_root), "--sys-root", str(node.sys_root),
                   "--state-dir", str(node.state_dir), "--listen", f"127.0.0.1:{_PORT}", "--log-level", "warning"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            running = Running(process.pid, _PORT)
            await_ready(running, process)
            begin = running.cpu_seconds()
            time.sleep(_SECONDS)
            cpu, rss = (running.cpu_seconds() - begin) / _SECONDS * 100, running.rss_mib()
            process.send_signal(signal.SIGTERM)
            calls = json.loads(process.communicate(timeout=10)[0])
    share = _rss_of("import pynvml, nodeguard.sim.driver") - _rss_of("import pynvml")
    total = sum(calls.values())
    busiest = ", ".join(f"{one.removeprefix('nvml')} {count}" for one, count in sorted(
        calls.items(), key=lambda item: -item[1])[:4])
    return [
        Row("agent with NVML: resident memory", rss - share, "MiB", 60, f"less {share:.1f} MiB of the simulator"),
        Row("agent with NVML: CPU", cpu, "% of a core", 1, "the simulated driver's own work included"),
        Row("NVML calls", total / _SECONDS, "per second", None, f"8 GPUs; most often {busiest}"),
    ]
