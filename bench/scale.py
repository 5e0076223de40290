"""The remediation loop beside 5,000 Nodes on a real API server: memory, decisions while Nodes change, a list anew."""

import concurrent.futures
import itertools
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.table import Row, percentile
from tests.e2e import loops
from tests.e2e.controlplane.admin import STRATEGIC_PATCH, Object
from tests.e2e.controlplane.errors import ControlPlaneUnavailable
from tests.e2e.controlplane.kept import KeptAdmin
from tests.e2e.controlplane.proxy import FaultProxy
from tests.e2e.controlplane.server import ControlPlane
from tests.e2e.manifests import NAMESPACE, apply, only
from tests.e2e.storms import pinned_pod
from tests.e2e.watching import Watching

NODES = int(os.environ.get("NODEGUARD_BENCH_NODES", "5000"))
CHURN_SECONDS = 30.0
FAULTS = 30
"""Evicting faults, one a second while other Nodes change."""
_HANDS = 8
_PODS = "/api/v1/namespaces/default/pods"
_QUANTILE = 'nodeguard_remediation_decision_delay_seconds{quantile="0.99"}'


def run() -> list[Row]:
    """Nodes with a pod each; nothing but the API server and the loop."""
    try:
        plane = ControlPlane(with_scheduler=False, with_controller_manager=False)
    except ControlPlaneUnavailable as error:
        return [Row("loop at scale", None, "MiB", note=str(error))]
    with plane, tempfile.TemporaryDirectory() as directory:
        admin = KeptAdmin(plane.admin)
        apply(admin, [*only("Namespace"), *loops.loop_objects()])
        began = time.monotonic()
        _each(lambda number: _create(admin, number), range(NODES))
        print(f"bench: {NODES} Nodes made in {time.monotonic() - began:.0f} s", file=sys.stderr)
        rows = [*_decisions(plane, admin, Path(directory)), *_relist(plane, Path(directory))]
        admin.close()
    return rows


def _decisions(plane: ControlPlane, admin: KeptAdmin, directory: Path) -> Iterable[Row]:
    began = time.monotonic()
    with loops.LoopProcess(plane, directory) as loop:
        loop.wait_leading(120)
        known = time.monotonic() - began
        yield Row(f"loop with {NODES} Nodes and pods: start → leads", known, "s")
        yield Row("loop: RSS when all is known", loop.rss() / (1 << 20), "MiB", 300)
        stop = threading.Event()
        with Watching(plane.admin) as watching:
            churn = threading.Thread(target=_churn, args=(admin, stop))
            churn.start()
            sent = [_fault(admin, watching, number) for number in range(FAULTS)]
            stop.set()
            churn.join()
        yield Row("Node changed → eviction visible, p50, while 1 % of Nodes change a second",
                  percentile(sent, 0.5), "ms", None, f"{FAULTS} faults")
        yield Row("Node changed → eviction visible, p99", percentile(sent, 0.99), "ms", 100)
        yield Row("Node's change arrived → decided, p99 (the loop's own metric)",
                  1000 * loop.metrics()[_QUANTILE], "ms", 100)
        yield Row("loop: RSS after that", loop.rss() / (1 << 20), "MiB", 300)


def _relist(plane: ControlPlane, directory: Path) -> Iterable[Row]:
    """Its watches are cut, and their resourceVersions are gone (410): until it watches again."""
    with plane.proxy() as proxy:
        login = plane.kubeconfig_for_token(plane.token(NAMESPACE, loops.LOOP_ACCOUNT), server=proxy.url, ca=proxy.ca)
        with loops.LoopProcess(plane, directory, identity="two", kubeconfig=login) as loop:
            loop.wait_ready(120)
            took = max(_again(proxy, path) for path in ("/api/v1/nodes?", "/api/v1/pods?"))
            yield Row("lists anew after 410, the longer of Nodes and pods, through a proxy", took, "s", 20)
            yield Row("loop: RSS after that", loop.rss() / (1 << 20), "MiB", 300)


def _again(proxy: FaultProxy, path: str) -> float:
    proxy.fail_next(410, path=path, watches=True)
    began = time.monotonic()
    proxy.reset_connections()
    while True:
        seen = [one for one in proxy.requests("GET", path) if one.at > began]
        listed = next((number for number, one in enumerate(seen) if not one.is_watch), len(seen))
        watched = next((one.at for one in seen[listed:] if one.is_watch), None)
        if watched is not None:
            return watched - began
        if time.monotonic() > began + 60:
            raise RuntimeError(f"{path} is not followed again")
        time.sleep(0.02)


def _create(admin: KeptAdmin, number: int) -> None:
    name = f"scale-{number:05}"
    resources = {"cpu": "192", "memory": "2Ti", "pods": "110", loops.GPU: "8"}
    labels = {f"example.com/label-{label}": f"value-{number}-{label}" for label in range(15)}
    images = [{"names": [f"registry.invalid/image-{image}@sha256:{'0' * 64}"], "sizeBytes": 1} for image in range(20)]
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready"}]
    admin.create("/api/v1/nodes", {
        "apiVersion": "v1", "kind": "Node", "metadata": {
            "name": name, "labels": labels, "annotations": {"nodeguard.io/faults": _annotation()}},
        "spec": {"providerID": f"sim://{name}"},
        "status": {"capacity": resources, "allocatable": resources, "conditions": conditions, "images": images}})
    pod = pinned_pod(f"p-{name}", name)
    pod["spec"]["tolerations"] = [{"operator": "Exists"}]
    admin.create(_PODS, pod)


def _annotation(*faults: Object) -> str:
    return json.dumps({"v": 1, "boot": "b", "rules": "r", "at": loops.stamp(), "cut": 0, "types": [],
                       "faults": list(faults)})


def _say(admin: KeptAdmin, number: int, *faults: Object) -> None:
    admin.patch(f"/api/v1/nodes/scale-{number:05}/status",
                {"metadata": {"annotations": {"nodeguard.io/faults": _annotation(*faults)}}}, STRATEGIC_PATCH)


def _churn(admin: KeptAdmin, stop: threading.Event) -> None:
    """Agents of the second half of the Nodes tell of mild faults, and of their ends."""
    mild = loops.fault(effect="condition", action="none")
    period = 100 / NODES
    with concurrent.futures.ThreadPoolExecutor(_HANDS) as pool:
        due = time.monotonic()
        for turn in itertools.count():
            number = NODES // 2 + turn % (NODES // 2)
            pool.submit(_say, admin, number, *([mild] if turn % 2 else []))
            due += period
            if stop.wait(max(0.0, due - time.monotonic())):
                return


def _fault(admin: KeptAdmin, watching: Watching, number: int) -> float:
    """Milliseconds from an agent's PATCH until its pod's eviction is visible to a watcher."""
    time.sleep(CHURN_SECONDS / FAULTS)
    began = time.monotonic()
    _say(admin, number, loops.fault())
    key = f"default/p-scale-{number:05}"
    ending = watching.wait(lambda: watching.first(
        "pods", key, lambda one: one is None or "deletionTimestamp" in one["metadata"], began), key)
    return 1000 * (ending - began)


def _each(deed: Callable[[int], object], numbers: Iterable[int]) -> None:
    with concurrent.futures.ThreadPoolExecutor(_HANDS) as pool:
        for _ in pool.map(deed, numbers):
            pass
