"""What goes wrong at three in the morning: lost answers, lost terms, replaced Nodes, people in the middle, liars."""

import dataclasses
import itertools
import json
from typing import Any

import pytest

from nodeguard.kube.api import Object
from nodeguard.model.errors import ApiUnavailable
from nodeguard.model.policy import Budget, Gangs, Policy, RuleBrake, Storm

from .cluster import NODES
from .incident_rig import incidents_of
from .rig import EVICT, POLICY, Rig

JOB = "/apis/batch/v1/namespaces/training/jobs/llm"
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs-web"}


def gang(rig: Rig, *nodes: str, spare: tuple[str, ...] = ("spare",), **spec: Any) -> Rig:
    """A Job with a rank on each node, and a loop that has seen it all."""
    for name in (*nodes, *spare):
        rig.cluster.node(name)
        rig.cluster.fault(name)
    rig.cluster.job("llm", nodes, **spec)
    return rig.run()


def suspends(rig: Rig) -> int:
    """How often the Job was suspended."""
    return sum(1 for one in rig.cluster.writes(JOB) if (one.body or {}).get("spec", {}).get("suspend") is True)


def is_running(rig: Rig) -> bool:
    """Whether the Job is neither suspended nor marked."""
    job = rig.cluster.read(JOB)
    return (not job["spec"].get("suspend") and job["metadata"]["labels"] == {}
            and not job["metadata"].get("annotations"))


# --- Nodes that are replaced or go


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


# --- Answers and terms that are lost


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
    rig.cluster.pod("lone", "a", gpus=1, owner=DEPLOYMENT)
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


# --- People in the middle of a restart


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


# --- Restarts that come again


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
    rig.cluster.pod("web", "a", owner=DEPLOYMENT)
    rig.run()
    rig.cluster.fault("a", EVICT)
    for _ in range(360):
        rig.run(10, rounds=4)
        if not rig.cluster.pods():
            rig.cluster.pod("web", "a", owner=DEPLOYMENT)
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


# --- Liars


HOSTILE: list[Object] = [
    {"since": "0001-01-01T00:00:00+23:59"}, {"since": "9999-12-31T23:59:59-23:59"}, {"since": 10**400},
    {"since": None}, {"effect": ["evict"]}, {"rule": {"x": 1}}, {"pods": {"uid": "x"}}, {"pods": [1, None, "x"]},
    {"device": "x" * 60_000}, {"hash": "y" * 50_000}, {"scope": 7}, {"action": "explode"}, {"held": "yes"},
]


@pytest.mark.parametrize("lie", range(len(HOSTILE)))
def test_a_lying_agent_costs_nobody_else_anything(lie: int) -> None:
    """Wrong types, absurd times, huge words: another node's fault is worked on as ever, and nothing is raised."""
    rig = gang(Rig(), "a", "b")
    rig.cluster.fault("spare", {**EVICT, **HOSTILE[lie]})
    rig.cluster.fault("a", EVICT)
    rig.run(30)
    assert rig.state("a") is not None
    assert len(json.dumps(rig.record("spare") or {})) < 4096


def test_ten_thousand_faults_fit_into_a_small_record() -> None:
    """And ones that come and go do not make it grow for ever."""
    rig = Rig()
    rig.cluster.node("a")
    rig.cluster.fault("a")
    rig.cluster.stuck.add(rig.cluster.pod("one", "a"))
    rig.run()
    for turn in range(5):
        rig.cluster.fault("a", *({**EVICT, "rule": f"r{turn}-{number}", "evidence": ""} for number in range(250)))
        rig.run(1)
    assert len(json.dumps(rig.record("a"))) < 32_768
    document = {"v": 1, "faults": [{**EVICT, "since": "2023-11-14T22:13:20Z"}] * 10_000}
    rig.cluster.annotate("a", "nodeguard.io/faults", json.dumps(document))
    rig.run(1)
    assert rig.state("a") == "draining"


@pytest.mark.parametrize("text", [
    '{"v":1,"state":"draining","incident":"i","since":1' + "0" * 400 + "}", "[" * 100_000, "NaN",
    '{"v":1,"state":"draining","incident":"i","since":NaN}', '{"v":1,"state":["x"]}'])
def test_a_record_that_a_person_spoiled_stops_only_its_node(text: str) -> None:
    """It is not overwritten, and the loop lives."""
    rig = gang(Rig(), "a", "b")
    rig.cluster.annotate("spare", "nodeguard.io/remediation", text)
    rig.cluster.fault("spare", EVICT)
    rig.cluster.node("t")
    rig.cluster.fault("t")
    rig.cluster.fault("a", EVICT)
    rig.run(30)
    assert is_running(rig)
    assert rig.state("a") == "repairing"
    assert rig.cluster.read(f"{NODES}/spare")["metadata"]["annotations"]["nodeguard.io/remediation"] == text


@pytest.mark.parametrize("text", [
    "[" * 100_000, '{"nodes":["a"],"at":1' + "0" * 400 + ',"deadline":1,"step":"x"}', "7", '{"nodes":3,"at":1}',
    '{"nodes":["a"],"at":NaN,"deadline":NaN,"step":"x"}', json.dumps({"nodes": ["n"] * 99_999, "at": 1, "step": "s",
                                                                      "deadline": 2})])
def test_a_restart_that_a_tenant_forged_stops_nobody(text: str) -> None:
    """Whoever may write a Job may write its annotations: the loop lives, and works for the others."""
    rig = gang(Rig(), "a", "b")
    rig.cluster.job("forged", (), namespace="evil", labels={"nodeguard.io/restart": "x"}, suspend=True)
    rig.cluster.edit("/apis/batch/v1/namespaces/evil/jobs/forged", lambda job: job["metadata"].update(
        annotations={"nodeguard.io/restart": text}))
    rig.run(31)
    rig.cluster.fault("a", EVICT)
    rig.run(31)
    assert is_running(rig)
    assert rig.state("a") == "repairing"


def test_a_spoiled_ledger_is_read_as_far_as_it_can_be() -> None:
    """A person's edit of the Lease does not end every replica."""
    rig = gang(Rig(), "a", "b")
    rig.ledger.ledger = {"v": 1, "slots": {"x": 1}, "begun": [7, ["x"], ["y", "z"], None], "storm": "soon"}
    rig.cluster.fault("a", EVICT)
    rig.run(2)
    assert rig.state("a") == "repairing"


# --- Storms and brakes


def fleet(nodes: int, policy: Policy) -> Rig:
    """Nodes with a pod each, not seen yet."""
    rig = Rig(policy=policy)
    for number in range(nodes):
        rig.cluster.node(f"n{number:02}")
        rig.cluster.fault(f"n{number:02}")
        rig.cluster.pod(f"p{number:02}", f"n{number:02}")
    return rig


def test_faults_that_stand_when_a_loop_begins_are_no_storm_and_no_bad_rule() -> None:
    """They began long ago: a change of leaders must not hold the whole cluster."""
    rig = fleet(40, Policy(budget=Budget(max_unavailable_percent=5)))
    for number in range(20):
        rig.cluster.fault(f"n{number:02}", EVICT, at=rig.cluster.now - 86_400)
    rig.run()
    assert rig.happened("storm", "braked") == []
    rig.ledger.leads = False
    rig.run(1)
    for number in range(20, 35):
        rig.cluster.fault(f"n{number:02}", EVICT, at=rig.cluster.now - 3600)
    rig.run(1)
    rig.ledger.leads = True
    rig.run(1)
    assert rig.happened("storm", "braked") == []


def test_a_brake_that_a_person_took_off_stays_off_for_ten_minutes() -> None:
    """The taints that it was put on for do not put it on again."""
    rig = fleet(20, Policy(storm=Storm(at_least=1000), rule_brake=RuleBrake()))
    rig.run(rounds=2)
    for number in range(8):
        rig.cluster.fault(f"n{number:02}", {**EVICT, "rule": "gpu-hot", "effect": "noschedule"})
    rig.run(1)
    assert rig.happened("braked") == ["braked"]
    rig.cluster.edit("/api/v1/namespaces/nodeguard/configmaps/nodeguard-brake", lambda body: body.update(data={}))
    rig.run(61).run(61)
    assert rig.happened("braked") == ["braked"]


def test_a_dry_run_in_a_storm_writes_nothing_either() -> None:
    """Not even that there is one."""
    rig = fleet(40, Policy(dry_run=True))
    rig.run(rounds=2)
    for number in range(30):
        rig.cluster.fault(f"n{number:02}", EVICT)
    rig.run(60)
    assert rig.happened("storm") == ["storm"]
    assert (rig.cluster.writes(), rig.ledger.writes) == ([], 0)


def test_a_changed_pool_label_does_not_open_the_budget_anew() -> None:
    """Slots that were taken before count in every pool."""
    rig = Rig(policy=Policy(budget=Budget(max_unavailable_percent=10, max_nodes=99)))
    for number in range(10):
        rig.cluster.node(f"n{number}", pool="x")
        rig.cluster.fault(f"n{number}")
    rig.run(rounds=2)
    rig.cluster.fault("n0", EVICT)
    rig.run(1)
    rig.policy = dataclasses.replace(rig.policy, budget=Budget(
        max_unavailable_percent=10, max_nodes=99, pool_label="pool"))
    rig.cluster.fault("n1", EVICT)
    rig.run(31)
    assert (rig.state("n0"), rig.state("n1")) == ("repairing", None)


def test_timers_do_not_pile_up() -> None:
    """A node on hold that changes all the time has one, not one for each change."""
    rig = gang(Rig(), "a", "b")
    rig.cluster.annotate("a", "nodeguard.io/hold", "2999-01-01T00:00:00Z")
    for turn in range(50):
        rig.cluster.fault("a", {**EVICT, "count": turn})
        rig.run(1, rounds=1)
    assert len(rig.loop._timers) < 5  # noqa: SLF001 # its memory is what is asked for
