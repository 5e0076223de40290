"""The live agent on a node whose accelerators only an exporter tells of."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path

import pytest

from nodeguard.app.agent import Agent
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.kube.api import Object, node_path
from nodeguard.kube.fake import FakeApi
from nodeguard.model.clock import SystemClock
from nodeguard.sim.node import SimulatedNode
from nodeguard.sim.timeline import Watcher
from nodeguard.sinks.log import configure

PAGES = Path(__file__).parents[2] / "fixtures/exporters"
DEADLINE = 15.0  # real seconds; reached only by a failure
RULES = """apiVersion: nodeguard.io/v1
kind: RuleSet
rules:
- {name: unhealthy, signal: gpu_health_state, match: {part: device}, is: unhealthy, severity: critical,
   action: reset_gpu, effect: noschedule, condition: GpuUnhealthy}
- {name: hot, signal: gpu_temperature_celsius, above: 100, severity: warning, action: none, effect: condition,
   condition: GpuThermal}
"""


@contextmanager
def serving(page: Callable[[], str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page().encode())

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def agent_on(name: str, page: str, rules: Path) -> Iterator[Watcher]:
    """The agent with this exporter, on a node without NVML."""
    api = FakeApi()
    api.add(node_path("n1"), {"metadata": {"name": "n1", "uid": "u1"}, "spec": {}, "status": {}})
    watcher = Watcher(api, "n1")
    with SimulatedNode("n1", 0) as node, serving(lambda: page) as url:
        flags = {**node.settings, "listen": "127.0.0.1:0", "soak": "0s", "exporter": [f"{name}={url}"],
                 "rules": [str(rules)]}
        agent = Agent(resolve_agent_settings(flags, {}), SystemClock(), configure("info", StringIO()), api)
        thread = threading.Thread(target=agent.run)
        thread.start()
        watcher.start()
        try:
            yield watcher
        finally:
            agent.stop()
            thread.join()
            api.end_watches()
            watcher.stop()


def statuses(node: Object) -> dict[str, str]:
    return {one["type"]: one["status"] for one in (node.get("status") or {}).get("conditions") or ()}


@pytest.mark.parametrize(("name", "metric"), [("amd", "gpu_health{"), ("ascend", "npu_chip_info_health_status{")])
def test_an_unhealthy_device_is_told_and_tainted(name: str, metric: str, tmp_path: Path) -> None:
    """The page is scraped, the device's condition is True, the one that is fine is False, and the taint is there."""
    (tmp_path / "rules.yaml").write_text(RULES)
    page = "".join(line.replace("} 1", "} 0") if line.startswith(metric) else line
                   for line in (PAGES / f"{name}.prom").read_text().splitlines(keepends=True))
    with agent_on(name, page, tmp_path) as watcher:
        found = watcher.wait_for(lambda node: bool((node.get("spec") or {}).get("taints"))
                                 and statuses(node).get("GpuUnhealthy") == "True", timeout=DEADLINE)
        assert found is not None
        assert watcher.wait_for(lambda node: statuses(node).get("GpuThermal") == "False", timeout=DEADLINE) is not None


@pytest.mark.parametrize("name", ["amd", "intel", "ascend"])
def test_a_healthy_node_says_so(name: str, tmp_path: Path) -> None:
    """Conditions of GPU types are False, without a taint."""
    (tmp_path / "rules.yaml").write_text(RULES)
    with agent_on(name, (PAGES / f"{name}.prom").read_text(), tmp_path) as watcher:
        found = watcher.wait_for(lambda node: statuses(node).get("GpuThermal") == "False", timeout=DEADLINE)
        assert found is not None
