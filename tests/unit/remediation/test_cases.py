"""The written-down cases of remediation, by their ids. C47's plain ones are in test_storms."""



from nodeguard.kube.api import Object
from nodeguard.model.policy import Budget, Policy, RuleBrake, Storm
from nodeguard.remediation import budget

from .cluster import NODES
from .field import DAEMONS, JOB, REPLICAS, one_node
from .rig import EVICT, POLICY, Rig

# --- C47: a storm


def test_c47a_one_alarm_true_words_and_the_denominator_are_accelerator_nodes() -> None:
    """288 of 400 nodes count; one Event-worthy alarm; no agent's annotation is touched."""
    policy = Policy(budget=Budget(max_unavailable_percent=5, max_nodes=5, window=600),
                    rule_brake=RuleBrake(at_least=999))
    rig = Rig(policy=policy)
    for number in range(288):
        rig.cluster.node(f"n{number:03}")
    for number in range(112):
        rig.cluster.node(f"cpu{number:03}", gpus=0)
        rig.cluster.edit(f"{NODES}/cpu{number:03}", lambda node: node["status"].update(allocatable={"cpu": "8"}))
    rig.run(rounds=1, settle=False)
    sizes = rig.loop.world.sizes(policy)
    assert sum(sizes.values()) == 288
    assert budget.limit(288, policy.budget) == 14
    for number in range(77):
        rig.cluster.fault(f"n{number:03}", EVICT)
    said = {name: node["metadata"]["annotations"].get("nodeguard.io/faults")
            for name, node in rig.cluster.nodes().items()}
    rig.run(3, rounds=2, settle=False)
    nodes = rig.cluster.nodes()
    assert {name: node["metadata"]["annotations"].get("nodeguard.io/faults") for name, node in nodes.items()} == said
    assert sum("nodeguard.io/remediation" in node["metadata"]["annotations"] for node in nodes.values()) == 5
    assert rig.happened("storm") == ["storm"]


def test_c47b_two_days_of_faults_that_come_and_go_are_not_replayed() -> None:
    """Held for two days; when it is over only what is at fault then is worked on; recoveries went on meanwhile."""
    policy = Policy(budget=Budget(max_unavailable_percent=50, max_nodes=99, window=60),
                    rule_brake=RuleBrake(at_least=999), storm=Storm(at_least=10))
    rig = Rig(policy=policy)
    for number in range(30):
        rig.cluster.node(f"n{number:02}")
        rig.cluster.fault(f"n{number:02}")
    rig.run(rounds=1)
    rig.cluster.fault("n00", EVICT)
    rig.run(120, rounds=3)
    assert rig.state("n00") == "repairing"
    rig.ledger.ledger["storm"] = rig.loop.now() + 2 * 86_400
    for day in range(2):
        for number in range(1, 8):
            rig.cluster.fault(f"n{number:02}", {**EVICT, "device": f"gpu/GPU-{day}"})
        rig.run(3600, rounds=2)
        for number in range(1, 8):
            rig.cluster.fault(f"n{number:02}")
        rig.cluster.fault("n00")
        rig.run(82_000, rounds=2)
    assert rig.state("n00") is None  # it recovered and was given back while everything was held
    assert [name for name in rig.cluster.nodes() if rig.state(name)] == []
    rig.cluster.fault("n07", EVICT)
    rig.run(20_000, rounds=3)
    assert [name for name in rig.cluster.nodes() if rig.state(name)] == ["n07"]


def test_c47c_one_of_three() -> None:
    """A pool of three keeps one repairable node, and only one."""
    rig = Rig(policy=Policy())
    for name in ("a", "b", "c"):
        rig.cluster.node(name)
        rig.cluster.fault(name)
    rig.run()
    rig.cluster.fault("b", EVICT)
    rig.cluster.fault("c", EVICT)
    rig.run(700)
    assert [rig.state(name) is not None for name in ("a", "b", "c")] == [False, True, False]


def test_c47d_no_accelerator_node_listed() -> None:
    """An empty denominator allows nothing, though a fault is told."""
    assert budget.limit(0, Budget()) == 0
    rig = Rig(policy=Policy())
    rig.run()
    assert (rig.cluster.writes(), rig.ledger.writes) == ([], 0)


# --- C49: a pod that cannot die


def test_c49_a_pod_that_cannot_die_makes_the_node_stuck_and_is_not_forced() -> None:
    """Others leave; after the deadline "1 pods do not leave"; no endless asking, no deletion, no force."""
    rig = one_node("b")
    rig.cluster.stuck.add(rig.cluster.pod("t1", "a", gpus=4))
    rig.cluster.pod("t2", "a", gpus=4)
    rig.run()
    rig.cluster.fault("a", {**EVICT, "rule": "gpu-xid-lost", "action": "reboot_node"})
    for _ in range(10):
        rig.run(100, rounds=4)
    record = rig.record("a")
    assert record is not None
    assert record["state"] == "stuck"
    assert record["reason"].startswith("1 pods do not leave: training/t1")
    assert sorted(rig.evictions()) == ["t1", "t2"]
    assert [one for one in rig.cluster.requests if one.method == "DELETE"] == []
    assert rig.cluster.read(f"{NODES}/a")["spec"]["taints"][0]["value"] == "stuck"
    rig.cluster.edit(f"{NODES}/a", lambda node: node["status"]["nodeInfo"].update(bootID="rebooted"))
    rig.cluster.stuck.clear()
    rig.run()
    assert rig.state("a") == "repairing"


# --- C50: old news


def test_c50a_a_drain_whose_fault_has_gone_touches_nobody_else() -> None:
    """Blocked by a budget; the fault closes; the pod stays, and the node is given back."""
    rig = one_node()
    rig.cluster.pod("t1", "a", owner=REPLICAS)
    rig.cluster.blocked.add("training/t1")
    rig.run()
    rig.cluster.fault("a", EVICT)
    rig.run(1)
    rig.cluster.fault("a")
    rig.cluster.blocked.clear()
    rig.run(POLICY.release.healthy_for + 1).run(1)
    assert rig.state("a") is None
    assert "deletionTimestamp" not in rig.cluster.pods()["training/t1"]["metadata"]


def test_c50b_a_loop_that_begins_again_repeats_nothing() -> None:
    """The node is back in service; nothing of the past is done again."""
    rig = one_node("b")
    rig.cluster.pod("t1", "a", owner=REPLICAS)
    rig.run()
    rig.cluster.fault("a", EVICT)
    rig.run(1)
    rig.cluster.fault("a")
    rig.run(POLICY.release.healthy_for + 1)
    rig.cluster.pod("t2", "a", owner=REPLICAS)
    before = len(rig.cluster.writes())
    Rig(rig.cluster, ledger=rig.ledger).run(120)
    assert len(rig.cluster.writes()) == before


def test_c50c_a_fault_that_comes_while_the_node_proves_itself_is_new_work() -> None:
    """It is not lost in the incident that stands."""
    rig = one_node("b")
    rig.cluster.pod("t1", "a", owner=REPLICAS)
    rig.run()
    rig.cluster.fault("a", EVICT)
    rig.run(1)
    rig.cluster.fault("a")
    rig.run(1)
    assert rig.state("a") == "verifying"
    rig.cluster.pod("t2", "a", owner={**REPLICAS, "uid": "rs2"})
    rig.cluster.fault("a", {**EVICT, "device": "gpu/GPU-new"})
    rig.run(2)
    assert rig.state("a") == "repairing"
    assert rig.evictions() == ["t1", "t2"]


# --- C52: taints that do not evict, gangs that hang


def test_c52_what_tolerates_everything_is_evicted_and_a_daemon_set_is_left() -> None:
    """The loop's taint moves nobody (NoSchedule): A and B leave by eviction, whatever they tolerate; D stays."""
    rig = one_node("b")
    everything = [{"operator": "Exists"}]
    rig.cluster.pod("a-pod", "a", gpus=2, tolerations=everything)
    rig.cluster.pod("b-pod", "a", gpus=2, tolerations=[
        {"key": "nodeguard.io/unhealthy", "operator": "Exists", "tolerationSeconds": 300}])
    rig.cluster.pod("c-pod", "a", gpus=2)
    rig.cluster.pod("d-pod", "a", gpus=1, owner=DAEMONS, tolerations=everything)
    rig.run()
    rig.cluster.fault("a", EVICT)
    rig.run()
    assert rig.evictions() == ["a-pod", "b-pod", "c-pod"]
    assert list(rig.cluster.pods()) == ["training/d-pod"]


def test_c52_a_gang_of_64_is_restarted_by_its_owner_once() -> None:
    """Eight ranks on the bad node of eight: not one rank is evicted while 56 wait in a collective."""
    rig = Rig(policy=Policy(budget=Budget(max_unavailable_percent=50)))
    names = [f"n{number}" for number in range(8)]
    for name in (*names, "spare"):
        rig.cluster.node(name)
        rig.cluster.fault(name)
    rig.cluster.job("llm", ())
    rig.cluster.edit(JOB, lambda job: job["spec"].update(completions=64, parallelism=64))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "llm", "uid": "job-llm"}
    for number in range(64):
        rig.cluster.pod(f"llm-{number}", names[number // 8], gpus=1, owner=owner,
                        tolerations=[{"operator": "Exists"}] if number == 0 else [])
    rig.run(rounds=1, settle=False)
    rig.cluster.fault("n0", EVICT)
    rig.run()
    suspends = [one for one in rig.cluster.writes(JOB) if (one.body or {}).get("spec", {}).get("suspend")]
    assert (len(suspends), rig.evictions()) == (1, [])
    assert "n0" not in {pod["spec"].get("nodeName") for pod in rig.cluster.pods().values()}
    assert rig.cluster.read(JOB)["spec"]["suspend"] is False


def test_c52_an_owner_of_an_unknown_kind_is_told_of() -> None:
    """Its pod is evicted, and an Event says that nobody knows whether it comes back."""
    rig = one_node("b")
    rig.cluster.pod("odd", "a", owner={"apiVersion": "example.com/v1", "kind": "Trainer", "name": "x", "uid": "x"})
    rig.run()
    rig.cluster.fault("a", EVICT)
    rig.run()
    told = [one.owner.title for one in rig.told if one.what == "unknown-kind" and one.owner is not None]
    assert (told, rig.evictions()) == (["Trainer training/x"], ["odd"])


def test_c52_ranks_of_two_owners_on_one_node_are_each_their_owners() -> None:
    """Two gangs share the bad node: each is suspended once, and the pod without an owner evicted."""
    rig = one_node("b", "s", "t")
    rig.cluster.job("llm", ("b",))
    rig.cluster.job("big", ("b",))
    for name in ("llm", "big"):
        def place(pod: Object) -> None:
            pod["spec"]["nodeName"] = "a"
            pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "3"
        rig.cluster.edit(f"/api/v1/namespaces/training/pods/{name}-0", place)
    rig.cluster.pod("lone", "a", gpus=2)
    rig.run()
    rig.cluster.fault("a", EVICT)
    rig.run()
    for name in ("llm", "big"):
        path = f"/apis/batch/v1/namespaces/training/jobs/{name}"
        assert [(one.body or {})["spec"]["suspend"] for one in rig.cluster.writes(path)] == [True, False]
    assert rig.evictions() == ["lone"]
