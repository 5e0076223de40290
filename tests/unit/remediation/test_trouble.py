"""At three in the morning: Nodes that are replaced, lost answers, lost terms, restarts that come again."""


import dataclasses
import itertools

import pytest

from nodeguard.model.policy import Budget, Gangs, Policy

from .cluster import NODES
from .gangs import JOB, REPLICAS, gang, is_running, suspends
from .incident_rig import incidents_of
from .rig import EVICT, POLICY, Rig


def test_a_replaced_node_does_not_inherit_its_forerunners_slot() -> None:
    """The same name, another UID, and no DELETED event between: the slot is freed, and the new Node has none."""
    rig = gang(Rig(), "a", "b")
    rig.cluster.fault("a", EVICT)
    rig.run(rounds=2, settle=False)
    assert "a" in rig.ledger.ledger["slots"]
    rig.cluster.remove(f"{NODES}/a")
    rig.cluster.node("a")
    rig.cluster.edit(f"{NODES}/a", lambda node: node["metadata"].update(uid="another"))
    rig.run()
    assert rig.ledger.ledger["slots"] == {}
    assert is_running(rig)
    assert "node-deleted" in [one.text for one in rig.told if one.what == "closed"]


def test_a_loop_that_begins_frees_the_slot_of_a_node_replaced_meanwhile() -> None:
    """It compares UIDs; an agent that has not spoken yet keeps no slot either."""
    rig = gang(Rig(), "a", "b")
    rig.cluster.fault("a", EVICT)
    rig.run(rounds=2, settle=False)
    rig.cluster.remove(f"{NODES}/a")
    rig.cluster.node("a")
    rig.cluster.edit(f"{NODES}/a", lambda node: node["metadata"].update(uid="another"))
    other = Rig(rig.cluster, ledger=rig.ledger).run()
    assert other.ledger.ledger["slots"] == {}


def test_an_answer_that_comes_after_the_deletion_brings_no_node_back() -> None:
    """The PATCH was served, the Node deleted and that told, and only then the answer was taken."""
    rig = gang(Rig(), "a", "b")
    rig.cluster.fault("a", EVICT)

    def act() -> None:
        rig.cluster.remove(f"{NODES}/a")
        rig.deliver()
    rig.cluster.after("PATCH", f"{NODES}/a", act)
    rig.run()
    assert sorted(rig.loop.world.nodes) == ["b", "spare"]
    rig.run(31)
    assert rig.ledger.ledger["slots"] == {}
    patches = [one for one in rig.cluster.requests if one.path == f"{NODES}/a"]
    assert len(patches) == 1


def test_a_node_that_is_gone_unheard_is_not_asked_for_without_pause() -> None:
    """404 before the watch tells: once a second, not at once again."""
    rig = gang(Rig(), "a", "b")
    rig.cluster.fault("a", EVICT)
    rig.deliver()
    rig.cluster.remove(f"{NODES}/a")
    for _ in range(20):
        rig.loop.turn()
    assert len([one for one in rig.cluster.requests if one.path == f"{NODES}/a"]) == 1



@pytest.mark.parametrize("lost", ["mark", "suspend", "resume"])
def test_a_lost_answer_changes_nothing_in_the_end(lost: str) -> None:
    """The write was served, its answer was not: suspended once, resumed once, told of."""
    rig = gang(Rig(), "a", "b")
    nth = {"mark": (f"{NODES}/a", 1), "suspend": (JOB, 1), "resume": (JOB, 2)}[lost]
    if nth[1] == 1:
        rig.cluster.lose("PATCH", nth[0])
    else:
        rig.cluster.after("PATCH", JOB, lambda: rig.cluster.lose("PATCH", JOB))
    rig.cluster.fault("a", EVICT)
    rig.run(2).run(2)
    assert suspends(rig) == 1
    assert is_running(rig)
    assert rig.happened("suspended", "resumed") == ["suspended", "resumed"]
    assert {pod["spec"]["nodeName"] for pod in rig.cluster.pods().values()} == {"b", "spare"}


@pytest.mark.parametrize("moment", ["slot", "mark", "read owner"])
def test_who_lost_the_lead_touches_nothing_more(moment: str) -> None:
    """Between slot and mark, between mark and move, and between reading the owner and suspending it."""
    rig = gang(Rig(), "a", "b")
    rig.cluster.pod("lone", "a", gpus=1, owner=REPLICAS)
    rig.run()

    def lose() -> None:
        rig.ledger.leads = False
    if moment == "slot":
        rig.ledger.before_write = lose
    elif moment == "mark":
        rig.cluster.after("PATCH", f"{NODES}/a", lose)
    else:
        rig.cluster.before("GET", JOB, lose)
    rig.cluster.fault("a", EVICT)
    rig.run(5)
    assert (suspends(rig), rig.evictions()) == (0, [])
    assert len(rig.cluster.writes(f"{NODES}/a")) == (0 if moment == "slot" else 1)
    other = Rig(rig.cluster, ledger=rig.ledger)
    rig.ledger.leads = True
    other.run(2)
    assert suspends(other) == 1
    assert is_running(other)


def test_a_leader_that_slept_does_not_restart_again_what_another_one_restarted() -> None:
    """It read the owner, slept while another loop suspended and resumed it, and wakes with a stale order."""
    rig = gang(Rig(), "a", "b")

    def sleep() -> None:
        rig.ledger.leads = True
        Rig(rig.cluster, ledger=rig.ledger).run(2)
        rig.ledger.leads = False
    rig.cluster.before("PATCH", JOB, sleep)
    rig.cluster.fault("a", EVICT)
    rig.run(2)
    assert len([one for one in rig.cluster.writes(JOB)
                if (one.body or {}).get("spec", {}).get("suspend") is True]) == 2  # one of them was refused
    assert is_running(rig)


def test_the_lead_lost_between_suspend_and_resume_is_finished_by_the_next() -> None:
    """The owner is not left suspended."""
    rig = gang(Rig(), "a", "b")
    rig.cluster.fault("a", EVICT)
    rig.cluster.after("PATCH", JOB, lambda: setattr(rig.ledger, "leads", False))
    rig.run(2)
    assert rig.cluster.read(JOB)["spec"]["suspend"] is True
    rig.ledger.leads = True
    other = Rig(rig.cluster, ledger=rig.ledger).run(2)
    assert is_running(other)
    assert suspends(other) == 1



def test_a_gang_that_lands_on_the_bad_node_again_is_restarted_five_minutes_apart_and_six_times() -> None:
    """It tolerates everything: within one incident each restart counts, until a person is needed."""
    rig = gang(Rig(policy=dataclasses.replace(POLICY, gangs=Gangs(no_spare="restart"))), "a", spare=())
    rig.cluster.tolerant = True
    rig.cluster.fault("a", EVICT)
    times: list[float] = []
    for _ in range(400):
        before = suspends(rig)
        rig.run(10, rounds=5)
        times += [rig.clock.boot()] * (suspends(rig) - before)
    assert len(times) == 6
    assert min(later - sooner for sooner, later in itertools.pairwise(times)) >= 290
    assert rig.state("a") == "needs-person"
    assert is_running(rig)


def test_the_next_leader_knows_of_restarts_whose_nodes_were_given_back() -> None:
    """From the ring of incidents: five minutes apart and six a day outlive a process and the nodes' marks."""
    rig = gang(Rig(), "a", "b")
    rig.cluster.fault("a", EVICT)
    rig.run()
    rig.cluster.fault("a")
    rig.run(61)
    assert rig.state("a") is None
    incidents_of(rig).turn()
    other = Rig(rig.cluster, ledger=rig.ledger).run()
    other.cluster.fault("b", {**EVICT, "device": "gpu/GPU-b"})
    other.run(30)
    assert suspends(other) == 1
    assert "was restarted" in " ".join(one.text for one in other.told if one.what == "waits")


def test_pods_that_come_back_to_the_bad_node_are_evicted_ever_more_slowly() -> None:
    """A ReplicaSet's pod that tolerates everything: a few evictions an hour, not ten a second."""
    rig = Rig()
    rig.cluster.node("a")
    rig.cluster.fault("a")
    rig.cluster.pod("web", "a", owner=REPLICAS)
    rig.run()
    rig.cluster.fault("a", EVICT)
    for _ in range(360):
        rig.run(10, rounds=4)
        if not rig.cluster.pods():
            rig.cluster.pod("web", "a", owner=REPLICAS)
    assert 5 <= len(rig.evictions()) <= 30


def test_volcano_restarts_one_job_once_for_two_bad_nodes() -> None:
    """Its Command is the restart: it counts as one, also for a second node."""
    rig = Rig(policy=Policy(budget=Budget(max_unavailable_percent=100), gangs=Gangs(no_spare="restart")))
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "vj", "uid": "vj"}
    rig.cluster.add("/apis/batch.volcano.sh/v1alpha1/namespaces/training/jobs/vj", {
        "kind": "Job", "metadata": {"name": "vj", "namespace": "training", "uid": "vj", "labels": {}},
        "spec": {"completions": 0}})
    for name in ("a", "b", "c"):
        rig.cluster.node(name)
        rig.cluster.fault(name)
        rig.cluster.pod(f"vj-{name}", name, owner=owner)
    rig.run()
    rig.cluster.fault("a", EVICT)
    rig.cluster.fault("b", {**EVICT, "device": "gpu/GPU-b"})
    rig.run(60, settle=False).run(60, settle=False)
    commands = [one for one in rig.cluster.writes() if one.path.endswith("/commands")]
    assert len(commands) == 1
    assert [one["name"] for one in (rig.record("a") or {})["restarts"]
            + (rig.record("b") or {})["restarts"]] == ["Job training/vj"]
