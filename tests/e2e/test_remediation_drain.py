"""Which pods the loop moves, and which it never touches, on the real Eviction API (C48)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from .agents import keep
from .loops import (
    LoopProcess,
    Nodes,
    create,
    discard,
    fault,
    installed,
    loop_taint,
    pods,
    record,
    running,
    say_faults,
    slots,
    template,
    wait_record,
    wait_running,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .controlplane.admin import Admin, Object
    from .controlplane.cluster import Cluster

FOREIGN = {"key": "example.com/maintenance", "value": "soon", "effect": "NoSchedule"}
QUIET = 1.5
"""Seconds in which the loop would have acted: it decides within 0.1 s."""


@pytest.fixture(scope="module")
def loop(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopProcess]:
    """The loop, under the shipped rights."""
    with installed(control_plane), LoopProcess(control_plane, tmp_path_factory.mktemp("loop")) as process:
        process.wait_leading()
        yield process
        keep("drain.txt", process.output())


@pytest.fixture
def nodes(control_plane: Cluster, admin: Admin, namespace: str) -> Iterator[Nodes]:
    """Two nodes of this test's own."""
    with Nodes(control_plane, 2) as found:
        yield found
        discard(admin, namespace, [], found.place)


def pod(name: str, nodes: Nodes, node: int, *, gpus: int = 1, **metadata: object) -> Object:
    """A bare pod that is bound already."""
    body = template(nodes.place, gpus=gpus, restart="Never")
    body["metadata"] |= metadata
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **body["metadata"]},
            "spec": {**body["spec"], "nodeName": nodes.names[node]}}


def state(admin: Admin, node: str) -> str | None:
    """The loop's state of a Node."""
    found = record(admin.get(f"/api/v1/nodes/{node}"))
    return None if found is None else str(found["state"])


def names(admin: Admin, namespace: str, nodes: Nodes) -> set[str]:
    """Pods that run and are not ending."""
    return {one["metadata"]["name"] for one in pods(admin, namespace, nodes.place) if running([one], 1)}


def test_c48_only_accelerator_pods_leave_and_budgets_hold(
    admin: Admin, namespace: str, nodes: Nodes, loop: LoopProcess
) -> None:
    """DaemonSet, mirror, finished and plain pods stay; one that a budget keeps stays until the budget allows it."""
    sick = nodes.names[0]
    create(admin, namespace, pod("training", nodes, 0))
    create(admin, namespace, pod("kept", nodes, 0, labels={"e2e-place": nodes.place, "app": "kept"}))
    create(admin, namespace, pod("finished", nodes, 0))
    create(admin, namespace, pod("mirror", nodes, 0, annotations={"kubernetes.io/config.mirror": "x"}))
    plain = pod("plain", nodes, 0)
    del plain["spec"]["containers"][0]["resources"]
    create(admin, namespace, plain)
    daemon = template(nodes.place, gpus=1, restart="Always")
    daemon["metadata"]["labels"]["app"] = "d"
    daemons = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    admin.create(daemons, {"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "d"}}, "template": daemon}})
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    budget = admin.create(budgets, {"metadata": {"name": "b"}, "spec": {
        "minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}})
    wait_running(admin, namespace, nodes.place, 7)
    admin.wait_for(f"{budgets}/b", lambda one: one.get("status", {}).get("currentHealthy") == 1)
    nodes.kubelets[sick].finish(namespace, "finished", 0)
    admin.wait_for(f"/api/v1/namespaces/{namespace}/pods/finished", lambda one: one["status"]["phase"] == "Succeeded")
    say_faults(admin, sick, fault())
    admin.wait_gone(f"/api/v1/namespaces/{namespace}/pods/training")
    time.sleep(QUIET)
    assert {"kept", "mirror", "plain"} < names(admin, namespace, nodes)
    assert len(pods(admin, namespace, nodes.place)) == 6
    assert state(admin, sick) == "draining"
    assert admin.get(f"{budgets}/b")["spec"] == budget["spec"]
    admin.patch(f"{budgets}/b", {"spec": {"minAvailable": 0}})
    admin.wait_gone(f"/api/v1/namespaces/{namespace}/pods/kept", seconds=20)
    wait_record(admin, sick, lambda one: one is not None and one["state"] == "repairing")
    assert {"mirror", "plain"} < names(admin, namespace, nodes)
    assert len(pods(admin, namespace, nodes.place)) == 5
    discard(admin, namespace, [f"{daemons}/d"], nodes.place)


def test_c48_a_pod_that_moved_is_not_evicted_and_an_annotation_reaches_no_other_node(
    admin: Admin, namespace: str, nodes: Nodes, loop: LoopProcess
) -> None:
    """The annotation names the pod's former self, and one that has always run elsewhere: neither is touched."""
    sick = nodes.names[0]
    moved = create(admin, namespace, pod("moved", nodes, 0))
    before = admin.get(moved)
    create(admin, namespace, pod("elsewhere", nodes, 1))
    create(admin, namespace, pod("beside", nodes, 0))
    admin.delete(moved, grace=0)
    create(admin, namespace, pod("moved", nodes, 1))
    found = wait_running(admin, namespace, nodes.place, 3)
    uids = [before["metadata"]["uid"], *(one["metadata"]["uid"] for one in found
                                         if one["metadata"]["name"] == "elsewhere")]
    named = [{"uid": uid, "namespace": namespace, "name": "moved"} for uid in uids]
    say_faults(admin, sick, fault(scope="device", pods=named))
    wait_record(admin, sick, lambda one: one is not None and one["state"] == "repairing")
    time.sleep(QUIET)
    assert names(admin, namespace, nodes) == {"moved", "elsewhere", "beside"}
    beside = next(one for one in found if one["metadata"]["name"] == "beside")["metadata"]
    say_faults(admin, sick, fault(scope="device", pods=[{"uid": beside["uid"]}]))
    admin.wait_gone(f"/api/v1/namespaces/{namespace}/pods/beside")
    assert names(admin, namespace, nodes) == {"moved", "elsewhere"}


@pytest.mark.parametrize("mild", [{"effect": "condition", "would": "evict"}, {"effect": "noschedule"},
                                  {"held": True}], ids=["observed", "noschedule", "held"])
def test_a_fault_that_does_not_evict_moves_nothing(
    admin: Admin, namespace: str, nodes: Nodes, loop: LoopProcess, mild: Object
) -> None:
    """A rule in observe mode, one that only closes the node, and one that the brake holds."""
    create(admin, namespace, pod("training", nodes, 0))
    wait_running(admin, namespace, nodes.place, 1)
    say_faults(admin, nodes.names[0], fault(**mild))
    time.sleep(QUIET)
    node = admin.get(f"/api/v1/nodes/{nodes.names[0]}")
    assert (record(node), loop_taint(node), slots(admin)) == (None, None, [])
    assert names(admin, namespace, nodes) == {"training"}


HANDS_OFF = {
    "cordoned": {"spec": {"unschedulable": True}},
    "autoscaler": {"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}},
    "karpenter": {"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}},
    "kured": {"metadata": {"annotations": {"weave.works/kured-reboot-in-progress": "now"}}},
    "driver upgrade": {"metadata": {"labels": {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}}},
    "held": {"metadata": {"annotations": {"nodeguard.io/hold": "2999-01-01T00:00:00Z"}}},
}


@pytest.mark.parametrize("why", HANDS_OFF)
def test_a_node_that_somebody_else_works_on_is_left_alone(
    admin: Admin, namespace: str, nodes: Nodes, loop: LoopProcess, why: str
) -> None:
    """Nothing is written on it and nobody evicted; a cordon that is taken off lets the work begin."""
    sick = nodes.names[0]
    create(admin, namespace, pod("training", nodes, 0))
    wait_running(admin, namespace, nodes.place, 1)
    admin.patch(f"/api/v1/nodes/{sick}", HANDS_OFF[why])
    say_faults(admin, sick, fault())
    time.sleep(QUIET)
    assert (state(admin, sick), slots(admin), names(admin, namespace, nodes)) == (None, [], {"training"})
    if why == "cordoned":
        admin.patch(f"/api/v1/nodes/{sick}", {"spec": {"unschedulable": None}})
        admin.wait_gone(f"/api/v1/namespaces/{namespace}/pods/training")


def test_foreign_taints_and_cordons_outlive_the_whole_case(
    admin: Admin, namespace: str, nodes: Nodes, loop: LoopProcess
) -> None:
    """From the fault until the node is given back, only nodeguard's own marks come and go."""
    sick = nodes.names[0]
    create(admin, namespace, pod("training", nodes, 0))
    wait_running(admin, namespace, nodes.place, 1)
    admin.patch(f"/api/v1/nodes/{sick}", {"spec": {"taints": [FOREIGN]}})
    say_faults(admin, sick, fault())
    node = wait_record(admin, sick, lambda one: one is not None and one["state"] == "repairing")
    assert node["spec"]["taints"][0] == FOREIGN
    admin.patch(f"/api/v1/nodes/{sick}", {"spec": {"unschedulable": True}})
    say_faults(admin, sick)
    node = wait_record(admin, sick, lambda one: one is None)
    kept = [taint for taint in node["spec"]["taints"] if taint["key"] != "node.kubernetes.io/unschedulable"]
    assert (kept, node["spec"]["unschedulable"]) == ([FOREIGN], True)
