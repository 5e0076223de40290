"""``nodeguard demo``: breaks a GPU of a simulated node and shows how fast its Node says so."""

import argparse
import contextlib
import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nodeguard.app.agent import Agent
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.kube.api import Object, node_path
from nodeguard.kube.client import KubeClient
from nodeguard.model.clock import SystemClock
from nodeguard.model.errors import ApiError, NodeguardError
from nodeguard.sim.apiserver import EmbeddedApiServer
from nodeguard.sim.driver import SimulatedDriver
from nodeguard.sim.node import SimulatedNode
from nodeguard.sim.scenarios import GPU, SCENARIOS, Deed, Scenario
from nodeguard.sim.timeline import Watcher, annotation, condition, taint
from nodeguard.sinks.log import configure

_NODES = "/api/v1/nodes"
_PATIENCE = 20.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.epilog = "example: nodeguard demo"
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE",
                        help="use this cluster's API, not the embedded server; the simulated node is removed after")
    parser.add_argument("--scenario", choices=SCENARIOS, default="ecc",
                        help="what breaks: " + "; ".join(f"{name}: {one.title}" for name, one in SCENARIOS.items()))
    parser.add_argument("--log", action="store_true", help="show the agent's own log on stderr")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the timeline; exit 1 when something did not come in time."""
    name = f"nodeguard-demo-{time.monotonic_ns() % 10**8:08d}"
    with (_api(args.kubeconfig) as (api, where), SimulatedNode(name) as node,
          SimulatedDriver.at(node.slots, node.uuids) as driver):
        node.attach(driver)
        print(f"{where}; node {name} with {len(node.slots)} simulated GPUs")
        api.post(_NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        try:
            return _show(api, node, driver, SCENARIOS[args.scenario], sys.stderr if args.log else io.StringIO())
        finally:
            with contextlib.suppress(ApiError):
                api.delete(node_path(name))


@contextlib.contextmanager
def _api(kubeconfig: Path | None) -> Iterator[tuple[KubeClient, str]]:
    if kubeconfig is not None:
        yield KubeClient.from_kubeconfig(kubeconfig), f"cluster of {kubeconfig}"
        return
    with EmbeddedApiServer() as server, TemporaryDirectory(prefix="nodeguard-demo-") as folder:
        path = Path(folder) / "kubeconfig"
        server.write_kubeconfig(path)
        yield KubeClient.from_kubeconfig(path), "embedded API server"


@contextlib.contextmanager
def _agent(api: KubeClient, node: SimulatedNode, log: Any) -> Iterator[None]:
    settings = resolve_agent_settings({
        "node_name": node.name, "kmsg": str(node.log.path), "proc_root": str(node.proc_root),
        "sys_root": str(node.sys_root), "state_dir": str(node.state_dir), "listen": "127.0.0.1:0"}, {})
    agent = Agent(settings, SystemClock(), configure("info", log), api)
    thread = threading.Thread(target=agent.run, name="agent")
    thread.start()
    try:
        yield
    finally:
        agent.stop()
        thread.join()


def _show(api: KubeClient, node: SimulatedNode, driver: SimulatedDriver, scenario: Scenario, log: Any) -> int:
    watcher = Watcher(api, node.name)
    watcher.start()
    with _agent(api, node, log):
        try:
            return _story(watcher, node, driver, scenario)
        finally:
            driver.gpus[GPU].heal()
            watcher.stop()


def _story(watcher: Watcher, node: SimulatedNode, driver: SimulatedDriver, scenario: Scenario) -> int:
    uuid = node.uuids[GPU]
    _expect(watcher, "the agent has judged every rule, its conditions are False",
            lambda seen: _status(seen, scenario) == "False", time.monotonic())
    print(f"\nGPU {GPU} ({node.slots[GPU]}) breaks:")
    node.log.write(f"NVRM: GPU at PCI:{node.slots[GPU].removesuffix('.0')}: {uuid}")
    broken = _do(scenario.title, scenario.breaks, node, driver)
    seen = _expect(watcher, f"condition {scenario.condition}=True",
                   lambda seen: _status(seen, scenario) == "True", broken)
    _expect(watcher, "annotation nodeguard.io/faults names the GPU", lambda seen: uuid in annotation(seen), broken)
    if scenario.taint:
        seen = _expect(watcher, "taint nodeguard.io/unhealthy:NoSchedule", taint, broken)
    _print_node(seen)
    if scenario.mend is not None:
        print("\nit is mended:")
        mended = _do(scenario.mend_title, scenario.mend, node, driver)
        _expect(watcher, f"condition {scenario.condition}=False",
                lambda seen: _status(seen, scenario) == "False", mended)
        _expect(watcher, "taint removed", lambda seen: taint(seen) is None, mended)
    return 0


def _do(title: str, deed: Deed, node: SimulatedNode, driver: SimulatedDriver) -> float:
    begin = time.monotonic()
    deed(node, driver)
    print(f"  {0:8.1f} ms  {title}")
    return begin


def _status(node: Object, scenario: Scenario) -> object:
    return (condition(node, scenario.condition) or {}).get("status")


def _expect(watcher: Watcher, what: str, wanted: Callable[[Object], Any], since: float) -> Object:
    found: list[Object] = []

    def check(node: Object) -> bool:
        if wanted(node):
            found.append(node)
            return True
        return False

    at = watcher.wait_for(check, after=since, timeout=_PATIENCE)
    if at is None:
        raise NodeguardError(f"not seen within {_PATIENCE:g} s: {what}")
    print(f"  {(at - since) * 1000:8.1f} ms  {what}")
    return found[-1]


def _print_node(node: Object) -> None:
    print("\nwhat the Node says now:")
    for one in (node.get("status") or {}).get("conditions") or []:
        print(f"  {one['type']:<20} {one['status']:<6} {one['reason']:<24} {one['message']}")
