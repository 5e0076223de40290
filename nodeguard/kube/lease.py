"""Leases (coordination.k8s.io/v1): a sign of life that is cheap to write and to follow. Pure builders and counts."""

import math

from nodeguard.kube.api import Object
from nodeguard.kube.patches import rfc3339

SHORTEST_PERIOD = 2.0
"""Seconds between renewals in a small cluster."""

RENEWALS_PER_SECOND = 200
"""What all agents together may cost the API server; this is where the period of a large cluster comes from."""

NODES_PATH = "/api/v1/nodes"
"""Where the holders are counted."""

_PERIODS_UNTIL_SILENT = 3


def leases_path(namespace: str) -> str:
    """The path of a namespace's Leases."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def lease_path(namespace: str, name: str) -> str:
    """The path of a Lease."""
    return f"{leases_path(namespace)}/{name}"


def renewal_period(nodes: int) -> float:
    """Seconds between the renewals of a Lease in a cluster of so many nodes."""
    return max(SHORTEST_PERIOD, nodes / RENEWALS_PER_SECOND)


def count_of(first_page: Object) -> int:
    """How many objects a collection holds, from a list with ``limit=1``."""
    more = (first_page.get("metadata") or {}).get("remainingItemCount") or 0
    return len(first_page.get("items") or ()) + int(more)


def renewal(holder: str, period: float, wall: float) -> Object:
    """A merge patch that renews a Lease at Unix time ``wall``.

    ``leaseDurationSeconds`` is three periods, rounded up: a follower knows from the Lease alone how long a silence is
    too long, whatever the size of the cluster.
    """
    duration = math.ceil(period * _PERIODS_UNTIL_SILENT)
    return {"spec": {"holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": micro_time(wall)}}


def node_lease(node: Object, namespace: str, period: float, wall: float) -> Object:
    """A new Lease of a Node's name; the Node owns it, so it is collected as garbage when the Node is deleted."""
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    spec = {**renewal(name, period, wall)["spec"], "acquireTime": micro_time(wall)}
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    return {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]}, "spec": spec,
    }


def micro_time(wall: float) -> str:
    """Unix time as metav1.MicroTime, which refuses any other number of digits than six."""
    return rfc3339(wall, "milliseconds").removesuffix("Z") + "000Z"
