"""Where the demo plays: a namespace, Nodes with kubelets that run nothing, and a training Job; all gone at the end.

Every object of it has the label ``nodeguard.io/demo``. The Nodes have a taint of that name, so that nobody else's pods
come to them, and the label by which an installed loop leaves them alone.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from nodeguard.kube.api import Api, Object, node_path
from nodeguard.kube.lease import lease_path
from nodeguard.model.errors import ApiConflict, ApiError, ApiNotFound, ApiRefused, NodeguardError
from nodeguard.sim.cluster import PODS
from nodeguard.sim.cluster_kubelet import FakeKubelet
from nodeguard.sim.cluster_scope import LABEL, Scoped
from nodeguard.sim.fleet import FleetNode

RANKS = 2
JOB = "training"

_EXCLUDED = "nodeguard.io/exclude"
"""Label of nodes that a loop under the shipped policy only watches; the demo's own policy does not name it."""
_NAMESPACES = "/api/v1/namespaces"
_EVENTS = "/api/v1/namespaces/default/events"
_GPUS = "nvidia.com/gpu"
_PODS_END_SECONDS = 10.0


class Stage:
    """A context manager. NodeguardError: the cluster refuses what it needs, or something could not be removed."""

    def __init__(self, api: Api, nodes: Sequence[FleetNode], mark: str) -> None:
        self.api: Api = Scoped(api, mark)
        """The cluster as far as the demo goes."""
        self.namespace = f"nodeguard-demo-{mark}"
        self.labels = {LABEL: mark, _EXCLUDED: "true"}
        self.taints = [{"key": LABEL, "value": mark, "effect": "NoSchedule"}]
        self.kubelets = {node.name: FakeKubelet(node.name, api, labels=self.labels, taints=self.taints,
                                                boot_id=node.boot_id) for node in nodes}
        self._mark = mark
        self._exit = contextlib.ExitStack()
        self._left: list[str] = []

    @property
    def job_path(self) -> str:
        """The training Job in the API."""
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{JOB}"

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack, _in_plain_words():
            stack.callback(self._tried, lambda: self.api.delete(f"{_NAMESPACES}/{self.namespace}"))
            self._make_namespace()
            for name, kubelet in self.kubelets.items():
                stack.callback(self.remove_node, name)
                stack.callback(kubelet.stop)
                kubelet.start()
            stack.callback(self._remove_job)
            self.api.post(self.job_path.removesuffix(f"/{JOB}"), training_job(self._mark))
            self._exit = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._exit.__exit__(kind, error, trace)
        if self._left and kind is None:
            raise NodeguardError("not everything of the demo could be removed: " + "; ".join(self._left))

    def remove_node(self, name: str) -> None:
        """Remove a Node, its kubelet's Lease, and the Events about it."""
        self._tried(lambda: self.api.delete(node_path(name)))
        self._tried(lambda: self.api.delete(lease_path("kube-node-lease", name)))
        about = {"fieldSelector": f"involvedObject.name={name}"}
        with contextlib.suppress(ApiError):
            for event in self.api.get(_EVENTS, about).get("items") or ():
                self._tried(partial(self.api.delete, f"{_EVENTS}/{event['metadata']['name']}"))

    def _make_namespace(self) -> None:
        self.api.post(_NAMESPACES, {"apiVersion": "v1", "kind": "Namespace",
                                    "metadata": {"name": self.namespace, "labels": {LABEL: self._mark}}})
        # no pod is admitted before it is there, and its controller may take seconds to make it
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        with contextlib.suppress(ApiConflict):
            self.api.post(f"{_NAMESPACES}/{self.namespace}/serviceaccounts", account)

    def _remove_job(self) -> None:
        """Remove the Job, and wait until the kubelets have ended its pods."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if not self._tried(lambda: self.api.delete(self.job_path, options)):
            return
        deadline, calm = time.monotonic() + _PODS_END_SECONDS, threading.Event()
        with contextlib.suppress(ApiError):
            while self.api.get(PODS)["items"] and time.monotonic() < deadline:
                calm.wait(0.05)

    def _tried(self, deed: Callable[[], object]) -> bool:
        try:
            deed()
        except ApiNotFound:
            return False
        except ApiError as error:
            self._left.append(str(error))
            return False
        return True


def training_job(mark: str) -> Object:
    """A Job of two ranks of a whole node each, which a kubelet restarts in place when their process fails."""
    container = {"name": "train", "image": "registry.invalid/train", "resources": {"limits": {_GPUS: "8"}}}
    template = {"metadata": {"labels": {LABEL: mark}}, "spec": {
        "restartPolicy": "OnFailure", "nodeSelector": {LABEL: mark}, "containers": [container],
        "tolerations": [{"key": LABEL, "operator": "Exists"}]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": JOB, "labels": {LABEL: mark}}, "spec": {
        "completionMode": "Indexed", "parallelism": RANKS, "completions": RANKS, "backoffLimit": 1000,
        "template": template}}


@contextlib.contextmanager
def _in_plain_words() -> Iterator[None]:
    try:
        yield
    except ApiRefused as error:
        raise NodeguardError(f"the cluster refuses what the demo needs, {error}; "
                             "give the kubeconfig of an administrator") from error
