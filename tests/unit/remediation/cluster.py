"""A small cluster in memory: an API server with Nodes, pods and Jobs, whose controllers act when told to settle."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nodeguard.kube.api import READ_TIMEOUT, Object
from nodeguard.kube.fake import FakeApi
from nodeguard.kube.patches import rfc3339
from nodeguard.model.errors import ApiConflict, ApiNotFound, ApiUnavailable

NODES = "/api/v1/nodes"
GPU = "nvidia.com/gpu"
_COLLECTION = re.compile(r".*/(jobs|jobsets|pytorchjobs|trainjobs|rayjobs|poddisruptionbudgets|workloads|commands)$")
_EVICTION = re.compile(r"(/api/v1/namespaces/[^/]+/pods/[^/]+)/eviction")
_GROUP = re.compile(r"/apis/([^/]+)$")
_VERSIONS = {"batch": "batch/v1", "jobset.x-k8s.io": "jobset.x-k8s.io/v1alpha2", "kubeflow.org": "kubeflow.org/v1"}


class Cluster(FakeApi):
    """What the loop speaks to. ``settle`` lets kubelets, the Job controller and the scheduler act once."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)
        self.blocked: set[str] = set()
        """Pods (``namespace/name``) that a disruption budget keeps."""
        self.stuck: set[str] = set()
        """UIDs of pods that never end."""
        self.tolerant = False
        """Whether pods tolerate every taint."""
        self.now = 1_700_000_000.0
        self._after: list[tuple[str, str, Callable[[], None]]] = []

    def after(self, method: str, path_prefix: str, act: Callable[[], None]) -> None:
        """Call ``act`` once, after the next such request was served and before its answer arrives."""
        self._after.append((method, path_prefix, act))

    def lose(self, method: str, path_prefix: str) -> None:
        """Let the answer to the next such request be lost: it was served."""
        def act() -> None:
            raise ApiUnavailable("the connection was reset")
        self.after(method, path_prefix, act)

    def _answered(self, method: str, path: str, answer: Object) -> Object:
        due = [one for one in self._after if one[0] == method and path.startswith(one[1])]
        self._after = [one for one in self._after if one not in due]
        for _, _, act in due:
            act()
        return answer

    def patch(self, path: str, body: Object, content_type: str, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`FakeApi`."""
        return self._answered("PATCH", path, super().patch(path, body, content_type, timeout))

    def delete(self, path: str, body: Object | None = None, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`FakeApi`."""
        return self._answered("DELETE", path, super().delete(path, body, timeout))

    def node(self, name: str, gpus: int = 8, **labels: str) -> None:
        """A ready accelerator node."""
        self.add(f"{NODES}/{name}", {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": dict(labels), "annotations": {}},
            "spec": {"providerID": f"sim://{name}"},
            "status": {"allocatable": {GPU: str(gpus), "cpu": "8"}, "nodeInfo": {"bootID": f"boot-{name}"},
                       "conditions": [{"type": "Ready", "status": "True"}]}})

    def fault(self, node: str, *faults: Object, at: float | None = None) -> None:
        """The agent's annotation; no faults: it has nothing to complain of."""
        stamp = rfc3339(self.now if at is None else at, "milliseconds")
        document = {"v": 1, "boot": f"boot-{node}", "rules": "r1", "at": stamp, "cut": 0, "types": [],
                    "faults": [{"since": stamp, **one} for one in faults]}
        self.annotate(node, "nodeguard.io/faults", json.dumps(document))

    def annotate(self, node: str, name: str, value: str | None) -> None:
        """As somebody else's ``kubectl annotate``."""
        def change(body: Object) -> None:
            annotations = body["metadata"].setdefault("annotations", {})
            annotations.pop(name, None)
            if value is not None:
                annotations[name] = value
        self.edit(f"{NODES}/{node}", change)

    def pod(self, name: str, node: str = "", *, gpus: int = 8, owner: Object | None = None, namespace: str = "training",
            **more: Any) -> str:
        """A running accelerator pod (pending without a node); its UID."""
        uid = f"pod-{next(self._numbers)}"
        metadata = {"name": name, "namespace": namespace, "uid": uid, "labels": more.pop("labels", {}),
                    "annotations": more.pop("annotations", {}), "creationTimestamp": rfc3339(self.now)}
        if owner is not None:
            metadata["ownerReferences"] = [{"controller": True, **owner}]
        spec = {"containers": [{"resources": {"limits": {GPU: str(gpus)}}}], "priority": more.pop("priority", 0)}
        status: Object = {"phase": more.pop("phase", "Running" if node else "Pending")}
        if node:
            spec["nodeName"] = node
            status["conditions"] = [{"type": "Ready", "status": "True"}]
        self.add(f"/api/v1/namespaces/{namespace}/pods/{name}", {"metadata": metadata, "spec": {**spec, **more},
                                                                   "status": status})
        return uid

    def job(self, name: str, nodes: tuple[str, ...], *, namespace: str = "training", **spec: Any) -> Object:
        """A Job with a rank on each node; a reference to it."""
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
        template = {"spec": {"restartPolicy": spec.pop("restart_policy", "OnFailure")}}
        metadata = {"name": name, "namespace": namespace, "uid": f"job-{name}", "labels": spec.pop("labels", {})}
        owners = spec.pop("owners", None)
        if owners:
            metadata["ownerReferences"] = owners
        self.add(path, {"kind": "Job", "metadata": metadata,
                        "spec": {"parallelism": len(nodes), "completions": len(nodes), "template": template, **spec}})
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"job-{name}"}
        for number, node in enumerate(nodes):
            self.pod(f"{name}-{number}", node, owner=reference, namespace=namespace)
        return reference

    def pods(self) -> Mapping[str, Object]:
        """Every pod by ``namespace/name``."""
        found = {}
        for body in self.under("/api/v1/namespaces"):
            metadata = body["metadata"]
            if "containers" in body.get("spec", {}):
                found[f"{metadata['namespace']}/{metadata['name']}"] = body
        return found

    def nodes(self) -> Mapping[str, Object]:
        """Every Node by name."""
        return {body["metadata"]["name"]: body for body in self.under(NODES)}

    def get(self, path: str, params: Mapping[str, str] | None = None, timeout: float = READ_TIMEOUT) -> Object:
        """Also lists collections, and tells which version of a group is preferred."""
        group = _GROUP.fullmatch(path)
        if group is not None:
            if group[1] not in _VERSIONS:
                raise ApiNotFound(f"{path} not found", status=404)
            return {"preferredVersion": {"groupVersion": _VERSIONS[group[1]]}}
        if _COLLECTION.fullmatch(path):
            return {"items": list(self._listed(path, (params or {}).get("labelSelector", "")))}
        return super().get(path, params, timeout)

    def _listed(self, path: str, label: str) -> Iterator[Object]:
        root, _, plural = path.rpartition("/")
        for key, body in list(self._objects.items()):
            if f"/{plural}/" in key and key.startswith(root) and (not label or label in body["metadata"]["labels"]):
                yield json.loads(json.dumps(body))

    def post(self, path: str, body: Object, timeout: float = READ_TIMEOUT) -> Object:
        """Also evicts."""
        eviction = _EVICTION.fullmatch(path)
        if eviction is None:
            metadata = {"uid": f"made-{next(self._numbers)}", **body["metadata"]}
            return self._answered("POST", path, super().post(path, {**body, "metadata": metadata}, timeout))
        try:
            super().post(path, body, timeout)
        finally:
            self._objects.pop(f"{path}/{body['metadata']['name']}", None)
        self._evict(eviction[1], body)
        return self._answered("POST", path, {})

    def _evict(self, path: str, body: Object) -> None:
        pod = self.read(path) if path in self._objects else None
        if pod is None:
            raise ApiNotFound(f"{path} not found", status=404)
        if pod["metadata"]["uid"] != body["deleteOptions"]["preconditions"]["uid"]:
            raise ApiConflict("another UID", status=409)
        if f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" in self.blocked:
            raise ApiUnavailable("Cannot evict pod as it would violate the pod's disruption budget.", status=429)
        self._end(path)

    def _end(self, path: str) -> None:
        self.edit(path, lambda pod: pod["metadata"].setdefault("deletionTimestamp", rfc3339(self.now)))

    def settle(self) -> None:
        """One round of every controller."""
        self._collect_garbage()
        for key, pod in self.pods().items():
            path = f"/api/v1/namespaces/{key.replace('/', '/pods/')}"
            gone_node = pod["spec"].get("nodeName") and pod["spec"]["nodeName"] not in self.nodes()
            if ("deletionTimestamp" in pod["metadata"] and pod["metadata"]["uid"] not in self.stuck) or gone_node:
                self.remove(path)
        for path, body in list(self._objects.items()):
            if "/jobs/" in path:
                self._run_job(path, body)
        self._schedule()

    def _collect_garbage(self) -> None:
        jobs = {body["metadata"]["uid"] for path, body in self._objects.items() if "/jobs/" in path}
        for key, pod in self.pods().items():
            owner = (pod["metadata"].get("ownerReferences") or [{}])[0]
            if owner.get("kind") == "Job" and owner["uid"] not in jobs:
                self._end(f"/api/v1/namespaces/{key.replace('/', '/pods/')}")

    def _run_job(self, path: str, job: Object) -> None:
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        for number in range(job["spec"]["completions"]):
            ranks = [pod for key, pod in self.pods().items() if key.startswith(f"{namespace}/{name}-{number}")]
            standing = [pod["metadata"]["name"] for pod in ranks if pod["status"]["phase"] != "Failed"]
            if job["spec"].get("suspend") and standing:
                self._end(f"/api/v1/namespaces/{namespace}/pods/{standing[0]}")
            elif not job["spec"].get("suspend") and not standing:
                again = f"-again-{len(ranks)}" if ranks else ""
                self.pod(f"{name}-{number}{again}", namespace=namespace, owner={
                    "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]})

    def _schedule(self) -> None:
        for key, pod in sorted(self.pods().items(), key=lambda item: -item[1]["spec"]["priority"]):
            if pod["spec"].get("nodeName"):
                continue
            node = next((name for name, node in self.nodes().items() if self._has_room(name, node, pod)), None)
            if node is not None:
                self._bind(f"/api/v1/namespaces/{key.replace('/', '/pods/')}", node)

    def _bind(self, path: str, node: str) -> None:
        ready = [{"type": "Ready", "status": "True"}]
        self.edit(path, lambda body: body.update(
            spec={**body["spec"], "nodeName": node}, status={"phase": "Running", "conditions": ready}))

    def _has_room(self, name: str, node: Object, pod: Object) -> bool:
        if not self.tolerant and (node["spec"].get("taints") or node["spec"].get("unschedulable")):
            return False
        used = sum(_gpus(one) for one in self.pods().values() if one["spec"].get("nodeName") == name)
        return used + _gpus(pod) <= int(node["status"]["allocatable"][GPU])


def _gpus(pod: Object) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["limits"][GPU])
