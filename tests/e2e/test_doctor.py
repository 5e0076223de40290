"""`nodeguard doctor` against a real API server, with the shipped manifest's rights and policies."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from nodeguard.app import doctor_kube
from nodeguard.kube.api import node_path
from nodeguard.kube.client import KubeClient

from .agents import eventually
from .manifests import NAMESPACE, agent_token, apply, remove, wait_in_force, without

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nodeguard.app.doctor_finding import Finding

    from .controlplane.cluster import Cluster
    from .controlplane.kubelet import FakeKubelet


@pytest.fixture
def agent(control_plane: Cluster, kubelet: FakeKubelet) -> Iterator[KubeClient]:
    """A client with the token of the agent on the kubelet's node; everything but the DaemonSet is installed."""
    parts = without("DaemonSet")
    apply(control_plane.admin, parts)
    wait_in_force(control_plane, kubelet.name)
    yield KubeClient.from_kubeconfig(control_plane.kubeconfig_for_token(agent_token(control_plane, kubelet.name)))
    remove(control_plane.admin, parts)


def shown(*findings: Finding) -> list[tuple[str, str]]:
    return [(one.check, one.verdict) for one in findings]


def test_the_agents_own_token(agent: KubeClient, kubelet: FakeKubelet) -> None:
    """Every right is there, the token is bound, its server's clock is this machine's; policies are not for its eyes."""
    node = kubelet.name
    found, at = doctor_kube.itself(agent, node)
    assert shown(*found, *doctor_kube.access(agent, node, NAMESPACE), *doctor_kube.policies(agent)) == [
        ("token", "ok"), ("rights", "ok"), ("confinement", "skipped")]
    assert at is not None
    assert abs(doctor_kube.skew(at, time.time) or 0) < 5
    assert doctor_kube.own_node(agent.get(node_path(node)), node).verdict == "ok"


def test_a_right_that_was_taken(control_plane: Cluster, agent: KubeClient, kubelet: FakeKubelet) -> None:
    """Without the Role in its namespace: the Lease and the brake, each with what does not work."""
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings/nodeguard-agent"
    control_plane.admin.delete(role)
    control_plane.admin.wait_gone(role)

    def missing() -> list[str]:
        return [one.says for one in doctor_kube.access(agent, kubelet.name, NAMESPACE)]

    eventually(lambda: len(missing()) == 3, "three rights are missing")
    assert [says.split(";")[0].removeprefix("not allowed: ") for says in missing()] == [
        f"create leases in {NAMESPACE}", f"patch leases {kubelet.name} in {NAMESPACE}",
        f"get configmaps nodeguard-brake in {NAMESPACE}"]


def test_an_administrators_token(control_plane: Cluster, agent: KubeClient, kubelet: FakeKubelet) -> None:
    """May see the policies, and is told that it is confined to no node."""
    client = KubeClient.from_kubeconfig(control_plane.kubeconfig_for_token(control_plane.admin_token()))
    found, _ = doctor_kube.itself(client, kubelet.name)
    assert shown(*found) == [("token", "warning")]
    assert shown(*doctor_kube.policies(client)) == [("confinement", "ok")]
