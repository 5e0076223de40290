"""What the loop never does, one by one: before, during and after an incident."""

from typing import Any

import pytest

from nodeguard.kube.api import Object
from nodeguard.model.policy import Budget, Policy
from nodeguard.remediation.mover import Mover, Order
from nodeguard.remediation.owners import Owners
from nodeguard.remediation.views import node_view, pod_view

from .cluster import NODES
from .rig import EVICT, POLICY, Rig

JOB = "/apis/batch/v1/namespaces/training/jobs/llm"
JOBSET = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/training/jobsets/set"


def gang(*nodes: str, spare: tuple[str, ...] = ("spare",), policy: Policy = POLICY, **spec: Any) -> Rig:
    """A Job with a rank on each node, and a loop that has seen it all."""
    rig = Rig(policy=policy)
    for name in (*nodes, *spare):
        rig.cluster.node(name)
        rig.cluster.fault(name)
    rig.cluster.job("llm", nodes, **spec)
    return rig.run()


def suspensions(rig: Rig, path: str = JOB) -> list[bool]:
    """What ``suspend`` was set to, in order."""
    return [one.body["spec"]["suspend"] for one in rig.cluster.writes(path) if one.body and "spec" in one.body]


@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_an_owner_that_a_user_suspended_is_never_resumed(when: str) -> None:
    """Before the fault; between the loop's look and its PATCH; and after the loop's own restart has ended."""
    rig = gang("a", "b")

    def suspend() -> None:
        rig.cluster.edit(JOB, lambda job: job["spec"].update(suspend=True))
    if when == "before":
        suspend()
    elif when == "between":
        rig.cluster.before("PATCH", JOB, suspend)
    rig.cluster.fault("a", EVICT)
    rig.run(31)
    if when == "after":
        suspend()
    rig.run(400).run(61)
    assert rig.cluster.read(JOB)["spec"]["suspend"] is True
    assert suspensions(rig) == {"before": [], "between": [True], "after": [True, False]}[when]


def follow(rig: Rig, *, suspended: bool) -> None:
    """As the JobSet's controller does with its Jobs."""
    rig.cluster.edit(JOB, lambda job: job["spec"].update(suspend=suspended))


def test_a_child_of_a_job_set_is_never_written_to() -> None:
    """The JobSet is suspended and resumed; its Jobs are its own."""
    rig = Rig()
    for name in ("a", "b", "spare"):
        rig.cluster.node(name)
        rig.cluster.fault(name)
    rig.cluster.add(JOBSET, {"kind": "JobSet", "spec": {},
                             "metadata": {"name": "set", "namespace": "training", "uid": "set", "labels": {}}})
    top = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "set", "controller": True}
    rig.cluster.job("llm", ("a", "b"), owners=[top])
    rig.run()
    rig.cluster.fault("a", EVICT)
    for _ in range(6):
        rig.run(rounds=1)
        suspended = rig.cluster.read(JOBSET)["spec"].get("suspend", False)
        follow(rig, suspended=suspended)
    rig.run(5)
    assert rig.cluster.writes(JOB) == []
    assert suspensions(rig, JOBSET) == [True, False]
    assert rig.evictions() == []


@pytest.mark.parametrize("gap", [0.0, 0.5, 5.0, 100.0])
def test_a_gang_is_never_restarted_twice_for_two_bad_nodes(gap: float) -> None:
    """At once, while it is suspended, just after, and a while later: within five minutes there is one restart."""
    rig = gang("a", "b", "c", spare=("s", "t", "u"), policy=Policy(budget=Budget(max_unavailable_percent=100)))
    rig.cluster.fault("a", EVICT)
    if gap:
        rig.run(gap, rounds=2)
    rig.cluster.fault("b", {**EVICT, "device": "gpu/GPU-b"})
    rig.run(1, rounds=3)
    rig.cluster.fault("c", {**EVICT, "device": "gpu/GPU-c"})
    rig.run(100)
    assert suspensions(rig) == [True, False]


def test_an_order_that_is_late_does_not_restart_what_was_restarted_meanwhile() -> None:
    """Two nodes' orders are carried out side by side; the second comes after the gang was resumed."""
    rig = gang("a", "b")
    owners = Owners(rig.cluster)
    mover = Mover(rig.cluster, owners, lambda: True, "nodeguard")
    pods = tuple(view for body in rig.cluster.pods().values() if (view := pod_view(body)) is not None)
    nodes = tuple(node_view(body) for body in rig.cluster.nodes().values())

    def order(node: str) -> Order:
        return Order(node=node, incident=f"i-{node}", policy=POLICY, now=rig.loop.now(), pods=pods, nodes=nodes)
    mover.move([pod for pod in pods if pod.node == "a"], order("a"))
    rig.cluster.edit(JOB, lambda job: job["spec"].update(suspend=False))
    rig.cluster.edit(JOB, lambda job: job["metadata"].update(labels={}, annotations={}))
    late = mover.move([pod for pod in pods if pod.node == "b"], order("b"))
    assert [owner.title for owner in late.over] == ["Job training/llm"]
    assert rig.cluster.read(JOB)["spec"]["suspend"] is False


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("replacement_policy", ["Failed", "TerminatingOrFailed"])
def test_a_job_is_never_left_suspended_when_its_node_is_deleted(*, replaced: bool, replacement_policy: str) -> None:
    """In the middle of the restart, with a pod that goes only with its node; the Node may be made anew at once."""
    rig = gang("a", "b", podReplacementPolicy=replacement_policy)
    rig.cluster.stuck.add(rig.cluster.pods()["training/llm-0"]["metadata"]["uid"])
    rig.cluster.fault("a", EVICT)
    rig.run(rounds=3)
    rig.cluster.remove(f"{NODES}/a")
    if replaced:
        rig.cluster.node("a")
        rig.cluster.edit(f"{NODES}/a", lambda node: node["metadata"].update(uid="new"))
        if "training/llm-0" in rig.cluster.pods():
            rig.cluster.remove("/api/v1/namespaces/training/pods/llm-0")
    rig.run(1).run(1)
    job = rig.cluster.read(JOB)
    assert (job["spec"]["suspend"], job["metadata"]["labels"]) == (False, {})
    assert rig.ledger.ledger["slots"] == {}


def test_a_pod_that_runs_elsewhere_is_never_evicted_on_an_agents_word() -> None:
    """Whatever the annotation names: pods of other nodes, of other namespaces, unbound ones, and none at all."""
    rig = Rig()
    for name in ("a", "b"):
        rig.cluster.node(name)
        rig.cluster.fault(name)
    named = [rig.cluster.pod("elsewhere", "b"), rig.cluster.pod("pending"),
             rig.cluster.pod("system", "a", gpus=1, namespace="kube-system"), "", "no-such"]
    rig.run(rounds=1, settle=False)
    rig.cluster.fault("a", {**EVICT, "scope": "device", "pods": [
        {"uid": uid, "namespace": "training", "name": "elsewhere"} for uid in named]})
    rig.run(30, settle=False)
    assert rig.evictions() == []


@pytest.mark.parametrize("effect", ["none", "event", "condition", "noschedule"])
def test_a_fault_that_only_observes_is_never_acted_on(effect: str) -> None:
    """Observe mode caps the effect at ``event``; the loop looks at the effect alone, whatever else stands there."""
    rig = gang("a", "b")
    rig.cluster.fault("a", {**EVICT, "effect": effect, "would": "evict", "action": "replace_hw"})
    rig.run(120)
    assert (rig.cluster.writes(), rig.ledger.writes, rig.happened()) == ([], 0, [])


def test_an_observed_fault_beside_a_real_one_moves_no_pod_of_its_own() -> None:
    """Only the device of the fault that evicts is emptied."""
    rig = Rig()
    rig.cluster.node("a")
    rig.cluster.fault("a")
    uids = [rig.cluster.pod(f"p{number}", "a", gpus=4) for number in range(2)]
    rig.run()
    rig.cluster.fault("a", {**EVICT, "scope": "device", "pods": [{"uid": uids[0]}]},
                      {**EVICT, "rule": "observed", "effect": "event", "device": "gpu/GPU-b", "pods": [
                          {"uid": uids[1]}]})
    rig.run()
    assert rig.evictions() == ["p0"]


def test_nobody_elses_marks_are_ever_touched() -> None:
    """Foreign taints, a cordon put on in the middle, labels, annotations, DaemonSet and mirror pods, budgets."""
    rig = gang("a", "b")
    foreign = [{"key": "example.com/x", "value": "1", "effect": "NoExecute"},
               {"key": "nodeguard.io/unhealthy", "value": "GpuMemoryFault", "effect": "NoSchedule"},
               {"key": "nodeguard.io/remediation", "value": "mine", "effect": "NoExecute"}]

    def own(node: Object) -> None:
        node["spec"]["taints"] = list(foreign)
        node["metadata"]["labels"]["team"] = "x"
        node["metadata"]["annotations"]["note"] = "y"
    rig.cluster.edit(f"{NODES}/a", own)
    budget = "/apis/policy/v1/namespaces/training/poddisruptionbudgets/loose"
    rig.cluster.add(budget, {"metadata": {"name": "loose", "namespace": "training", "labels": {}},
                             "spec": {"selector": {}}, "status": {"disruptionsAllowed": 9}})
    daemons = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}
    rig.cluster.pod("daemon", "a", gpus=0, owner=daemons)
    rig.cluster.pod("mirror", "a", gpus=0, annotations={"kubernetes.io/config.mirror": "x"})
    rig.cluster.fault("a", EVICT)
    rig.run(1)
    rig.cluster.edit(f"{NODES}/a", lambda node: node["spec"].update(unschedulable=True))
    rig.cluster.fault("a")
    rig.run(POLICY.release.healthy_for + 1)
    node = rig.cluster.read(f"{NODES}/a")
    assert rig.record("a") is None
    assert node["spec"]["taints"] == foreign
    assert node["spec"]["unschedulable"] is True
    assert node["metadata"]["labels"] == {"team": "x"}
    assert node["metadata"]["annotations"]["note"] == "y"
    assert rig.cluster.writes(budget) == []
    assert {"training/daemon", "training/mirror"} <= set(rig.cluster.pods())
    assert not any("deletionTimestamp" in rig.cluster.pods()[f"training/{name}"]["metadata"]
                   for name in ("daemon", "mirror"))


def test_a_moved_pod_is_never_evicted_under_its_old_name() -> None:
    """Every eviction carries the UID of a pod that was seen on the bad node; its namesake lives on."""
    rig = Rig()
    for name in ("a", "b"):
        rig.cluster.node(name)
        rig.cluster.fault(name)
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s"}
    old = rig.cluster.pod("s-0", "a", owner=owner)
    rig.run()
    path = "/api/v1/namespaces/training/pods/s-0"

    def move() -> None:
        rig.cluster.remove(path)
        rig.cluster.pod("s-0", "b", owner=owner)
    rig.cluster.before("POST", f"{path}/eviction", move)
    rig.cluster.fault("a", EVICT)
    rig.run(40)
    assert [one.body["deleteOptions"]["preconditions"]["uid"] for one in rig.cluster.requests
            if one.path == f"{path}/eviction" and one.body] == [old]
    assert "deletionTimestamp" not in rig.cluster.pods()["training/s-0"]["metadata"]
    assert rig.cluster.pods()["training/s-0"]["spec"]["nodeName"] == "b"


@pytest.mark.parametrize("mark", ["cordon", "autoscaler", "hold", "deleting", "excluded"])
def test_a_node_in_hands_off_state_is_never_acted_on_also_when_it_comes_in_the_middle(mark: str) -> None:
    """A drain that waits (a budget refuses) goes no further from the moment the mark stands."""
    rig = Rig()
    rig.cluster.node("a")
    rig.cluster.fault("a")
    rig.cluster.pod("one", "a")
    rig.cluster.blocked.add("training/one")
    rig.run()
    rig.cluster.fault("a", EVICT)
    rig.run(1)
    assert rig.state("a") == "draining"

    def change(node: Object) -> None:
        node["spec"]["unschedulable"] = mark == "cordon"
        if mark == "autoscaler":
            node["spec"]["taints"].append({"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"})
        if mark == "hold":
            node["metadata"]["annotations"]["nodeguard.io/hold"] = "2999-01-01T00:00:00Z"
        if mark == "deleting":
            node["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if mark == "excluded":
            node["metadata"]["labels"]["nodeguard.io/exclude"] = ""
    rig.cluster.edit(f"{NODES}/a", change)
    rig.deliver()
    rig.loop.turn()
    rig.cluster.blocked.clear()
    before = (rig.evictions(), len(rig.cluster.writes()))
    rig.run(1200)
    assert (rig.evictions(), len(rig.cluster.writes())) == before
    assert "training/one" in rig.cluster.pods()
