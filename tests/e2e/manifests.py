"""The shipped manifests, applied to a cluster as an administrator would, and what they call the agent and the loop."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from .controlplane.admin import Admin, ApiError, Object

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .controlplane.cluster import Cluster

DAEMONSET = Path(__file__).parents[2] / "deploy" / "daemonset.yaml"
REMEDIATION = DAEMONSET.with_name("remediation.yaml")
NAMESPACE, ACCOUNT, LOOP_ACCOUNT = "nodeguard", "nodeguard-agent", "nodeguard-remediate"
APPLY = "application/apply-patch+yaml"
_COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}


def shipped(file: Path = DAEMONSET) -> list[Object]:
    """Every object of a manifest, in its order."""
    return list(yaml.safe_load_all(file.read_text()))


def only(*kinds: str) -> list[Object]:
    """Those of these kinds."""
    return [one for one in shipped() if one["kind"] in kinds]


def without(*kinds: str) -> list[Object]:
    """Those of all other kinds."""
    return [one for one in shipped() if one["kind"] not in kinds]


def path_of(one: Object) -> str:
    """Where an object lives."""
    metadata = one["metadata"]
    return f"{_COLLECTIONS[one['kind']].format(namespace=metadata.get('namespace'))}/{metadata['name']}"


def apply(admin: Admin, objects: Iterable[Object], *, dry_run: bool = False) -> list[Object]:
    """Server-side apply with strict validation: an unknown or doubled field is an error."""
    query = "?fieldManager=e2e&force=true&fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
    return [admin.patch(path_of(one) + query, one, APPLY) for one in objects]


def remove(admin: Admin, objects: Iterable[Object]) -> None:
    """Delete them, last first, and wait for namespaces to go."""
    for one in reversed(list(objects)):
        admin.delete(path_of(one))
    admin.wait_gone(f"/api/v1/namespaces/{NAMESPACE}", seconds=60)


def agent_token(cluster: Cluster, node: str) -> str:
    """A token of the agent's service account that says it belongs to ``node``."""
    return cluster.node_bound_token(node, NAMESPACE, ACCOUNT)


def wait_in_force(cluster: Cluster, node: str) -> None:
    """Wait until RBAC lets the agent of ``node`` write and every policy refuses what is not its own (dry runs)."""
    agent = cluster.with_token(agent_token(cluster, node))
    other = {"metadata": {"name": "nodeguard-no-such-node"}}
    event = {**other, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}}
    tries: list[tuple[str, str, Object]] = [
        ("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": {"e2e": "1"}}}),
        ("PATCH", f"/api/v1/nodes/{node}/status", {"metadata": {"labels": {"e2e": "1"}}}),
        ("POST", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases", other),
        ("POST", "/api/v1/namespaces/default/events", event)]
    for method, path, body in tries:
        _wait_refused(agent, method, path, body)


def _wait_refused(agent: Admin, method: str, path: str, body: Object, seconds: float = 20.0) -> None:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    end, said = time.monotonic() + seconds, "nothing was refused"
    while time.monotonic() < end:
        try:
            agent.request(method, path + "?dryRun=All", body, kind)
        except ApiError as error:
            said = str(error)
            if "ValidatingAdmissionPolicy" in said:
                return
        time.sleep(0.05)
    raise AssertionError(f"the policy is not in force after {seconds} s: {method} {path}: {said}")
