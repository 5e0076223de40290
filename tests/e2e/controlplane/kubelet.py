"""A kubelet that runs nothing: it registers a Node and plays its pods.

To the control plane it looks like one: own identity, own Node and Lease, pods that
are bound to it become Running, and are ended and removed when deleted. To stop it is
to lose the node: nothing is said to the API server.
"""

from __future__ import annotations

import datetime as dt
import http.client
import threading
from typing import TYPE_CHECKING, Self

from . import podstatus
from .admin import STRATEGIC_PATCH, Admin, ApiError, Object, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_RETRY_SECONDS = 0.2
_WATCH_SECONDS = 300
_DEFAULT_CAPACITY = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}


class FakeKubelet:
    """The kubelet of node `name`; `api` must log in as ``system:node:name``."""

    def __init__(
        self,
        name: str,
        api: Admin,
        *,
        capacity: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        lease_seconds: float = 10.0,
    ) -> None:
        self.name = name
        self.exit_code_on_term = podstatus.SIGTERM_EXIT
        """How containers end when their pod is deleted; with 0 a Job counts it as done."""
        self.termination_seconds = 0.0
        """How long they take to, at most the pod's own grace period."""
        self.failures: list[str] = []
        """What the API server refused, other than for a pod that had gone; all is retried."""
        self._api = api
        self._capacity = dict(_DEFAULT_CAPACITY if capacity is None else capacity)
        self._labels = {"kubernetes.io/hostname": name, **(labels or {})}
        self._lease_seconds = lease_seconds
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._watch: Watch | None = None
        self._ending: set[str] = set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Register the Node, renew its Lease, run its pods; also after `stop`."""
        self._stopped.clear()
        self._ending.clear()
        self._register()
        for loop in (self._heartbeat, self._follow_pods):
            thread = threading.Thread(target=self._forever, args=(loop,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Fall silent, as a node does that lost its power."""
        self._stopped.set()
        watch = self._watch
        if watch is not None:
            watch.close()
        for thread in self._threads:
            thread.join(timeout=15)
        self._threads.clear()

    def finish(self, namespace: str, pod: str, exit_code: int) -> None:
        """Let the containers of `pod` end by themselves; its restart policy decides what follows."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        found = self._api.get(path)
        if podstatus.restarts_in_place(found, exit_code):
            self._set_status(found, podstatus.restarted(found, exit_code))
        else:
            self._set_status(found, podstatus.ended(found, exit_code))

    def _register(self) -> None:
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": self._labels},
        }
        try:
            self._api.create("/api/v1/nodes", node)
        except ApiError as error:
            if error.status != 409:
                raise
        self._write_node_status()
        self._renew_lease()

    def _forever(self, loop: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            self._attempt(loop)

    def _attempt(self, act: Callable[[], None]) -> None:
        """Do `act`; after an error, wait until it makes sense to try again."""
        try:
            act()
        except (OSError, http.client.HTTPException):
            self._stopped.wait(_RETRY_SECONDS)
        except ApiError as error:
            if not self._stopped.is_set():
                self.failures.append(str(error))
            self._stopped.wait(_RETRY_SECONDS)

    def _heartbeat(self) -> None:
        self._renew_lease()
        if not self._is_ready():
            self._write_node_status()
        self._stopped.wait(self._lease_seconds)

    def _is_ready(self) -> bool:
        conditions = self._api.get(f"/api/v1/nodes/{self.name}")["status"].get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def _write_node_status(self) -> None:
        now = podstatus.timestamp()
        types = dict.fromkeys(("MemoryPressure", "DiskPressure", "PIDPressure"), "False")
        conditions = [
            {
                "type": kind,
                "status": status,
                "reason": "FakeKubelet",
                "message": "a test's kubelet",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind, status in {**types, "Ready": "True"}.items()
        ]
        status = {
            "capacity": self._capacity,
            "allocatable": self._capacity,
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        }
        # Strategic: conditions merge by type, so that others' stay.
        self._api.patch(f"/api/v1/nodes/{self.name}/status", {"status": status}, STRATEGIC_PATCH)

    def _renew_lease(self) -> None:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": now}
        try:
            self._api.patch(f"{_LEASES}/{self.name}", {"spec": spec})
        except ApiError as error:
            if error.status != 404:
                raise
            self._create_lease(spec)

    def _create_lease(self, spec: Object) -> None:
        uid = self._api.get(f"/api/v1/nodes/{self.name}")["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": uid}
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "ownerReferences": [owner]},
            "spec": spec,
        }
        self._api.create(_LEASES, lease)

    def _follow_pods(self) -> None:
        mine = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.name}"
        pods = self._api.get(mine)
        for pod in pods["items"]:
            self._sync(pod)
        version = pods["metadata"]["resourceVersion"]
        path = f"{mine}&watch=1&resourceVersion={version}&timeoutSeconds={_WATCH_SECONDS}"
        self._watch = self._api.watch(path, timeout=_WATCH_SECONDS + 10)
        if self._stopped.is_set():
            self._watch.close()
        for event in self._watch:
            if event["type"] in ("ADDED", "MODIFIED"):
                self._sync(event["object"])
            elif event["type"] == "ERROR":
                return  # list anew

    def _sync(self, pod: Object) -> None:
        if self._stopped.is_set():
            return
        if "deletionTimestamp" in pod["metadata"]:
            self._terminate(pod)
        elif pod["status"].get("phase", "Pending") == "Pending":
            _tolerating_gone(lambda: self._set_status(pod, podstatus.running(pod)))

    def _terminate(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._ending:
            return
        self._ending.add(uid)
        own_grace = pod["metadata"].get("deletionGracePeriodSeconds", 0)
        delay = min(self.termination_seconds, own_grace)
        if delay <= 0:
            self._end_or_retry(pod)
            return
        timer = threading.Timer(delay, self._end_at_last, args=(pod,))
        timer.daemon = True
        timer.start()

    def _end_or_retry(self, pod: Object) -> None:
        try:
            self._end(pod)
        except BaseException:
            # The pods are listed anew, and this one must not pass for ended.
            self._ending.discard(pod["metadata"]["uid"])
            raise

    def _end_at_last(self, pod: Object) -> None:
        """End `pod` from a timer's thread, through outages of the API server."""
        done = threading.Event()

        def attempt() -> None:
            self._end(pod)
            done.set()

        while not (done.is_set() or self._stopped.is_set()):
            self._attempt(attempt)

    def _end(self, pod: Object) -> None:
        if self._stopped.is_set():
            return
        path = _pod_path(pod)
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            status = podstatus.ended(pod, self.exit_code_on_term)
            _tolerating_gone(lambda: self._set_status(pod, status))
        uid = pod["metadata"]["uid"]
        _tolerating_gone(lambda: self._api.delete(path, grace=0, uid=uid))

    def _set_status(self, pod: Object, status: Object) -> None:
        # The UID makes it a conflict if another pod has the name by now.
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        self._api.patch(f"{_pod_path(pod)}/status", body, STRATEGIC_PATCH)


def _tolerating_gone(act: Callable[[], object]) -> None:
    try:
        act()
    except ApiError as error:
        if error.status not in (404, 409):
            raise


def _pod_path(pod: Object) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
