"""What NVML costs the agent: memory, CPU, calls, with 8 simulated GPUs below real pynvml and every shipped rule.

The simulated driver runs in the agent's process. Its CPU time is measured inside the process, around every C function,
over the same minute; its memory is that of a process with its modules less that of one without. Both are subtracted.
After that minute each GPU fails once, for the time until the Node names its pods.
"""

import json
import signal
import subprocess  # noqa: TID251 # measures the agent as a process of its own
import sys
import time
from collections import Counter
from collections.abc import Iterator

from bench.agents import Running, await_ready
from bench.pods import break_all, give_out
from bench.simulated_agent import Tally
from bench.table import Row, percentile
from nodeguard.kube.client import KubeClient
from nodeguard.sim.apiserver import EmbeddedApiServer
from nodeguard.sim.node import SimulatedNode

_PORT = 29823
_SECONDS = 60.0
_TIERS = {"fast": "every second", "slow": "every 30 s", "event": "each wait lasts half a second",
          "identify": "who is there: every 30 s", "pods": "only of GPUs with a fault: none here"}


def _rss_of(code: str) -> float:
    """Resident memory of a Python process after ``code``, in MiB."""
    words = "print([int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('VmRSS')][0])"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{words}"], capture_output=True, check=True)
    return int(done.stdout) / 1024


def _simulators_memory() -> float:
    """What the simulated driver and the counting of its calls add to the agent's memory, in MiB."""
    agents = "import pynvml, nodeguard.cli.agent, nodeguard.app.agent"
    simulated = "from nodeguard.sim.driver import SimulatedDriver; import bench.simulated_agent; d = SimulatedDriver(8)"
    return _rss_of(f"{agents}\n{simulated}") - _rss_of(agents)


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
                   "--state-dir", str(node.state_dir), "--kubelet-root", str(give_out(node)),
                   "--listen", f"127.0.0.1:{_PORT}", "--log-level", "warning"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            running = Running(process.pid, _PORT)
            await_ready(running, process)
            begin, before = running.cpu_seconds(), _tally(process)
            time.sleep(_SECONDS)
            cpu, after = running.cpu_seconds() - begin, _tally(process)
            rss = running.rss_mib()
            named = break_all(KubeClient.from_kubeconfig(kubeconfig), node)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=10)
    simulators_cpu = after.cpu_seconds - before.cpu_seconds
    simulators_memory = _simulators_memory()
    return [
        Row("agent with NVML: resident memory", rss - simulators_memory, "MiB", 60,
            f"{rss:.1f} MiB less {simulators_memory:.1f} MiB of the simulator"),
        Row("agent with NVML: CPU", _percent(cpu - simulators_cpu), "% of a core", 1,
            f"{_percent(cpu):.2f} % less {_percent(simulators_cpu):.2f} % inside the simulated library"),
        *_calls(before, after),
        Row("line → annotation with its GPU's pods, p50", percentile(named.milliseconds, 0.5), "ms", None,
            f"{len(named.milliseconds)} GPUs; {named.early} told before their pods were known"),
        Row("line → annotation with its GPU's pods, worst", max(named.milliseconds), "ms", 80),
    ]


def _tally(process: "subprocess.Popen[bytes]") -> Tally:
    """What the driver was asked so far, from the agent's process."""
    assert process.stdout is not None
    process.send_signal(signal.SIGRTMIN)
    return Tally(*json.loads(process.stdout.readline()))


def _percent(seconds: float) -> float:
    return seconds / _SECONDS * 100


def _calls(before: Tally, after: Tally) -> Iterator[Row]:
    for tier, when in _TIERS.items():
        grown = Counter(after.calls.get(tier, {}))
        grown.subtract(before.calls.get(tier, {}))
        busiest = ", ".join(f"{name.removeprefix('nvml')} {count}" for name, count in grown.most_common(3) if count)
        yield Row(f"NVML calls, {tier}", grown.total() / _SECONDS, "per second", None,
                  f"{when}{f'; most often {busiest}' if busiest else ''}")
