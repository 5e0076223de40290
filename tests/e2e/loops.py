"""The remediation loop as a real process under its shipped rights, the jobs it moves, and the nodes they run on."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import time
import uuid
from typing import TYPE_CHECKING, Any, Self

import yaml

from .agents import AgentProcess, eventually, http_status, read_metrics
from .controlplane.admin import ApiError
from .controlplane.kept import KeptAdmin
from .controlplane.kubelet import FakeKubelet
from .controlplane.process import free_port
from .manifests import DAEMONSET, NAMESPACE, agent_token, apply, remove, wait_in_force, without

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from .controlplane.admin import Admin, Object
    from .controlplane.cluster import Cluster

LOOP_ACCOUNT = "nodeguard-remediate"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LOOP_ACCOUNT}"
RECORD = "nodeguard.io/remediation"
RESTART = "nodeguard.io/restart"
REMEDIATION = DAEMONSET.with_name("remediation.yaml")
GPU = "nvidia.com/gpu"
UNCONTAINED = "pid=71, name=python3, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"
"""The words of an Xid 95 (open-gpu-kernel-modules): its rule evicts."""

GENEROUS: Object = {
    "budget": {"maxUnavailable": "100%", "maxNodes": 10_000, "window": "1s"}, "storm": {"nodes": 100_000},
    "ruleBrake": {"nodes": 100_000}, "gangs": {"apart": "1s", "perDay": 10_000}, "release": {"healthyFor": "1s"}}
"""A policy whose limits no test meets unless it sets them."""


def loop_objects() -> list[Object]:
    """What ``remediation.yaml`` gives the loop, without the pods that would run it."""
    found = yaml.safe_load_all(REMEDIATION.read_text())
    return [one for one in found if one["kind"] not in ("Deployment", "PodDisruptionBudget", "ConfigMap")]


@contextlib.contextmanager
def installed(cluster: Cluster) -> Iterator[None]:
    """Everything shipped is installed but the DaemonSet and the Deployment, and in force; gone at the end."""
    objects = [*without("DaemonSet"), *loop_objects()]
    apply(cluster.admin, objects)
    name = f"in-force-{uuid.uuid4().hex[:8]}"
    cluster.admin.create("/api/v1/nodes", {"metadata": {"name": name}})
    wait_in_force(cluster, name)
    cluster.admin.delete(f"/api/v1/nodes/{name}")
    yield
    remove(cluster.admin, objects)


class LoopProcess(AgentProcess):
    """One ``nodeguard remediate`` under the shipped ServiceAccount's token. A context manager."""

    def __init__(self, cluster: Cluster, directory: Path, policy: Object | None = None, *, identity: str = "one",
                 kubeconfig: Path | None = None) -> None:
        """``policy``: sections that differ from :data:`GENEROUS`. ``kubeconfig``: None makes one, straight."""
        self.identity, self.port = identity, free_port()
        self._admin = cluster.admin
        file = directory / f"{identity}-policy.yaml"
        file.write_text(json.dumps(policy_text(policy or {})))
        config = kubeconfig or cluster.kubeconfig_for_token(cluster.token(NAMESPACE, LOOP_ACCOUNT))
        super().__init__(
            "--kubeconfig", str(config), "--policy", str(file), "--namespace", NAMESPACE, "--identity", identity,
            "--listen", f"127.0.0.1:{self.port}", log=directory / f"{identity}.log",
            command="remediate")

    def wait_ready(self, seconds: float = 20.0) -> None:
        """Wait until it knows every Node and pod."""
        eventually(lambda: http_status(self.port, "/readyz") == 200, "the loop is ready", seconds, self.output)

    def wait_leading(self, seconds: float = 40.0) -> None:
        """Wait until it leads, too."""
        self.wait_ready(seconds)
        eventually(lambda: self.metrics()["nodeguard_remediation_leading"] == 1, "the loop leads", seconds, self.output)

    def metrics(self) -> dict[str, float]:
        """Its Prometheus page."""
        return read_metrics(self.port)


def policy_text(sections: Object) -> Object:
    """A policy file's document."""
    return {"apiVersion": "nodeguard.io/v1", "kind": "RemediationPolicy", "metadata": {"name": "test"},
            **GENEROUS, **sections}


class Nodes:
    """Fake kubelets that only this one test's or fault's pods are scheduled to. A context manager."""

    def __init__(self, cluster: Cluster, count: int, *, prefix: str | None = None, termination: float = 0.0,
                 gpus: int = 8) -> None:
        self.place = prefix or f"p{uuid.uuid4().hex[:8]}"
        """Value of the label ``e2e-place``, by which pods choose these nodes."""
        self.names = [f"{self.place}-{number}" for number in range(count)]
        self._cluster = cluster
        capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)}
        self._logins = {name: KeptAdmin(cluster.as_node(name)) for name in self.names}
        self.kubelets = {name: FakeKubelet(name, login, capacity=capacity, labels={"e2e-place": self.place})
                         for name, login in self._logins.items()}
        for kubelet in self.kubelets.values():
            kubelet.termination_seconds = termination

    def __enter__(self) -> Self:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda one: one.start(), self.kubelets.values()))
        for name in self.names:
            self._cluster.admin.wait_for(f"/api/v1/nodes/{name}", lambda node: not node["spec"].get("taints"),
                                         seconds=30)
        return self

    def __exit__(self, *_: object) -> None:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: one.stop(), self.kubelets.values()))
        for name, login in self._logins.items():
            login.close()
            self._cluster.admin.delete(f"/api/v1/nodes/{name}")

    def kubeconfig(self, node: str) -> Path:
        """A kubeconfig of the agent of a node, under a token bound to it."""
        return self._cluster.kubeconfig_for_token(agent_token(self._cluster, node))


def template(place: str, *, gpus: int = 8, restart: str = "OnFailure", grace: int = 30, **spec: Any) -> Object:
    """A pod's template for the nodes of a place."""
    container = {"name": "main", "image": "registry.invalid/none", "resources": {"limits": {GPU: str(gpus)}}}
    return {"metadata": {"labels": {"e2e-place": place}},
            "spec": {"restartPolicy": restart, "nodeSelector": {"e2e-place": place}, "containers": [container],
                     "terminationGracePeriodSeconds": grace, **spec}}


def job(name: str, place: str, ranks: int = 2, *, template_spec: Object | None = None, gpus: int = 8,
        restart: str = "OnFailure", **spec: Any) -> Object:
    """An Indexed Job of so many ranks, a whole node each."""
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {
        "completionMode": "Indexed", "parallelism": ranks, "completions": ranks, "backoffLimit": 1000,
        "template": template(place, gpus=gpus, restart=restart, **(template_spec or {})), **spec}}


def replica_set(name: str, place: str, replicas: int = 1, *, gpus: int = 8, **template_spec: Any) -> Object:
    """A ReplicaSet."""
    labels = {"app": name}
    pod = template(place, gpus=gpus, restart="Always", **template_spec)
    pod["metadata"]["labels"] |= labels
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}}


COLLECTIONS = {"Job": "/apis/batch/v1/namespaces/{}/jobs", "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
               "Pod": "/api/v1/namespaces/{}/pods"}


def create(admin: Admin, namespace: str, body: Object) -> str:
    """Create a Job, ReplicaSet or Pod; its path."""
    collection = COLLECTIONS[body["kind"]].format(namespace)
    admin.create(collection, body)
    return f"{collection}/{body['metadata']['name']}"


def pods(admin: Admin, namespace: str, place: str) -> list[Object]:
    """The pods of a place."""
    found: list[Object] = admin.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector=e2e-place%3D{place}")["items"]
    return found


def running(found: Iterable[Object], count: int) -> bool:
    """Whether so many of these pods run, and no others are left."""
    found = list(found)
    return len(found) == count and all(
        pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"] for pod in found)


def wait_running(admin: Admin, namespace: str, place: str, count: int, seconds: float = 30.0) -> list[Object]:
    """Wait until exactly so many pods are there and run."""
    seen: list[Object] = []

    def look() -> bool:
        seen[:] = pods(admin, namespace, place)
        return running(seen, count)

    eventually(look, f"{count} pods of {place} run", seconds, lambda: brief_pods(seen))
    return seen


def brief_pods(found: Iterable[Object]) -> list[tuple[str, Any, Any, bool]]:
    """Names, nodes, phases and whether they are ending."""
    return [(pod["metadata"]["name"], pod["spec"].get("nodeName"), pod["status"].get("phase"),
             "deletionTimestamp" in pod["metadata"]) for pod in found]


def discard(admin: Admin, namespace: str, paths: Sequence[str], place: str) -> None:
    """Delete owners and then their pods, without grace."""
    for path in paths:
        with contextlib.suppress(ApiError):
            admin.request("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1",
                                           "propagationPolicy": "Background"})
    admin.request("DELETE", f"/api/v1/namespaces/{namespace}/pods?labelSelector=e2e-place%3D{place}",
                  {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})


def record(node: Object) -> Object | None:
    """The loop's record on a Node."""
    text = node["metadata"].get("annotations", {}).get(RECORD)
    return None if text is None else json.loads(text)


def loop_taint(node: Object) -> str | None:
    """The state in the loop's taint."""
    return next((str(one["value"]) for one in node["spec"].get("taints", ()) if one["key"] == RECORD), None)


def slots(admin: Admin) -> list[str]:
    """Nodes with a budget slot."""
    annotations = admin.get(LEASE)["metadata"].get("annotations", {})
    return sorted(json.loads(annotations.get("nodeguard.io/budget", "{}")).get("slots", {}))


def fault(rule: str = "gpu-xid-uncontained-ecc", **fields: Any) -> Object:
    """A fault as an agent writes it in its annotation."""
    return {"rule": rule, "hash": "0123456789abcdef", "device": "gpu/GPU-a", "pci": None, "severity": "critical",
            "action": "reset_gpu", "effect": "evict", "scope": "node", "count": 1, "since": stamp(), **fields}


def stamp() -> str:
    """Now, as the agent writes it."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"


def say_faults(api: Admin, node: str, *faults: Object) -> None:
    """Write the agent's annotation and, for a fault that taints, its taint, as the agent does."""
    document = {"v": 1, "boot": "b", "rules": "r", "at": stamp(), "cut": 0, "types": [], "faults": list(faults)}
    taints = any(one["effect"] in ("noschedule", "evict") for one in faults)
    conditions = [{"type": "GpuMemoryFault", "status": str(taints), "reason": "Test", "message": "a test's words"}]
    api.patch(f"/api/v1/nodes/{node}/status", {
        "metadata": {"annotations": {"nodeguard.io/faults": json.dumps(document)}},
        "status": {"conditions": conditions}}, "application/strategic-merge-patch+json")


def wait_record(admin: Admin, node: str, wanted: Callable[[Object | None], object], seconds: float = 20.0) -> Object:
    """Wait until the loop's record on a Node is as ``wanted``."""
    return admin.wait_for(f"/api/v1/nodes/{node}", lambda found: wanted(record(found)), seconds=seconds)


