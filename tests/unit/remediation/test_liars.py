"""Lying agents, spoiled records, forged restarts; storms and brakes that must not be taken for others."""


import dataclasses
import json

import pytest

from nodeguard.kube.api import Object
from nodeguard.model.policy import Budget, Policy, RuleBrake, Storm

from .cluster import NODES
from .gangs import gang, is_running
from .rig import EVICT, Rig

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
