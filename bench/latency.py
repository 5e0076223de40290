"""From a kernel line to what a watcher of the Node sees, on the real API server and the real /dev/kmsg."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from bench.agents import agent
from bench.table import Row, percentile
from nodeguard.kube.client import KubeClient
from nodeguard.model.intent import TAINT_KEY
from nodeguard.sim.node import SimulatedNode
from nodeguard.sim.timeline import Watcher, annotation, condition, taint
from tests.e2e.controlplane.errors import ControlPlaneUnavailable
from tests.e2e.controlplane.server import ControlPlane

FAULTS = 200
FAULTS_AN_AGENT = 3
"""The node writer writes eight times at once and then once a second: a fresh agent for so many keeps it unthrottled."""
_PORT = 29822
_DEVICE = Path("/dev/kmsg")
_SWITCH = Path("/proc/sys/kernel/printk_devkmsg")
_NPD_MS = 1014.0
"""node-problem-detector, the same line to the same API server (measured beside a prototype of nodeguard)."""


def run() -> list[Row]:
    """200 faults, each on a Node of an agent of its own making."""
    try:
        plane = ControlPlane(with_scheduler=False, with_controller_manager=False)
    except ControlPlaneUnavailable as error:
        return [Row("kernel line → Node", None, "ms", note=str(error))]
    real = _can_write_kmsg()
    seen: dict[str, list[float]] = {"condition": [], "annotation": [], "taint": []}
    with plane, _unlimited(real=real):
        kubeconfig = plane.kubeconfig_for_token(plane.admin_token())
        api = KubeClient.from_kubeconfig(kubeconfig)
        number = 0
        while number < FAULTS:
            number = _one_agent(api, kubeconfig, number, real=real, seen=seen)
    where = f"{FAULTS} faults through {'the real /dev/kmsg' if real else 'a simulated kernel log'}"
    return [
        Row("line → condition visible, p50", percentile(seen["condition"], 0.5), "ms", 20, where),
        Row("line → condition visible, p99", percentile(seen["condition"], 0.99), "ms", 60,
            f"node-problem-detector {_NPD_MS:,.0f} ms, {_NPD_MS / percentile(seen['condition'], 0.5):,.0f} times p50"),
        Row("line → annotation visible, p99", percentile(seen["annotation"], 0.99), "ms", 80),
        Row("line → taint visible, p50", percentile(seen["taint"], 0.5), "ms", 30),
        Row("line → taint visible, p99", percentile(seen["taint"], 0.99), "ms", 80),
    ]


def _one_agent(api: KubeClient, kubeconfig: Path, number: int, *, real: bool, seen: dict[str, list[float]]) -> int:
    name = f"bench-{number}"
    api.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    watcher = Watcher(api, name)
    with SimulatedNode(name, gpus=1) as node, agent(node, kubeconfig, port=_PORT, real_kmsg=real):
        watcher.start()
        _await(watcher, "judged", lambda one: (condition(one, "GpuMemoryFault") or {}).get("status") == "False", 0.0)
        for _ in range(min(FAULTS_AN_AGENT, FAULTS - number)):
            _one_fault(watcher, node, number, real=real, seen=seen)
            number += 1
        watcher.stop()
    api.delete(f"/api/v1/nodes/{name}")
    return number


def _one_fault(watcher: Watcher, node: SimulatedNode, number: int, *, real: bool, seen: dict[str, list[float]]) -> None:
    slot = f"{number // 256:04x}:{number % 256:02x}:00"
    begin = _write(node, f"NVRM: Xid (PCI:{slot}): 95, pid=1, name=bench, Uncontained: LTC TAG (0x2,0x0). "
                         "RST: Yes, D-RST: No", real=real)
    for what, wanted in (
        ("condition", lambda one: (condition(one, "GpuMemoryFault") or {}).get("status") == "True"),
        ("annotation", lambda one: f"{slot}.0" in annotation(one)), ("taint", taint)):
        seen[what].append((_await(watcher, what, wanted, begin) - begin) * 1000)
    _write(node, f"NVRM: Xid (PCI:{slot}): 154, GPU recovery action changed from 0x0 (None) to 0x1 "
                 "(GPU Reset Required)", real=real)
    cleared = _write(node, f"NVRM: Xid (PCI:{slot}): 154, GPU recovery action changed from 0x1 (GPU Reset Required) "
                           "to 0x0 (None)", real=real)
    _await(watcher, f"no {TAINT_KEY}", lambda one: taint(one) is None
           and (condition(one, "GpuMemoryFault") or {}).get("status") == "False", cleared)


def _await(watcher: Watcher, what: str, wanted: object, after: float) -> float:
    assert callable(wanted)
    at = watcher.wait_for(wanted, after=after, timeout=20.0)
    if at is None:
        raise RuntimeError(f"not seen within 20 s: {what}")
    return at


def _write(node: SimulatedNode, text: str, *, real: bool) -> float:
    begin = time.monotonic()
    if real:
        with _DEVICE.open("wb", buffering=0) as device:
            device.write(f"{text}\n".encode())
    else:
        node.log.write(text)
    return begin


def _can_write_kmsg() -> bool:
    return os.access(_DEVICE, os.R_OK | os.W_OK) and os.access(_SWITCH, os.W_OK)


@contextlib.contextmanager
def _unlimited(*, real: bool) -> Iterator[None]:
    """Lift the kernel's rate limit on lines from programs (printk_devkmsg), and put it back."""
    if not real:
        yield
        return
    before = _SWITCH.read_text()
    _SWITCH.write_text("on\n")  # the kernel takes it with its newline only
    try:
        yield
    finally:
        _SWITCH.write_text(before)
