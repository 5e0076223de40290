"""The control plane itself does what the other tests rely on.

Aspects: a node registers and runs pods; pods end as a kubelet ends them; taints;
identities (a kubelet's, a node-bound token's); an outage; nothing is left behind.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from .controlplane.admin import JSON_PATCH, Admin, ApiError
from .controlplane.cluster import KEEP_ENV, Cluster
from .controlplane.errors import ControlPlaneUnavailable
from .controlplane.kubelet import FakeKubelet
from .controlplane.server import ControlPlane

if TYPE_CHECKING:
    from .controlplane.proxy import FaultProxy

NewPod = Callable[..., str]


def _phase(wanted: str) -> Callable[[dict[str, object]], bool]:
    def holds(pod: dict[str, object]) -> bool:
        status = pod["status"]
        return isinstance(status, dict) and status.get("phase") == wanted

    return holds


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_pod_is_scheduled_runs_and_is_deleted(
    admin: Admin, kubelet: FakeKubelet, new_pod: NewPod
) -> None:
    """A pod is bound to a fake kubelet's node, becomes Running, and goes when deleted."""
    path = new_pod("one", node=kubelet.name)
    pod = admin.wait_for(path, _phase("Running"))
    assert pod["spec"]["nodeName"] == kubelet.name
    admin.delete(path)
    admin.wait_gone(path)
    assert kubelet.failures == []


def test_termination_takes_its_time_within_the_grace_period(
    admin: Admin, kubelet: FakeKubelet, new_pod: NewPod
) -> None:
    """A pod that needs a while to end stays Terminating for that while."""
    kubelet.termination_seconds = 0.5
    path = new_pod("slow", node=kubelet.name)
    admin.wait_for(path, _phase("Running"))
    began = time.monotonic()
    admin.delete(path)
    assert "deletionTimestamp" in admin.get(path)["metadata"]
    admin.wait_gone(path)
    assert time.monotonic() - began >= 0.5


@pytest.mark.parametrize("case", [("Never", 0, "Succeeded"), ("Never", 3, "Failed"), ("OnFailure", 0, "Succeeded")])
def test_containers_end_for_good(
    admin: Admin, kubelet: FakeKubelet, new_pod: NewPod, case: tuple[str, int, str]
) -> None:
    """A pod whose containers end is done, unless its restart policy says otherwise."""
    policy, code, phase = case
    path = new_pod("ends", node=kubelet.name, restart_policy=policy)
    admin.wait_for(path, _phase("Running"))
    kubelet.finish(path.split("/")[4], "ends", code)
    pod = admin.wait_for(path, _phase(phase))
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == code


def test_failed_container_is_restarted_in_place(
    admin: Admin, kubelet: FakeKubelet, new_pod: NewPod
) -> None:
    """Under OnFailure a failure is a restart; the pod stays Running."""
    path = new_pod("again", node=kubelet.name, restart_policy="OnFailure")
    admin.wait_for(path, _phase("Running"))
    kubelet.finish(path.split("/")[4], "again", 9)
    status = admin.get(path)["status"]
    assert status["phase"] == "Running"
    assert status["containerStatuses"][0]["restartCount"] == 1


def test_lost_node_keeps_its_pods(admin: Admin, kubelet: FakeKubelet, new_pod: NewPod) -> None:
    """A kubelet that stopped ends nothing; one that returns ends what was deleted meanwhile."""
    path = new_pod("orphan", node=kubelet.name)
    admin.wait_for(path, _phase("Running"))
    kubelet.stop()
    admin.delete(path)
    assert "deletionTimestamp" in admin.get(path)["metadata"]
    kubelet.start()
    admin.wait_gone(path)


def test_taint_patch_is_guarded_by_the_resource_version(admin: Admin, node: str) -> None:
    """A taint lands with the right resourceVersion and is refused with a stale one."""
    path = f"/api/v1/nodes/{node}"
    taint = {"key": "nodeguard.io/unhealthy", "value": "Test", "effect": "NoSchedule"}

    def add_taint(found: dict[str, Any]) -> dict[str, Any]:
        taints = [*found["spec"].get("taints", []), taint]
        version = found["metadata"]["resourceVersion"]
        return admin.patch(
            path, {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}
        )

    def landed(found: dict[str, Any]) -> bool:
        try:
            return taint in add_taint(found)["spec"]["taints"]
        except ApiError as error:
            if error.status != 409:
                raise
            return False  # the node lifecycle controller was faster

    stale = admin.wait_for(path, landed)
    with pytest.raises(ApiError) as refused:
        add_taint(stale)
    assert refused.value.status == 409


def test_json_patch_tests_the_resource_version(admin: Admin, node: str) -> None:
    """A JSON patch whose `test` fails changes nothing."""
    path = f"/api/v1/nodes/{node}"
    patch = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}},
    ]
    with pytest.raises(ApiError) as refused:
        admin.request("PATCH", path, patch, JSON_PATCH)
    assert refused.value.status == 422


def test_watch_sees_a_change(admin: Admin, node: str) -> None:
    """A watch tells of the patch that came after it began."""
    version = admin.get(f"/api/v1/nodes/{node}")["metadata"]["resourceVersion"]
    selector = f"fieldSelector=metadata.name%3D{node}"
    path = f"/api/v1/nodes?watch=1&{selector}&resourceVersion={version}"
    watch = admin.watch(path, timeout=1.0)
    admin.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {"seen": "yes"}}})
    # The node lifecycle controller changes a new node as well.
    seen = [event["object"]["metadata"].get("annotations", {}).get("seen") for event in watch]
    assert seen[-1] == "yes"


def test_kubelet_may_not_taint_its_node(control_plane: Cluster, kubelet: FakeKubelet) -> None:
    """NodeRestriction holds: a node's own identity cannot add a taint or read others."""
    api = control_plane.as_node(kubelet.name)
    taint = {"key": "k", "effect": "NoSchedule"}
    with pytest.raises(ApiError) as refused:
        api.patch(f"/api/v1/nodes/{kubelet.name}", {"spec": {"taints": [taint]}})
    assert refused.value.status == 403


def test_node_bound_token_says_its_node(control_plane: Cluster, node: str, namespace: str) -> None:
    """A token bound to a Node carries the claim that the admission policy reads."""
    token = control_plane.node_bound_token(node, namespace, "default")
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    who = control_plane.with_token(token).create(path, review)["status"]["userInfo"]
    assert who["username"] == f"system:serviceaccount:{namespace}:default"
    assert who["extra"]["authentication.kubernetes.io/node-name"] == [node]


def test_token_dies_with_its_node(
    control_plane: Cluster, admin: Admin, node: str, namespace: str
) -> None:
    """A node-bound token is refused once the Node is gone."""
    token = control_plane.node_bound_token(node, namespace, "default")
    admin.delete(f"/api/v1/nodes/{node}")
    stranger = control_plane.with_token(token)
    end = time.monotonic() + 30
    status = 0
    while status != 401 and time.monotonic() < end:
        try:
            stranger.get("/version")
        except ApiError as error:
            status = error.status
        threading.Event().wait(0.1)
    assert status == 401


def test_nobody_is_anonymous(control_plane: Cluster) -> None:
    """A request without an identity is refused."""
    with pytest.raises(ApiError) as refused:
        Admin(control_plane.url, control_plane.ca).get("/api/v1/nodes")
    assert refused.value.status in (401, 403)


def test_kubectl_describes_a_node(control_plane: Cluster, node: str) -> None:
    """kubectl of the pinned version talks to the cluster."""
    assert node in control_plane.kubectl("describe", "node", node)


def test_outage_and_return(
    own_control_plane: ControlPlane, kubelet: FakeKubelet, new_pod: NewPod
) -> None:
    """The API server goes and returns at the same address with the same objects."""
    admin = own_control_plane.admin
    path = new_pod("survivor", node=kubelet.name)
    uid = admin.wait_for(path, _phase("Running"))["metadata"]["uid"]
    own_control_plane.stop_apiserver(grace=0)
    with pytest.raises(OSError, match="refused"):
        admin.get(path)
    own_control_plane.start_apiserver()
    assert admin.get(path)["metadata"]["uid"] == uid
    # The kubelet found its way back by itself.
    admin.delete(path)
    admin.wait_gone(path, seconds=30)


def test_deletion_during_an_outage(
    control_plane: Cluster, proxy: FaultProxy, admin: Admin, unique: str, new_pod: NewPod
) -> None:
    """A kubelet that is cut off, or refused, ends the pod as soon as it gets through."""
    api = _node_by_proxy(control_plane, proxy, unique)
    with FakeKubelet(unique, api) as kubelet:
        path = new_pod("cut-off", node=kubelet.name)
        admin.wait_for(path, _phase("Running"))
        proxy.fail_next(status=503, count=2, methods={"DELETE"})
        proxy.fail_next(status=500, methods={"PATCH"}, path="/pods/")
        admin.delete(path)
        admin.wait_gone(path)
        assert len(kubelet.failures) == 3
    admin.delete(f"/api/v1/nodes/{unique}")


def _node_by_proxy(cluster: Cluster, proxy: FaultProxy, name: str) -> Admin:
    """A kubelet's access through the proxy, where its client certificate cannot pass."""
    who = {"Impersonate-User": f"system:node:{name}", "Impersonate-Group": "system:nodes"}
    token = cluster.admin_token()
    return Admin(proxy.url, proxy.ca, token=token, headers=who)


def test_stop_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """After `stop` no process runs and the directory is gone; no component is needed but two."""
    monkeypatch.delenv(KEEP_ENV, raising=False)
    try:
        small = ControlPlane(with_scheduler=False, with_controller_manager=False)
    except ControlPlaneUnavailable as error:
        pytest.skip(str(error))
    with small:
        pids = small.pids
        assert set(pids) == {"etcd", "kube-apiserver", "reaper"}
        assert all(_alive(pid) for pid in pids.values())
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        small.admin.create("/api/v1/namespaces/default/pods", pod)
    assert not any(_alive(pid) for pid in pids.values())
    assert not small.directory.exists()
