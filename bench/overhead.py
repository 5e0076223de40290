"""What the idle agent costs: memory, CPU, time to start."""

import time

from bench.agents import agent
from bench.table import Row
from nodeguard.sim.apiserver import EmbeddedApiServer
from nodeguard.sim.node import SimulatedNode

_PORT = 29821
_SECONDS = 30.0


def run() -> list[Row]:
    """Half a minute of an agent on a healthy simulated node, against the embedded server."""
    name = "bench-overhead"
    with EmbeddedApiServer() as server, SimulatedNode(name) as node:
        server.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        kubeconfig = node.root / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        begin = time.monotonic()
        with agent(node, kubeconfig, port=_PORT) as running:
            started = time.monotonic() - begin
            for number, slot in enumerate(node.slots):
                node.log.xid(slot, 31 if number else 95, "a line to judge")
            cpu = running.cpu_seconds()
            time.sleep(_SECONDS)
            used = (running.cpu_seconds() - cpu) / _SECONDS * 100
            rss = running.rss_mib()
    return [Row("agent: start until ready", started * 1000, "ms"),
            Row("agent: resident memory", rss, "MiB", 56, f"after {_SECONDS:g} s with 8 GPUs' lines judged"),
            Row("agent: CPU, kernel log only", used, "% of a core", 1)]
