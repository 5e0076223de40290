"""`kubectl apply -f deploy/daemonset.yaml` installs the agent, twice as well as once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .controlplane.admin import MERGE_PATCH
from .manifests import ACCOUNT, DAEMONSET, NAMESPACE, apply, only, path_of, remove, shipped, without

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .controlplane.admin import Admin, Object
    from .controlplane.cluster import Cluster
    from .controlplane.kubelet import FakeKubelet

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@pytest.fixture
def clean(admin: Admin) -> Iterator[None]:
    """Nothing of it is left after the test."""
    yield
    remove(admin, shipped())


def test_every_object_is_accepted(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet, clean: None) -> None:
    """kubectl applies the file, and again without a change; each object passes strict validation as it is."""
    control_plane.kubectl("apply", "-f", str(DAEMONSET))
    again = control_plane.kubectl("apply", "-f", str(DAEMONSET)).splitlines()
    assert len(again) == len(shipped())
    assert [line for line in again if not line.endswith(" unchanged")] == []
    assert len(apply(admin, shipped(), dry_run=True)) == len(shipped())


def test_policies_have_no_type_errors(control_plane: Cluster, admin: Admin, clean: None) -> None:
    """The API server's type checker finds nothing to warn of in the CEL."""
    apply(admin, without("DaemonSet"))
    for policy in only("ValidatingAdmissionPolicy"):
        checked = admin.wait_for(path_of(policy), lambda one: "typeChecking" in (one.get("status") or {}), seconds=30)
        assert checked["status"]["typeChecking"].get("expressionWarnings", []) == []


def test_agent_runs_on_a_tainted_node(admin: Admin, kubelet: FakeKubelet, clean: None) -> None:
    """The DaemonSet's pod is admitted, scheduled onto a cordoned node with foreign taints, and knows its node."""
    taints = [{"key": "example.com/broken", "effect": "NoSchedule"}, {"key": "example.com/gone", "effect": "NoExecute"}]
    labels = {"kubernetes.io/os": "linux"}  # as every real kubelet labels its own Node
    admin.patch(f"/api/v1/nodes/{kubelet.name}",
                {"metadata": {"labels": labels}, "spec": {"unschedulable": True, "taints": taints}})
    apply(admin, shipped())
    pod = _pod_on(admin, kubelet.name)
    assert pod["spec"]["serviceAccountName"] == ACCOUNT
    assert pod["spec"]["priorityClassName"] == "system-node-critical"
    (token,) = [volume for volume in pod["spec"]["volumes"] if "projected" in volume]
    assert any("serviceAccountToken" in source for source in token["projected"]["sources"])


def test_apply_keeps_the_operators_overrides(control_plane: Cluster, admin: Admin, clean: None) -> None:
    """What an operator put into the ConfigMap of overrides survives a newer manifest."""
    control_plane.kubectl("apply", "-f", str(DAEMONSET))
    (overrides,) = only("ConfigMap")
    admin.patch(path_of(overrides), {"data": {"ours.yaml": "kind: Overrides"}}, MERGE_PATCH)
    control_plane.kubectl("apply", "-f", str(DAEMONSET))
    assert admin.get(path_of(overrides))["data"] == {"ours.yaml": "kind: Overrides"}


def _pod_on(admin: Admin, node: str) -> Object:
    def running(pods: Object) -> list[Object]:
        return [one for one in pods["items"]
                if one["spec"].get("nodeName") == node and one["status"]["phase"] == "Running"]

    (pod,) = running(admin.wait_for(PODS, running, seconds=30))
    return dict(pod)
