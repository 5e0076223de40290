"""Gangs are restarted whole, once, through the top of their owners, and never against a person (C52)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from .agents import eventually, keep
from .loops import (
    RESTART,
    LoopProcess,
    Nodes,
    brief_pods,
    create,
    discard,
    fault,
    installed,
    job,
    loop_taint,
    pods,
    running,
    say_faults,
    slots,
    template,
    wait_record,
    wait_running,
)
from .trainers import FakeTrainer
from .watching import Watching

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .controlplane.admin import Admin, Object
    from .controlplane.cluster import Cluster

QUIET = 1.5


@pytest.fixture(scope="module")
def shipped(control_plane: Cluster) -> Iterator[None]:
    """Everything shipped is installed."""
    with installed(control_plane):
        yield


@pytest.fixture
def loop(control_plane: Cluster, tmp_path: Path, shipped: None) -> Iterator[LoopProcess]:
    """The loop, under the shipped rights."""
    with LoopProcess(control_plane, tmp_path) as process:
        process.wait_leading()
        yield process
        keep("gangs.txt", process.output())
        process.end()


def nodes_of(found: list[Object]) -> list[str]:
    """Where pods run."""
    return [pod["spec"]["nodeName"] for pod in found]


def wait_moved(admin: Admin, namespace: str, nodes: Nodes, away: set[str], loop: LoopProcess,
               seconds: float = 20.0) -> None:
    """Wait until two ranks run, none of them on these nodes."""
    def moved() -> bool:
        found = [pod for pod in pods(admin, namespace, nodes.place) if pod["spec"].get("nodeName") not in away]
        return running(found, 2)

    eventually(moved, "both ranks run elsewhere", seconds,
               lambda: (brief_pods(pods(admin, namespace, nodes.place)), loop.output()))


def suspensions(watching: Watching, key: str) -> int:
    """How often a watcher saw the Job become suspended."""
    seen = [bool(one["spec"].get("suspend")) for _, one in watching.states("jobs", key) if one is not None]
    return sum(now and not before for before, now in zip([False, *seen], seen, strict=False))


def test_an_owner_that_a_person_suspended_stays_suspended(
    control_plane: Cluster, admin: Admin, namespace: str, loop: LoopProcess
) -> None:
    """Its pods take a while to end, and their node falls ill meanwhile: no mark, and never resumed."""
    with Nodes(control_plane, 3, termination=2.0) as nodes:
        path = create(admin, namespace, job("llm", nodes.place))
        sick = nodes_of(wait_running(admin, namespace, nodes.place, 2))[0]
        admin.patch(path, {"spec": {"suspend": True}})
        say_faults(admin, sick, fault())
        wait_record(admin, sick, lambda one: one is not None and one["state"] == "repairing")
        time.sleep(QUIET)
        standing = admin.get(path)
        assert standing["spec"]["suspend"] is True
        assert RESTART not in standing["metadata"].get("labels", {})
        discard(admin, namespace, [path], nodes.place)


def test_a_rank_that_its_gpu_has_killed_already_takes_its_gang_along(
    control_plane: Cluster, admin: Admin, namespace: str, loop: LoopProcess
) -> None:
    """Under Never the Job controller would make only that rank anew, and the other would wait for it for ever."""
    with Nodes(control_plane, 3) as nodes, Watching(admin) as watching:
        path = create(admin, namespace, job("llm", nodes.place, restart="Never"))
        ranks = wait_running(admin, namespace, nodes.place, 2)
        sick = nodes_of(ranks)[0]
        nodes.kubelets[sick].finish(namespace, ranks[0]["metadata"]["name"], 1)
        say_faults(admin, sick, fault())
        old = {pod["metadata"]["uid"] for pod in ranks}

        def renewed() -> bool:
            found = [pod for pod in pods(admin, namespace, nodes.place) if pod["metadata"]["uid"] not in old]
            return running(found, 2) and sick not in nodes_of(found)

        eventually(renewed, "both ranks were made anew, elsewhere", 40.0, loop.output)
        assert suspensions(watching, f"{namespace}/llm") == 1
        assert admin.get(path)["spec"].get("suspend") is False
        discard(admin, namespace, [path], nodes.place)


def test_c52_two_bad_nodes_restart_one_gang_once_whatever_its_pods_tolerate(
    control_plane: Cluster, admin: Admin, namespace: str, loop: LoopProcess
) -> None:
    """Pods that tolerate every taint leave too; the faults join one restart; both nodes' work goes on."""
    with Nodes(control_plane, 4, termination=0.5) as nodes, Watching(admin) as watching:
        tolerant = {"tolerations": [{"key": "example.com/any", "operator": "Exists"},
                                    {"key": "nodeguard.io/unhealthy", "operator": "Exists", "effect": "NoExecute"}]}
        path = create(admin, namespace, job("llm", nodes.place, template_spec=tolerant))
        sick = nodes_of(wait_running(admin, namespace, nodes.place, 2))
        for node in sick:
            say_faults(admin, node, fault())
        wait_moved(admin, namespace, nodes, set(sick), loop)
        for node in sick:
            wait_record(admin, node, lambda one: one is not None and one["state"] == "repairing")
        standing = admin.get(path)
        assert (standing["spec"]["suspend"], standing["status"].get("failed", 0)) == (False, 0)
        assert suspensions(watching, f"{namespace}/llm") == 1
        discard(admin, namespace, [path], nodes.place)


@pytest.mark.timeout(180, func_only=True)
def test_a_node_that_is_deleted_in_the_middle_leaves_no_job_suspended(
    control_plane: Cluster, admin: Admin, namespace: str, loop: LoopProcess
) -> None:
    """Its rank never reports its end; the Job is resumed all the same, and the slot is free."""
    with Nodes(control_plane, 4, termination=3.0) as nodes:
        path = create(admin, namespace, job("llm", nodes.place))
        sick = nodes_of(wait_running(admin, namespace, nodes.place, 2))[0]
        say_faults(admin, sick, fault())
        admin.wait_for(path, lambda one: one["spec"].get("suspend"))
        nodes.kubelets[sick].stop()
        admin.delete(f"/api/v1/nodes/{sick}")
        admin.wait_for(path, lambda one: one["spec"].get("suspend") is False, seconds=30)
        assert RESTART not in admin.get(path)["metadata"].get("labels", {})
        wait_moved(admin, namespace, nodes, {sick}, loop, 90)
        eventually(lambda: sick not in slots(admin), "its slot is free")
        discard(admin, namespace, [path], nodes.place)


@pytest.mark.parametrize("kind", ["JobSet", "PyTorchJob"])
def test_a_gang_with_a_controller_above_is_restarted_at_the_top(
    control_plane: Cluster, admin: Admin, namespace: str, loop: LoopProcess, kind: str
) -> None:
    """Above a fake of its controller: the loop writes the top object once, and nothing below it."""
    with Nodes(control_plane, 3) as nodes, FakeTrainer(control_plane, kind, namespace, "llm", nodes.place) as trainer:
        found = wait_running(admin, namespace, nodes.place, 2)
        sick = nodes_of(found)[0]
        before = {pod["metadata"]["uid"] for pod in found}
        say_faults(admin, sick, fault())
        wait_moved(admin, namespace, nodes, {sick}, loop)
        after = wait_running(admin, namespace, nodes.place, 2)
        assert not before & {pod["metadata"]["uid"] for pod in after}
        eventually(lambda: RESTART not in admin.get(trainer.path)["metadata"].get("labels", {}), "the label is gone")
        top = admin.get(trainer.path)
        assert not top["spec"].get("runPolicy", top["spec"])["suspend"]
        assert "nodeguard" in managers(top)
        children = admin.get(f"/apis/batch/v1/namespaces/{namespace}/jobs")["items"]
        assert len(children) == (1 if kind == "JobSet" else 0)
        assert "nodeguard" not in {name for child in children for name in managers(child)}
        assert loop.output().count('"suspended"') == 1
        discard(admin, namespace, [f"/apis/batch/v1/namespaces/{namespace}/jobs/llm-workers-0"], nodes.place)


def managers(found: Object) -> set[str]:
    """Who wrote fields of an object."""
    return {str(one["manager"]) for one in found["metadata"].get("managedFields", ())}


@pytest.mark.parametrize("no_spare", ["hold", "evict-rank", "restart"])
def test_without_a_spare_seat_the_policy_decides(
    control_plane: Cluster, admin: Admin, namespace: str, tmp_path: Path, unique: str, shipped: None, no_spare: str
) -> None:
    """The only spare node is wanted by a pending pod of higher priority: wait, evict one rank, or restart all."""
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    admin.create(classes, {"metadata": {"name": unique}, "value": 1000, "preemptionPolicy": "Never"})
    with Nodes(control_plane, 3) as nodes, LoopProcess(
            control_plane, tmp_path, {"gangs": {"noSpare": no_spare, "apart": "1s"}}) as loop:
        loop.wait_leading()
        path = create(admin, namespace, job("llm", nodes.place))
        sick = nodes_of(wait_running(admin, namespace, nodes.place, 2))[0]
        rival = {"kind": "Pod", "metadata": {"name": "rival"}, "spec": {
            **template("nowhere", restart="Never")["spec"], "priorityClassName": unique}}
        pending = create(admin, namespace, rival)
        admin.wait_for(pending, lambda one: one["spec"].get("priority") == 1000)
        time.sleep(0.3)  # its watch has told the loop of it
        say_faults(admin, sick, fault())
        if no_spare == "evict-rank":
            loop.wait_said('"evicted"')
        elif no_spare == "restart":
            wait_moved(admin, namespace, nodes, {sick}, loop)
        else:
            loop.wait_said("no spare seats for Job")
            time.sleep(QUIET)
            assert len(wait_running(admin, namespace, nodes.place, 2)) == 2
            assert loop_taint(admin.get(f"/api/v1/nodes/{sick}")) is not None
            admin.delete(pending, grace=0)
            wait_moved(admin, namespace, nodes, {sick}, loop)
        suspended = loop.output().count('"suspended"')
        assert suspended == (0 if no_spare == "evict-rank" else 1)
        discard(admin, namespace, [path], nodes.place)
        admin.delete(pending, grace=0)
        keep(f"no-spare-{no_spare}.txt", loop.output())
        loop.end()
    admin.delete(f"{classes}/{unique}")
