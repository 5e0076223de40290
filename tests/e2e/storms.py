"""Many nodes that fall ill at once: a real engine and Node writer for each, under tokens bound to their Nodes."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, Self

from nodeguard.app.rulesource import RuleSource
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.kube.client import KubeClient
from nodeguard.model.clock import SystemClock
from nodeguard.model.device import gpu_at
from nodeguard.model.sample import Batch, Event, Sample, SourceState
from nodeguard.sinks.log import configure

from .controlplane.kept import KeptAdmin
from .fleet import Agent
from .loops import GPU
from .manifests import agent_token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .controlplane.admin import Object
    from .controlplane.cluster import Cluster

HANDS = 8
"""Threads that write at the same time."""
_SLOT = gpu_at("0000:1b:00.0")


class NodeObjects:
    """Nodes with GPUs and a pod on each, but nobody who runs them. A context manager.

    ``admin`` is an administrator's access over connections that are kept.
    """

    def __init__(self, cluster: Cluster, namespace: str, prefix: str, count: int, *, pods: bool = True) -> None:
        self.names = [f"{prefix}-{number:03}" for number in range(count)]
        self.namespace = namespace
        self._pods, self.admin = pods, KeptAdmin(cluster.admin)

    def __enter__(self) -> Self:
        self.each(self._create, self.names)
        return self

    def __exit__(self, *_: object) -> None:
        admin = self.admin
        admin.request("DELETE", f"/api/v1/namespaces/{self.namespace}/pods",
                      {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
        self.each(lambda name: admin.delete(f"/api/v1/nodes/{name}"), self.names)
        admin.close()

    def each(self, deed: Callable[[str], object], names: Iterable[str]) -> None:
        """Do something for many nodes, a few at a time."""
        with concurrent.futures.ThreadPoolExecutor(HANDS) as pool:
            list(pool.map(deed, names))

    def ending(self) -> list[str]:
        """Nodes whose pod was evicted."""
        found = self.admin.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return sorted(pod["spec"]["nodeName"] for pod in found if "deletionTimestamp" in pod["metadata"])

    def nodes(self) -> list[Object]:
        """As the API server has them."""
        found = self.admin.get("/api/v1/nodes?limit=2000")["items"]
        mine = set(self.names)
        return [node for node in found if node["metadata"]["name"] in mine]

    def _create(self, name: str) -> None:
        admin, status = self.admin, {"capacity": {GPU: "8", "pods": "10"}, "allocatable": {GPU: "8", "pods": "10"}}
        admin.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        admin.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        if self._pods:
            admin.create(f"/api/v1/namespaces/{self.namespace}/pods", pinned_pod(f"p-{name}", name))


def pinned_pod(name: str, node: str, **spec: object) -> Object:
    """A bare accelerator pod that is bound already."""
    container = {"name": "main", "image": "registry.invalid/none", "resources": {"limits": {GPU: "8"}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 600, **spec}}


class Agents:
    """Real agents' engines and writers, one a node, driven by this process. A context manager."""

    def __init__(self, cluster: Cluster, names: Sequence[str]) -> None:
        clock = SystemClock()
        log = configure("error", clock=clock)
        settings = resolve_agent_settings({"node_name": "storm", "no_kube": True, "soak": "0s"}, {})
        source = RuleSource(settings, log)
        rules, baseline = source.load({}), source.baseline()
        self._clients = {name: KubeClient.from_kubeconfig(cluster.kubeconfig_for_token(agent_token(cluster, name)))
                         for name in names}
        self._agents = {name: Agent(name, api, rules, baseline, soak=0.0, clock=clock, log=log)
                        for name, api in self._clients.items()}
        self._clock = clock

    def healthy(self, name: str) -> None:
        """Say for the first time that nothing is wrong; NVML is not looked at."""
        self._tell(name, Batch(source="nvml", facts=(SourceState(up=False, deliberate=True),)))

    def xid(self, name: str) -> None:
        """An uncontained ECC error."""
        self._tell(name, Batch(source="kmsg", events=(
            Event("gpu_xid", _SLOT, {"code": 95, "class": "uncontained"}, stamp=self._clock.boot()),)))

    def repaired(self, name: str) -> None:
        """The GPU was reset."""
        for value in (1.0, 0.0):
            self._tell(name, Batch(source="kmsg", samples=(Sample("gpu_recovery_action", _SLOT, value),)))

    def _tell(self, name: str, batch: Batch) -> None:
        self._agents[name].take(batch)
        self._agents[name].write()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()


