"""Who owns a pod at the top of its controller chain, and how such an owner is restarted."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nodeguard.kube.api import Api, Object
from nodeguard.model.errors import ApiError, ApiNotFound, ApiRefused
from nodeguard.remediation.views import OwnerRef, PodView, controller_of

How = Literal["suspend", "run-policy", "ray", "volcano", "kueue", "workload", "evict", "evict-unknown"]
"""By ``spec.suspend``, by ``spec.runPolicy.suspend``, RayJob's and Volcano's own ways, Kueue's (whose Workload is made
inactive where the policy allows that), or pod by pod; ``evict-unknown`` tells with an Event that nobody knows whether
the kind heals by itself."""

KINDS: Mapping[tuple[str, str], tuple[str, How]] = {
    ("batch", "Job"): ("jobs", "suspend"),
    ("jobset.x-k8s.io", "JobSet"): ("jobsets", "suspend"),
    ("trainer.kubeflow.org", "TrainJob"): ("trainjobs", "suspend"),
    **{("kubeflow.org", kind): (kind.lower() + "s", "run-policy")
       for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")},
    ("ray.io", "RayJob"): ("rayjobs", "ray"),
    ("batch.volcano.sh", "Job"): ("jobs", "volcano"),
    ("ray.io", "RayCluster"): ("rayclusters", "evict"),
    ("apps", "ReplicaSet"): ("replicasets", "evict"),
    ("apps", "Deployment"): ("deployments", "evict"),
    ("apps", "StatefulSet"): ("statefulsets", "evict"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): ("leaderworkersets", "evict"),
    ("argoproj.io", "Workflow"): ("workflows", "evict"),
    ("batch", "CronJob"): ("cronjobs", "evict"),
}
"""Group and kind → plural and how. To restart another kind: a row here, and its right in deploy/remediation.yaml."""

RESTARTED: frozenset[How] = frozenset({"suspend", "run-policy", "ray", "workload"})
"""Ways that suspend the owner and resume it."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""On what Kueue manages (kueue pkg/controller/constants)."""

_JOB_CONTROLLER = "kubernetes.io/job-controller"
_LONGEST_CHAIN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The top of a pod's controller chain."""

    uid: str
    path: str
    """Of the object in the API; empty for a pod without a controller."""
    namespace: str
    name: str
    kind: str
    api_version: str
    how: How
    stands_for: str = ""
    """UID of the top owner that a Kueue Workload stands for; empty for every other kind."""

    @property
    def gang(self) -> str:
        """UID of the pods' top owner."""
        return self.stands_for or self.uid

    @property
    def title(self) -> str:
        """Such as ``Job training/llm``."""
        return f"{self.kind} {self.namespace}/{self.name}"


class Owners:
    """Finds top owners, and remembers them by the pod's direct controller. For several threads."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[str, Owner] = {}
        self._plurals: dict[tuple[str, str], str | None] = {}
        self._lock = threading.Lock()

    def known(self, pod: PodView) -> Owner | None:
        """The top owner if it was looked up before; never asks the API server."""
        return bare(pod) if pod.owner is None else self._known.get(pod.owner.uid)

    def of(self, pod: PodView) -> Owner:
        """The top owner. ApiError when it cannot be told now; an owner that is gone counts as unknown."""
        found = self.known(pod)
        if found is None and pod.owner is not None:
            found = self._walk(pod.namespace, pod.owner)
            with self._lock:
                self._known[pod.owner.uid] = found
        return found if found is not None else bare(pod)

    def keep(self, uids: frozenset[str]) -> None:
        """Keep only what these direct controllers lead to."""
        with self._lock:
            self._known = {uid: owner for uid, owner in self._known.items() if uid in uids}

    def read(self, owner: Owner) -> Object:
        """The owner as it is now. ApiNotFound: it is gone."""
        found = self._api.get(owner.path)
        if (found.get("metadata") or {}).get("uid") != owner.uid:
            raise ApiNotFound(f"{owner.title} is another one now")
        return found

    def _walk(self, namespace: str, ref: OwnerRef) -> Owner:
        queued = False
        for _ in range(_LONGEST_CHAIN):
            path = self.path(namespace, ref)
            found = self._get(path) if path is not None else None
            if found is None or (found.get("metadata") or {}).get("uid", ref.uid) != ref.uid:
                # gone, or another one under its name, which must not be taken for it
                return _owner(namespace, ref, path or "", "evict-unknown")
            queued = queued or QUEUE_LABEL in ((found.get("metadata") or {}).get("labels") or {})
            above = controller_of(found)
            if above is None:
                return _owner(namespace, ref, path or "", "kueue" if queued else how_of(ref, found))
            ref = above
        return _owner(namespace, ref, "", "evict-unknown")

    def _get(self, path: str) -> Object | None:
        try:
            return self._api.get(path)
        except (ApiNotFound, ApiRefused):
            return None

    def path(self, namespace: str, ref: OwnerRef) -> str | None:
        """Where the object is in the API; None for a kind that the server does not serve."""
        group, _, _version = ref.api_version.rpartition("/")
        known = KINDS.get((group, ref.kind))
        plural = known[0] if known is not None else self._plural(ref.api_version, ref.kind)
        if plural is None:
            return None
        root = f"/apis/{ref.api_version}" if group else f"/api/{ref.api_version}"
        return f"{root}/namespaces/{namespace}/{plural}/{ref.name}"

    def _plural(self, api_version: str, kind: str) -> str | None:
        key = (api_version, kind)
        if key not in self._plurals:
            root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            listed = (self._get(root) or {}).get("resources") or ()
            self._plurals[key] = next((one["name"] for one in listed
                                       if one.get("kind") == kind and "/" not in one["name"]), None)
        return self._plurals[key]


def how_of(ref: OwnerRef, found: Object) -> How:
    """How this top owner is restarted, by its kind and by what it says of itself."""
    group = ref.api_version.rpartition("/")[0]
    how = KINDS.get((group, ref.kind), ("", "evict-unknown"))[1]
    spec = found.get("spec") or {}
    if (group, ref.kind) == ("batch", "Job") and spec.get("managedBy") not in (None, _JOB_CONTROLLER):
        return "evict-unknown"
    # a RayJob that keeps or borrows its cluster does not end its pods when it is suspended (ray-operator, RayJobSpec)
    if how == "ray" and (not spec.get("shutdownAfterJobFinishes") or spec.get("clusterSelector")):
        return "evict"
    return how


def bare(pod: PodView) -> Owner:
    """A pod without a controller stands for itself; nobody makes another one."""
    return Owner(uid=pod.uid, path="", namespace=pod.namespace, name=pod.name, kind="Pod", api_version="v1",
                 how="evict")


def try_owner(owners: Owners, pod: PodView) -> Owner | None:
    """The top owner; None when the API server does not tell it now."""
    try:
        return owners.of(pod)
    except ApiError:
        return None


def _owner(namespace: str, ref: OwnerRef, path: str, how: How) -> Owner:
    return Owner(uid=ref.uid, path=path, namespace=namespace, name=ref.name, kind=ref.kind,
                 api_version=ref.api_version, how=how)
