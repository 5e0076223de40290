"""People and other controllers in the middle of a restart."""


import dataclasses
from typing import Any

import pytest

from nodeguard.model.errors import ApiUnavailable
from nodeguard.model.policy import Budget

from .cluster import NODES
from .gangs import JOB, gang, is_running, suspends
from .rig import EVICT, Rig


def held_restart(**spec: Any) -> Rig:
    """A gang that is suspended and waits for a pod that does not end, on a healthy node."""
    rig = gang(Rig(), "a", "b", spare=("s", "t"), **spec)
    rig.cluster.stuck.add(rig.cluster.pods()["training/llm-1"]["metadata"]["uid"])
    rig.cluster.fault("a", EVICT)
    rig.run()
    assert rig.cluster.read(JOB)["spec"]["suspend"] is True
    return rig


@pytest.mark.parametrize("change", ["hold", "cordon", "silence", "release", "dry run", "storm", "fault gone"])
def test_whatever_happens_in_the_middle_the_owner_is_resumed(change: str) -> None:
    """A hold, a cordon, a dry run or a storm ends nothing half way."""
    rig = held_restart()
    if change == "cordon":
        rig.cluster.edit(f"{NODES}/a", lambda node: node["spec"].update(unschedulable=True))
    elif change == "dry run":
        rig.policy = dataclasses.replace(rig.policy, dry_run=True)
    elif change == "storm":
        rig.ledger.ledger["storm"] = rig.clock.wall() + 600
    elif change == "fault gone":
        rig.cluster.fault("a")
    else:
        rig.cluster.annotate("a", f"nodeguard.io/{change}", {
            "hold": "2999-01-01T00:00:00Z", "release": "true",
            "silence": f"{EVICT['rule']}:2999-01-01T00:00:00Z"}[change])
    rig.run(1)
    rig.cluster.stuck.clear()
    rig.run(1)
    assert is_running(rig)


def test_a_node_whose_record_cannot_be_written_does_not_keep_the_owner_suspended() -> None:
    """After the restart's deadline the note on the Node is waited for no more."""
    rig = gang(Rig(), "a", "b")
    rig.cluster.after("PATCH", JOB, lambda: rig.cluster.fail(
        "PATCH", f"{NODES}/a", ApiUnavailable("a webhook says no"), times=10**6))
    rig.cluster.fault("a", EVICT)
    rig.run(30)
    assert rig.cluster.read(JOB)["spec"]["suspend"] is True
    rig.run(rig.policy.gangs.deadline)
    assert is_running(rig)


def test_one_whom_a_person_resumed_is_let_go_and_can_be_restarted_again() -> None:
    """The marks go, the suspension is not put back, and a later fault finds no restart to join."""
    rig = held_restart()
    rig.cluster.edit(JOB, lambda job: job["spec"].update(suspend=False))
    rig.cluster.stuck.clear()
    rig.run(31)
    assert is_running(rig)
    assert suspends(rig) == 1
    rig.run(rig.policy.gangs.apart + 1)
    where = rig.cluster.pods()["training/llm-1"]["spec"]["nodeName"]
    rig.cluster.fault(where, {**EVICT, "device": "gpu/GPU-z"})
    rig.run(40).run(40)
    assert suspends(rig) == 2
    assert is_running(rig)


def test_a_fault_that_comes_just_after_a_person_resumed_the_owner_does_not_join_what_is_over() -> None:
    """Before the loop has noticed: joining would move nobody, and the second node's ranks would stay for good."""
    rig = held_restart()
    rig.cluster.edit(JOB, lambda job: job["spec"].update(suspend=False))
    rig.policy = dataclasses.replace(rig.policy, budget=Budget(max_unavailable_percent=100))
    rig.cluster.stuck.clear()
    for _ in range(3):
        rig.cluster.settle()
    where = str(rig.cluster.pods()["training/llm-1"]["spec"]["nodeName"])
    rig.cluster.fault(where, {**EVICT, "device": "gpu/GPU-b"})
    rig.run(1)
    record = rig.record(where)
    assert record is not None
    assert record["restarts"] == []
    assert rig.cluster.read(JOB)["metadata"]["labels"] == {}
    for _ in range(8):
        rig.run(60, rounds=4)
    assert suspends(rig) == 2
    assert is_running(rig)


def test_an_owner_that_a_person_took_over_is_not_waited_for() -> None:
    """Marks taken away and resumed by hand: nothing is told of it after the deadline."""
    rig = held_restart()
    rig.cluster.edit(JOB, lambda job: job["spec"].update(suspend=False))
    rig.cluster.edit(JOB, lambda job: job["metadata"].update(labels={}, annotations={}))
    rig.cluster.stuck.clear()
    rig.run(31)
    assert dict(rig.loop.restarts.going) == {}
    rig.run(rig.policy.gangs.deadline + 1)
    assert [one.text for one in rig.told if one.what == "doubt" and "stays suspended" in one.text] == []


def test_without_its_label_a_suspended_owner_is_a_persons() -> None:
    """It is not resumed; a later fault restarts nothing that a person suspended."""
    rig = held_restart()
    rig.cluster.edit(JOB, lambda job: job["metadata"].update(labels={}))
    rig.cluster.stuck.clear()
    rig.run(31)
    assert rig.cluster.read(JOB)["spec"]["suspend"] is True


def test_an_owner_that_changes_while_it_is_resumed_keeps_the_change() -> None:
    """The PATCH is refused, the Job read again, and both changes stand."""
    rig = held_restart()
    rig.cluster.before("PATCH", JOB, lambda: rig.cluster.edit(JOB, lambda job: job["spec"].update(backoffLimit=9)))
    rig.cluster.stuck.clear()
    rig.run(2)
    assert is_running(rig)
    assert rig.cluster.read(JOB)["spec"]["backoffLimit"] == 9


def test_an_owner_made_anew_under_its_name_is_not_touched() -> None:
    """Another UID is another owner: neither suspended for the old one's pods nor resumed."""
    rig = held_restart()
    rig.cluster.remove(JOB)
    rig.cluster.job("llm", (), suspend=True)
    rig.cluster.edit(JOB, lambda job: job["metadata"].update(uid="another"))
    before = len(rig.cluster.writes(JOB))
    rig.run(31)
    assert len(rig.cluster.writes(JOB)) == before
    assert rig.cluster.read(JOB)["spec"]["suspend"] is True


def test_pods_that_do_not_go_on_healthy_nodes_are_told_of() -> None:
    """After the deadline: on the owner and on the incident; still no force; resumed once they are gone."""
    rig = held_restart()
    rig.run(rig.policy.gangs.deadline + 1)
    told = [one for one in rig.told if one.what == "doubt" and "stays suspended" in one.text]
    assert len(told) == 1
    assert "training/llm-1" in told[0].text
    assert [one for one in rig.cluster.requests if one.method == "DELETE"] == []
    rig.cluster.stuck.clear()
    rig.run(2)
    assert is_running(rig)


def test_an_owner_that_cannot_be_told_does_not_keep_a_gang_suspended() -> None:
    """Another pod in the namespace has an owner whose API fails; it is asked again, and passed over in the end."""
    rig = gang(Rig(), "a", "b")
    other = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "odd", "uid": "odd"}
    rig.cluster.fail("GET", "/apis/apps/v1/namespaces/training/replicasets/odd", ApiUnavailable("down"), times=3)
    rig.cluster.pod("odd", "spare", gpus=0, owner=other)
    rig.cluster.edit("/api/v1/namespaces/training/pods/odd", lambda pod: pod["spec"]["containers"].append(
        {"resources": {"limits": {"example.com/x": "1"}}}))
    rig.cluster.fault("a", EVICT)
    rig.run(2).run(2).run(2)
    assert is_running(rig)
