"""Fakes of two training controllers, as far as suspending goes: JobSet's and the training operator's for PyTorchJobs.

They are not the real controllers. Their objects are served by real CustomResourceDefinitions with a minimal schema; a
thread does what the real ones do when ``suspend`` changes (jobset pkg/controllers, training-operator
pkg/controller.v1): a JobSet's child Jobs are suspended and resumed with it and set back when somebody else writes them;
a PyTorchJob's pods have fixed names, are deleted when it is suspended and made again when it is resumed.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from typing import TYPE_CHECKING, Self

from .controlplane.admin import ApiError
from .controlplane.kept import KeptAdmin
from .loops import job, template

if TYPE_CHECKING:
    from .controlplane.admin import Object
    from .controlplane.cluster import Cluster

_LOOK_EVERY = 0.02
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GROUPS = {"JobSet": ("jobset.x-k8s.io", "v1alpha2", "jobsets"), "PyTorchJob": ("kubeflow.org", "v1", "pytorchjobs")}


def definition(kind: str) -> Object:
    """The CustomResourceDefinition: any spec."""
    group, version, plural = _GROUPS[kind]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"}, "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural,
                                                                 "singular": kind.lower()},
                "versions": [{"name": version, "served": True, "storage": True,
                              "schema": {"openAPIV3Schema": schema}}]}}


class FakeTrainer:
    """The controller of one object of such a kind. A context manager; leaving it removes the definition."""

    def __init__(self, cluster: Cluster, kind: str, namespace: str, name: str, place: str) -> None:
        group, version, plural = _GROUPS[kind]
        self.collection = f"/apis/{group}/{version}/namespaces/{namespace}/{plural}"
        self.path = f"{self.collection}/{name}"
        self._admin, self._kind, self._namespace, self._name, self._place = (
            KeptAdmin(cluster.admin), kind, namespace, name, place)
        self._api_version = f"{group}/{version}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._admin.create(_CRDS, definition(self._kind))
        crd = f"{_CRDS}/{definition(self._kind)['metadata']['name']}"
        self._admin.wait_for(crd, lambda one: any(
            condition["type"] == "Established" and condition["status"] == "True"
            for condition in (one.get("status") or {}).get("conditions") or ()))
        self._admin.wait_for(self.collection, bool, tolerate=(404, 429))
        spec: Object = {"runPolicy": {"suspend": False}} if self._kind == "PyTorchJob" else {"suspend": False}
        self._admin.create(self.collection, {
            "apiVersion": self._api_version, "kind": self._kind, "metadata": {"name": self._name}, "spec": spec})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)
        self._admin.delete(self.path)
        self._admin.delete(f"{_CRDS}/{definition(self._kind)['metadata']['name']}")
        self._admin.close()

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_EVERY):
            with contextlib.suppress(ApiError, OSError, http.client.HTTPException):
                self._turn()

    def _turn(self) -> None:
        found = self._admin.get(self.path)
        owner = {"apiVersion": self._api_version, "kind": self._kind, "name": self._name, "controller": True,
                 "uid": found["metadata"]["uid"]}
        if self._kind == "JobSet":
            self._follow_child(owner, suspend=bool(found["spec"]["suspend"]))
        else:
            self._follow_pods(owner, suspend=bool(found["spec"]["runPolicy"]["suspend"]))

    def _follow_child(self, owner: Object, *, suspend: bool) -> None:
        jobs = f"/apis/batch/v1/namespaces/{self._namespace}/jobs"
        try:
            child = self._admin.get(f"{jobs}/{self._name}-workers-0")
        except ApiError:
            body = job(f"{self._name}-workers-0", self._place)
            body["metadata"]["ownerReferences"] = [owner]
            self._admin.create(jobs, body)
            return
        if child["spec"].get("suspend", False) is not suspend:
            self._admin.patch(f"{jobs}/{self._name}-workers-0", {"spec": {"suspend": suspend}})

    def _follow_pods(self, owner: Object, *, suspend: bool) -> None:
        pods = f"/api/v1/namespaces/{self._namespace}/pods"
        standing = {pod["metadata"]["name"]: pod for pod in self._admin.get(pods)["items"]}
        for number in range(2):
            name = f"{self._name}-worker-{number}"
            pod = standing.get(name)
            if suspend and pod is not None and "deletionTimestamp" not in pod["metadata"]:
                self._admin.delete(f"{pods}/{name}")
            elif not suspend and pod is None:
                body = template(self._place)
                self._admin.create(pods, {"metadata": {"name": name, "ownerReferences": [owner], **body["metadata"]},
                                          "spec": body["spec"]})
