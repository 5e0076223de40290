"""A Job controller and a scheduler for the embedded API server, as clients of its API: imitations, see cluster_job.py.

Against a real cluster the demo does not run them: there the real ones act.
"""

import contextlib
import itertools
import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import Self

from nodeguard.kube.api import MERGE_PATCH, Api, Object
from nodeguard.kube.informer import Informer
from nodeguard.model.clock import Clock, SystemClock
from nodeguard.model.errors import ApiConflict, ApiError, ApiNotFound
from nodeguard.sim import cluster_job
from nodeguard.sim.cluster_pods import pod_path

NODES, PODS, JOBS = "/api/v1/nodes", "/api/v1/pods", "/apis/batch/v1/jobs"

_RETRY_SECONDS = 0.2
_LOOK_SECONDS = 1.0


class SimulatedControllers:
    """Acts whenever a Node, pod or Job changes. A context manager."""

    def __init__(self, api: Api, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self._api = api
        self._stop, self._changed = threading.Event(), threading.Event()
        informers = [Informer(api, path, clock, reduce=_version) for path in (NODES, PODS, JOBS)]
        runs = [lambda one=one: one.run(self._note, self._stop) for one in informers]
        self._threads = [threading.Thread(target=run, name="controllers", daemon=True) for run in (*runs, self._run)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._changed.set()
        for thread in self._threads:
            thread.join(5.0)

    def _note(self, _key: str, _old: str | None, _new: str | None) -> None:
        self._changed.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._changed.wait(_LOOK_SECONDS)
            self._changed.clear()
            try:
                self.turn()
            except ApiError:
                self._stop.wait(_RETRY_SECONDS)
                self._changed.set()

    def turn(self) -> None:
        """Do what is due, from the objects as they are now. ApiError: not all of it was done."""
        by_job: defaultdict[str, list[Object]] = defaultdict(list)
        for pod in self._listed(PODS):
            by_job[cluster_job.owner_uid(pod)].append(pod)
        jobs = {job["metadata"]["uid"]: job for job in self._listed(JOBS)}
        for uid, pods in by_job.items():
            if uid:
                self._delete(cluster_job.surplus(jobs.get(uid), pods))
        for uid, job in jobs.items():
            self._fill(job, by_job[uid])
        self._schedule()

    def _listed(self, path: str) -> list[Object]:
        found: list[Object] = self._api.get(path)["items"]
        return found

    def _delete(self, pods: Iterable[Object]) -> None:
        for pod in pods:
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod["metadata"]["uid"]}}
            with contextlib.suppress(ApiNotFound, ApiConflict):  # it has gone meanwhile
                self._api.delete(pod_path(pod), options)

    def _fill(self, job: Object, pods: list[Object]) -> None:
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        for pod in cluster_job.missing(job, pods):
            self._api.post(f"/api/v1/namespaces/{namespace}/pods", pod)
        wanted = cluster_job.status(job, pods)
        if {key: job.get("status", {}).get(key) for key in wanted} != wanted:
            with contextlib.suppress(ApiNotFound):
                path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}/status"
                self._api.patch(path, {"status": wanted}, MERGE_PATCH)

    def _schedule(self) -> None:
        pods, nodes = self._listed(PODS), self._listed(NODES)
        bound = [pod for pod in pods if pod["spec"].get("nodeName")]
        for pod in itertools.filterfalse(lambda one: one["spec"].get("nodeName"), pods):
            name = cluster_job.place(pod, nodes, bound) if cluster_job.alive(pod) else None
            if name is not None:
                self._bind(pod, name)
                bound.append({**pod, "spec": {**pod["spec"], "nodeName": name}})

    def _bind(self, pod: Object, node: str) -> None:
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        with contextlib.suppress(ApiNotFound, ApiConflict):
            self._api.post(f"{pod_path(pod)}/binding", body)


def _version(item: Object) -> str:
    return str(item["metadata"]["resourceVersion"])
