"""A kubelet that runs nothing: it registers a Node and plays its pods.

To the control plane it looks like one: own Node and Lease, pods that are bound to it become Running, and are ended and
removed when deleted. To stop it is to lose the node: nothing is said to the API server.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from nodeguard.kube.api import MERGE_PATCH, STRATEGIC_PATCH, Api, Object, node_path
from nodeguard.kube.lease import NODES_PATH, lease_path, leases_path, node_lease, renewal
from nodeguard.model.errors import ApiConflict, ApiError, ApiNotFound
from nodeguard.sim import cluster_pods

CAPACITY: Mapping[str, str] = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}

_LEASES = "kube-node-lease"
_LEASE_PERIOD = 40 / 3
"""A kubelet's leaseDurationSeconds is 40 (kubelet.config.k8s.io nodeLeaseDurationSeconds): three periods."""
_PODS_PATH = "/api/v1/pods"
_RETRY_SECONDS = 0.2
_WATCH_SECONDS = 300


class FakeKubelet:
    """The kubelet of node ``name``; ``api`` may log in as ``system:node:name``, or as an administrator."""

    def __init__(  # noqa: PLR0913 - what a Node says of itself
        self, name: str, api: Api, *, capacity: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None, taints: Sequence[Object] = (), boot_id: str = "",
        lease_seconds: float = 10.0,
    ) -> None:
        self.name = name
        self.boot_id = boot_id
        """Told to the API at the next :meth:`start`."""
        self.exit_code_on_term = cluster_pods.SIGTERM_EXIT
        """How containers end when their pod is deleted; with 0 a Job counts it as done."""
        self.termination_seconds = 0.0
        """How long they take to, at most the pod's own grace period."""
        self.failures: list[str] = []
        """What the API server refused, other than for a pod that had gone; all is retried."""
        self._api = api
        self._capacity = dict(CAPACITY if capacity is None else capacity)
        self._labels = {"kubernetes.io/hostname": name, **(labels or {})}
        self._taints = list(taints)
        self._lease_seconds = lease_seconds
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._ending: set[str] = set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Register the Node, renew its Lease, run its pods; also after :meth:`stop`. ApiError: it cannot register."""
        self._stopped.clear()
        self._ending.clear()
        self._register()
        for loop in (self._heartbeat, self._follow_pods):
            thread = threading.Thread(target=self._forever, args=(loop,), name=f"kubelet-{self.name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Fall silent, as a node does that lost its power."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(timeout=15)
        self._threads.clear()

    def finish(self, namespace: str, pod: str, exit_code: int) -> None:
        """Let the containers of ``pod`` end by themselves; its restart policy decides what follows."""
        found = self._api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
        if cluster_pods.restarts_in_place(found, exit_code):
            self._set_status(found, cluster_pods.restarted(found, exit_code))
        else:
            self._set_status(found, cluster_pods.ended(found, exit_code))

    def _register(self) -> None:
        node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": self._labels}}
        if self._taints:
            node["spec"] = {"taints": self._taints}
        with contextlib.suppress(ApiConflict):  # it was here before
            self._api.post(NODES_PATH, node)
        self._write_node_status()
        self._renew_lease()

    def _forever(self, loop: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            self._attempt(loop)

    def _attempt(self, act: Callable[[], None]) -> None:
        """Do ``act``; after an error, wait until it makes sense to try again."""
        try:
            act()
        except ApiError as error:
            if error.status and not self._stopped.is_set():
                self.failures.append(str(error))
            self._stopped.wait(_RETRY_SECONDS)

    def _heartbeat(self) -> None:
        self._renew_lease()
        if not self._is_ready():
            self._write_node_status()
        self._stopped.wait(self._lease_seconds)

    def _is_ready(self) -> bool:
        conditions = self._api.get(node_path(self.name))["status"].get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def _write_node_status(self) -> None:
        status: Object = {
            "capacity": self._capacity, "allocatable": self._capacity, "conditions": ready_conditions(),
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}
        if self.boot_id:
            status["nodeInfo"] = {"bootID": self.boot_id}
        # strategic: conditions merge by type, so that others' stay
        self._api.patch(f"{node_path(self.name)}/status", {"status": status}, STRATEGIC_PATCH)

    def _renew_lease(self) -> None:
        now = time.time()
        try:
            self._api.patch(lease_path(_LEASES, self.name), renewal(self.name, _LEASE_PERIOD, now), MERGE_PATCH)
        except ApiNotFound:
            node = self._api.get(node_path(self.name))
            self._api.post(leases_path(_LEASES), node_lease(node, _LEASES, _LEASE_PERIOD, now))

    def _follow_pods(self) -> None:
        mine = {"fieldSelector": f"spec.nodeName={self.name}"}
        pods = self._api.get(_PODS_PATH, mine)
        for pod in pods["items"]:
            self._sync(pod)
        since = {"resourceVersion": pods["metadata"]["resourceVersion"], "timeoutSeconds": str(_WATCH_SECONDS)}
        for event in self._api.watch(_PODS_PATH, {**mine, **since}, self._stopped):
            if event["type"] in ("ADDED", "MODIFIED"):
                self._sync(event["object"])

    def _sync(self, pod: Object) -> None:
        if self._stopped.is_set():
            return
        if "deletionTimestamp" in pod["metadata"]:
            self._terminate(pod)
        elif pod["status"].get("phase", "Pending") == "Pending":
            _tolerating_gone(lambda: self._set_status(pod, cluster_pods.running(pod)))

    def _terminate(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._ending:
            return
        self._ending.add(uid)
        delay = min(self.termination_seconds, pod["metadata"].get("deletionGracePeriodSeconds", 0))
        if delay <= 0:
            self._end_or_retry(pod)
            return
        timer = threading.Timer(delay, self._end_at_last, args=(pod,))
        timer.daemon = True
        timer.start()

    def _end_or_retry(self, pod: Object) -> None:
        ended = False
        try:
            self._end(pod)
            ended = True
        finally:
            if not ended:  # the pods are listed anew, and this one must not pass for ended
                self._ending.discard(pod["metadata"]["uid"])

    def _end_at_last(self, pod: Object) -> None:
        """End ``pod`` from a timer's thread, through outages of the API server."""
        done = threading.Event()

        def attempt() -> None:
            self._end(pod)
            done.set()

        while not (done.is_set() or self._stopped.is_set()):
            self._attempt(attempt)

    def _end(self, pod: Object) -> None:
        if self._stopped.is_set():
            return
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            status = cluster_pods.ended(pod, self.exit_code_on_term)
            _tolerating_gone(lambda: self._set_status(pod, status))
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                   "preconditions": {"uid": pod["metadata"]["uid"]}}
        _tolerating_gone(lambda: self._api.delete(cluster_pods.pod_path(pod), options))

    def _set_status(self, pod: Object, status: Object) -> None:
        # the UID makes it a conflict if another pod has the name by now
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        self._api.patch(f"{cluster_pods.pod_path(pod)}/status", body, STRATEGIC_PATCH)


def ready_conditions() -> list[Object]:
    """The conditions of a Node that is well, as its kubelet writes them."""
    now = cluster_pods.timestamp()
    types = {**dict.fromkeys(("MemoryPressure", "DiskPressure", "PIDPressure"), "False"), "Ready": "True"}
    return [{"type": kind, "status": status, "reason": "FakeKubelet", "message": "nothing runs here",
             "lastHeartbeatTime": now, "lastTransitionTime": now} for kind, status in types.items()]


def _tolerating_gone(act: Callable[[], object]) -> None:
    try:
        act()
    except (ApiNotFound, ApiConflict):
        return
