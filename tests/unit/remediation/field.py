"""What the cases from the field have in common: owners, paths and a healthy node."""

from .rig import Rig

JOB = "/apis/batch/v1/namespaces/training/jobs/llm"
STATEFUL = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "sts"}
REPLICAS = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs"}
DAEMONS = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "ds"}


def one_node(*more: str) -> Rig:
    """A healthy node (and others), seen by a loop."""
    rig = Rig()
    for name in ("a", *more):
        rig.cluster.node(name)
        rig.cluster.fault(name)
    return rig


def eviction(name: str) -> str:
    """The path of a pod's eviction."""
    return f"/api/v1/namespaces/training/pods/{name}/eviction"
