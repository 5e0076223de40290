"""Storms, budgets, bad rules and dying leaders: never more than the budget (C47)."""

import dataclasses
from typing import Any

import pytest

from nodeguard.model.policy import Budget, Policy, RuleBrake, Storm

from .rig import EVICT, FakeLedger, Rig

NO_BRAKE = RuleBrake(at_least=1000)
POLICY = Policy(budget=Budget(max_unavailable_percent=5, max_nodes=5, window=600), rule_brake=NO_BRAKE)


def fleet(nodes: int, policy: Policy = POLICY) -> Rig:
    """Healthy nodes with a pod each."""
    rig = Rig(policy=policy)
    for number in range(nodes):
        rig.cluster.node(f"n{number:03}")
        rig.cluster.fault(f"n{number:03}")
        rig.cluster.pod(f"p{number:03}", f"n{number:03}")
    return rig.run(rounds=1, settle=False)


def acted_on(rig: Rig) -> list[str]:
    """Nodes that carry the loop's mark."""
    return [name for name in sorted(rig.cluster.nodes()) if rig.state(name) is not None]


def test_c47a_of_77_nodes_of_288_exactly_five_are_acted_on() -> None:
    """The agents' words stay as they are; one alarm; CPU nodes do not count."""
    rig = fleet(288)
    for number in range(112):
        rig.cluster.node(f"cpu{number}", gpus=0)
        rig.cluster.edit(f"/api/v1/nodes/cpu{number}", lambda node: node["status"].update(allocatable={"cpu": "8"}))
    for start in range(0, 77, 26):
        for number in range(start, min(start + 26, 77)):
            rig.cluster.fault(f"n{number:03}", EVICT)
        rig.run(1, rounds=3, settle=False)
    assert len(acted_on(rig)) == 5
    assert len(rig.evictions()) == 5
    assert rig.happened("storm") == ["storm"]
    assert {one.count for one in rig.told if one.what == "storm"} <= set(range(28, 78))


def test_c47b_a_storm_ends_by_itself_and_only_the_present_counts() -> None:
    """Recoveries go on while it holds; afterwards those that are ill then are worked on, within the budget."""
    rig = fleet(100, dataclasses.replace(POLICY, storm=Storm(cooldown=600, at_least=10), budget=Budget(
        max_unavailable_percent=50, max_nodes=3, window=60)))
    for number in range(40):
        rig.cluster.fault(f"n{number:03}", EVICT)
    rig.run(1, rounds=3, settle=False)
    first = acted_on(rig)
    assert len(first) == 3
    rig.cluster.fault(first[0])
    rig.run(rounds=4)
    rig.run(120, rounds=4)
    assert acted_on(rig) == first[1:]
    for number in range(40):
        if f"n{number:03}" not in (*first, "n039"):
            rig.cluster.fault(f"n{number:03}")
    rig.run(700, rounds=4)
    assert rig.happened("storm-over") == ["storm-over"]
    assert acted_on(rig) == [*first[1:], "n039"]


def test_c47c_one_of_three_nodes_stays_repairable() -> None:
    """Five percent of three nodes is one node."""
    rig = fleet(3)
    rig.cluster.fault("n001", EVICT)
    rig.run(rounds=4, settle=False)
    assert acted_on(rig) == ["n001"]


def test_c47d_nothing_listed_is_no_cluster_to_act_on() -> None:
    """Before the first whole list, and with a list without accelerator nodes."""
    rig = Rig(policy=POLICY)
    rig.run()
    assert rig.cluster.writes() == []
    rig = Rig(policy=POLICY)
    rig.cluster.node("a")
    rig.cluster.fault("a", EVICT)
    rig.loop.node_changed("a", None, None)
    rig.loop.turn()
    assert rig.cluster.writes() == []


def test_pools_have_a_budget_each() -> None:
    """A label tells them apart."""
    policy = Policy(budget=Budget(max_unavailable_percent=10, max_nodes=99, pool_label="pool"))
    rig = Rig(policy=policy)
    for pool in ("x", "y"):
        for number in range(10):
            rig.cluster.node(f"{pool}{number}", pool=pool)
            rig.cluster.fault(f"{pool}{number}")
    rig.run(rounds=1)
    for name in ("x0", "x1", "y0"):
        rig.cluster.fault(name, EVICT)
    rig.run()
    assert acted_on(rig) == ["x0", "y0"]


@pytest.mark.parametrize("nodes", [100, 200])
def test_a_rule_that_taints_too_many_nodes_is_braked(nodes: int) -> None:
    """After max(5, 5 %): the ConfigMap names the rule as it was; the loop itself acts on it no more."""
    rig = fleet(nodes, dataclasses.replace(POLICY, storm=Storm(at_least=1000), rule_brake=RuleBrake()))
    bad = {**EVICT, "rule": "gpu-hot", "effect": "noschedule"}
    for number in range(nodes):
        rig.cluster.fault(f"n{number:03}", bad)
        rig.run(rounds=1, settle=False)
        if rig.happened("braked"):
            break
    assert number + 1 in (max(5, nodes // 20) + 1, max(5, nodes // 20) + 2)
    entry = rig.cluster.read("/api/v1/namespaces/nodeguard/configmaps/nodeguard-brake")["data"]["rule.gpu-hot"]
    assert entry.startswith(str(EVICT["hash"]))
    assert rig.evictions() == []


def test_a_leader_that_was_paused_does_not_exceed_the_budget() -> None:
    """Its next slot is refused; the one that took over counts what was taken before."""
    ledger = FakeLedger()
    rig = Rig(policy=POLICY, ledger=ledger)
    for number in range(100):
        rig.cluster.node(f"n{number:03}")
        rig.cluster.fault(f"n{number:03}")
    rig.run(rounds=1)
    for number in range(3):
        rig.cluster.fault(f"n{number:03}", EVICT)
    rig.run(rounds=2)
    other = Rig(rig.cluster, policy=POLICY, ledger=FakeLedger())
    other.ledger.ledger = ledger.ledger
    ledger.leads = False
    for number in range(3, 9):
        rig.cluster.fault(f"n{number:03}", EVICT)
    rig.run(rounds=3)
    assert len(acted_on(rig)) == 3
    other.run(rounds=3)
    assert len(acted_on(rig)) == 5


def test_nodes_that_the_policy_excludes_make_no_storm_and_no_bad_rule() -> None:
    """Somebody tries something out on them: it says nothing of the others."""
    rig = Rig(policy=dataclasses.replace(POLICY, rule_brake=RuleBrake()))
    for number in range(40):
        labels: dict[str, Any] = {"nodeguard.io/exclude": "x"} if number < 30 else {}
        rig.cluster.node(f"n{number:03}", **labels)
        rig.cluster.fault(f"n{number:03}")
    rig.run(rounds=1)
    for number in range(31):
        rig.cluster.fault(f"n{number:03}", EVICT)
    rig.run(rounds=4)
    assert rig.happened("storm", "braked") == []
    assert acted_on(rig) == ["n030"]
