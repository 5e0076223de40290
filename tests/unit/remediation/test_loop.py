"""A node's way through the loop, from fault to release."""

import dataclasses
import itertools
from typing import Any

import pytest

from nodeguard.kube.api import Object
from nodeguard.model.policy import Budget, Gangs, Policy

from .cluster import NODES
from .rig import EVICT, POLICY, Rig

JOB = "/apis/batch/v1/namespaces/training/jobs/llm"


def gang(rig: Rig, *nodes: str, spare: tuple[str, ...] = ("spare",), **spec: Any) -> None:
    """A Job with a rank on each node, spare nodes, agents without complaints, a loop that has seen it all."""
    for name in (*nodes, *spare):
        rig.cluster.node(name)
        rig.cluster.fault(name)
    rig.cluster.job("llm", nodes, **spec)
    rig.run()


def test_a_gang_is_restarted_whole_and_the_node_given_back() -> None:
    """Suspended once, every rank on a healthy node, resumed once; released when the agent is content."""
    rig = Rig()
    gang(rig, "a", "b")
    rig.cluster.fault("a", EVICT)
    rig.run()
    assert rig.state("a") == "repairing"
    assert {pod["spec"].get("nodeName") for pod in rig.cluster.pods().values()} == {"b", "spare"}
    job = rig.cluster.read(JOB)
    assert job["spec"]["suspend"] is False
    assert (job["metadata"]["labels"], "nodeguard.io/restart" in job["metadata"]["annotations"]) == ({}, False)
    assert rig.evictions() == []
    assert [one for one in rig.happened() if one != "waits"] == [
        "begun", "suspended", "gone", "state", "resumed", "bound", "running"]
    rig.cluster.fault("a")
    rig.run(rig.policy.release.healthy_for + 1)
    assert rig.state("a") is None
    assert rig.ledger.ledger["slots"] == {}
    assert rig.told[-1].text == "released"


def test_pods_without_a_gang_are_evicted_and_waited_for() -> None:
    """With a UID precondition, once; a pod that does not end keeps the node in draining."""
    rig = Rig()
    rig.cluster.node("a")
    rig.cluster.fault("a")
    uid = rig.cluster.pod("one", "a")
    rig.cluster.stuck.add(uid)
    rig.run()
    rig.cluster.fault("a", EVICT)
    rig.run(5)
    assert rig.evictions() == ["one"]
    assert rig.state("a") == "draining"
    rig.cluster.stuck.clear()
    rig.run()
    assert rig.state("a") == "repairing"


def test_device_scope_spares_the_pods_of_other_gpus() -> None:
    """The annotation's pods, as far as they run here; without them, all of the node's."""
    for pods, evicted in (([{"uid": "pod-1"}], ["one"]), (None, ["one", "two"]), ([{"uid": "elsewhere"}], [])):
        rig = Rig()
        rig.cluster.node("a")
        rig.cluster.pod("one", "a", gpus=4)
        rig.cluster.pod("two", "a", gpus=4)
        rig.run()
        fault: Object = {**EVICT, "scope": "device"}
        rig.cluster.fault("a", fault if pods is None else {**fault, "pods": pods})
        rig.run()
        assert rig.evictions() == evicted


@pytest.mark.parametrize("change", [
    {"effect": "event"}, {"effect": "condition"}, {"effect": "noschedule"}, {"held": True}])
def test_only_faults_that_evict_are_acted_on(change: Object) -> None:
    """Observe mode (an effect of event), conditions, noschedule and braked faults move nobody and mark nothing."""
    rig = Rig()
    gang(rig, "a", "b")
    rig.cluster.fault("a", {**EVICT, **change})
    rig.run(60)
    assert (rig.cluster.writes(), rig.ledger.writes) == ([], 0)


@pytest.mark.parametrize("mark", ["cordon", "autoscaler", "karpenter", "kured", "upgrade", "shutdown", "deleting",
                                  "excluded", "hold"])
def test_hands_off(mark: str) -> None:
    """Nothing is begun on a node that somebody else works on, or that a person holds."""
    rig = Rig()
    gang(rig, "a", "b")

    def change(node: Object) -> None:
        taint = {"autoscaler": "ToBeDeletedByClusterAutoscaler", "karpenter": "karpenter.sh/disrupted"}.get(mark)
        if taint is not None:
            node["spec"]["taints"] = [{"key": taint, "effect": "NoSchedule"}]
        node["spec"]["unschedulable"] = mark == "cordon"
        words = {"kured": {"weave.works/kured-reboot-in-progress": "{}"}, "hold": {
            "nodeguard.io/hold": "2999-01-01T00:00:00Z"}}.get(mark, {})
        node["metadata"]["annotations"].update(words)
        node["metadata"]["labels"].update({"upgrade": {"nvidia.com/gpu-driver-upgrade-state": "drain-required"},
                                           "excluded": {"nodeguard.io/exclude": "x"}}.get(mark, {}))
        if mark == "deleting":
            node["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if mark == "shutdown":
            node["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": "node is shutting down"}]
    rig.cluster.edit(f"{NODES}/a", change)
    rig.cluster.fault("a", EVICT)
    rig.run(60)
    assert (rig.cluster.writes(), rig.ledger.writes) == ([], 0)


def test_foreign_pods_are_left() -> None:
    """DaemonSet, mirror, finished, system and CPU-only pods stay."""
    rig = Rig()
    rig.cluster.node("a")
    rig.cluster.pod("daemon", "a", owner={"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"})
    rig.cluster.pod("mirror", "a", annotations={"kubernetes.io/config.mirror": "x"})
    rig.cluster.pod("done", "a", phase="Succeeded")
    rig.cluster.pod("system", "a", namespace="kube-system")
    rig.cluster.pod("critical", "a", priorityClassName="system-node-critical")
    rig.run()
    rig.cluster.fault("a", EVICT)
    rig.run()
    assert rig.evictions() == []
    assert rig.state("a") == "repairing"


def test_a_fault_that_goes_before_anything_irreversible_is_cancelled() -> None:
    """Quarantined for want of seats; the fault closes; the marks go."""
    rig = Rig()
    gang(rig, "a", "b", spare=())
    rig.cluster.fault("a", EVICT)
    rig.run(30)
    assert rig.state("a") == "draining"
    assert rig.cluster.read(JOB)["spec"].get("suspend") is None
    rig.cluster.fault("a")
    rig.run(rig.policy.release.healthy_for + 1)
    assert rig.state("a") is None
    assert rig.evictions() == []


@pytest.mark.parametrize(("no_spare", "suspended", "evicted"), [
    ("hold", 0, []), ("restart", 1, []), ("evict-rank", 0, ["llm-0"])])
def test_without_spare_seats_the_policy_decides(no_spare: Any, suspended: int, evicted: list[str]) -> None:
    """A pending pod of higher rank would take the only spare node."""
    rig = Rig(policy=dataclasses.replace(POLICY, gangs=Gangs(no_spare=no_spare)))
    gang(rig, "a", "b")
    rig.cluster.pod("rival", priority=1000, gpus=8)
    rig.cluster.fault("a", EVICT)
    rig.run(settle=False)
    assert rig.happened("suspended") == ["suspended"] * suspended
    assert rig.evictions() == evicted


def test_a_suspended_owner_is_never_resumed_by_the_loop() -> None:
    """A person's suspension is theirs, before and during an incident."""
    rig = Rig()
    gang(rig, "a", "b")
    rig.cluster.edit(JOB, lambda job: job["spec"].update(suspend=True))
    rig.cluster.fault("a", EVICT)
    rig.run(120)
    assert rig.cluster.read(JOB)["spec"]["suspend"] is True
    assert rig.cluster.writes(JOB) == []


def test_two_bad_nodes_restart_their_gang_once() -> None:
    """Also when the second fault comes while the gang is suspended, and again not within five minutes."""
    for late in (False, True):
        rig = Rig()
        gang(rig, "a", "b", "c", spare=("s", "t"))
        rig.cluster.fault("a", EVICT)
        if late:
            rig.run(rounds=2, settle=False)
        rig.cluster.fault("b", {**EVICT, "device": "gpu/GPU-b"})
        rig.run(30)
        suspends = [one for one in rig.cluster.writes(JOB) if (one.body or {}).get("spec", {}).get("suspend")]
        assert len(suspends) == 1
        assert {pod["spec"].get("nodeName") for pod in rig.cluster.pods().values()} <= {"c", "s", "t"}


def test_a_second_restart_waits_five_minutes_and_a_seventh_wants_a_person() -> None:
    """Counted from the records that stand on Nodes."""
    rig = Rig(policy=dataclasses.replace(POLICY, budget=Budget(max_unavailable_percent=100, max_nodes=99)))
    nodes = [f"n{number}" for number in range(10)]
    gang(rig, nodes[0], spare=tuple(nodes[1:]))
    times = []
    for _ in range(7):
        where = next(iter(rig.cluster.pods().values()))["spec"]["nodeName"]
        rig.cluster.fault(where, EVICT)
        for _ in range(40):
            before = len(rig.happened("suspended"))
            rig.run(10, rounds=6)
            if len(rig.happened("suspended")) > before:
                times.append(rig.clock.boot())
                break
    assert len(times) == 6
    assert min(later - sooner for sooner, later in itertools.pairwise(times)) >= 290
    assert rig.state(where) == "needs-person"


def test_a_deleted_node_frees_its_slot_and_leaves_no_job_suspended() -> None:
    """In the middle of a restart."""
    rig = Rig()
    gang(rig, "a", "b", podReplacementPolicy="Failed")
    stuck = rig.cluster.pods()["training/llm-0"]["metadata"]["uid"]
    rig.cluster.stuck.add(stuck)
    rig.cluster.fault("a", EVICT)
    rig.run()
    assert rig.cluster.read(JOB)["spec"]["suspend"] is True
    rig.cluster.remove(f"{NODES}/a")
    rig.run()
    job = rig.cluster.read(JOB)
    assert (job["spec"]["suspend"], job["metadata"]["labels"]) == (False, {})
    assert rig.ledger.ledger["slots"] == {}
    assert "node-deleted" in [one.text for one in rig.told if one.what == "closed"]


def test_an_ending_pod_on_the_bad_node_does_not_hold_the_gang_back() -> None:
    """Its Job makes the new one while the old one is still ending; the node is stuck after the deadline."""
    rig = Rig()
    gang(rig, "a", "b")
    rig.cluster.stuck.add(rig.cluster.pods()["training/llm-0"]["metadata"]["uid"])
    rig.cluster.fault("a", EVICT)
    rig.run()
    assert rig.cluster.read(JOB)["spec"]["suspend"] is False
    assert rig.state("a") == "draining"
    rig.run(rig.policy.drain.deadline + 1)
    assert rig.state("a") == "stuck"
    assert rig.happened("suspended") == ["suspended"]


def test_the_budget_lets_only_so_many_nodes_be_worked_on() -> None:
    """The next one follows when a slot is free and the window has passed; what healed meanwhile is left alone."""
    rig = Rig(policy=Policy(budget=Budget(max_unavailable_percent=50, max_nodes=2, window=600)))
    for number in range(8):
        rig.cluster.node(f"n{number}")
        rig.cluster.fault(f"n{number}")
    rig.run()
    for number in range(5):
        rig.cluster.fault(f"n{number}", EVICT)
    rig.run(1)
    assert sum(rig.state(f"n{number}") is not None for number in range(8)) == 2
    begun = [name for name in (f"n{number}" for number in range(5)) if rig.state(name)]
    for number in range(5):
        if f"n{number}" not in begun:
            rig.cluster.fault(f"n{number}")
    rig.run(1300)
    assert [name for name in (f"n{number}" for number in range(8)) if rig.state(name)] == begun


def test_foreign_taints_stay_and_a_conflict_is_decided_anew() -> None:
    """Somebody else's taint that comes in the same moment is kept."""
    rig = Rig()
    gang(rig, "a", "b")
    foreign = {"key": "example.com/x", "value": "1", "effect": "NoSchedule"}
    rig.cluster.before("PATCH", f"{NODES}/a", lambda: rig.cluster.edit(
        f"{NODES}/a", lambda node: node["spec"].update(taints=[foreign])))
    rig.cluster.fault("a", EVICT)
    rig.run()
    taints = rig.cluster.read(f"{NODES}/a")["spec"]["taints"]
    assert (taints[0], len(taints)) == (foreign, 2)
    rig.cluster.fault("a")
    rig.run(rig.policy.release.healthy_for + 1)
    assert rig.cluster.read(f"{NODES}/a")["spec"]["taints"] == [foreign]
