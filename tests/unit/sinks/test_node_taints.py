"""Taints are one list: the node writer adds and removes its own and keeps everybody else's."""

import random

import pytest

from nodeguard.model.errors import ApiConflict, ApiRefused
from nodeguard.sinks.node import Pace

from .rig import FAULTY, HEALTHY, NODE_PATH, OWN_TAINT, Rig, make_condition, make_intent


@pytest.fixture
def rig() -> Rig:
    """A writer that is not slowed down."""
    return Rig(Pace(burst=10_000))


def test_c45a_taint_added_meanwhile_is_kept(rig: Rig) -> None:
    """C45a: [X] is read, Y is added, N is written: a conflict, a read, and then X, Y and N."""
    rig.taint("X")
    rig.run()
    seen = len(rig.api.requests)
    rig.writer.publish(FAULTY)
    hit = iter([False, True])
    rig.api.before("PATCH", NODE_PATH, lambda: rig.taint("Y") if next(hit) else None, times=2)
    rig.run()
    assert rig.taints == ["X=:NoSchedule", "Y=:NoSchedule", OWN_TAINT]
    assert [one.method for one in rig.api.requests[seen:]] == ["PATCH", "PATCH", "GET", "PATCH"]
    assert rig.writer.status.conflicts_total == 1


def test_c45b_standing_taint_is_not_written_again(rig: Rig) -> None:
    """C45b: with its own taint there already, no taint is written and none doubled."""
    rig.taint("nodeguard.io/unhealthy", "GpuMemoryFault")
    rig.say(FAULTY)
    assert rig.taints == [OWN_TAINT]
    assert [one.path for one in rig.api.writes()] == [NODE_PATH + "/status"]


def test_c45c_removing_keeps_what_was_just_added(rig: Rig) -> None:
    """C45c: N is removed while Z was just added: Z stays."""
    rig.taint("X")
    rig.say(FAULTY)
    rig.writer.publish(HEALTHY)
    hit = iter([False, True])
    rig.api.before("PATCH", NODE_PATH, lambda: rig.taint("Z") if next(hit) else None, times=2)
    rig.run()
    assert rig.taints == ["X=:NoSchedule", "Z=:NoSchedule"]


@pytest.mark.parametrize(("value", "effect", "after"), [
    ("manual", "NoSchedule", ["nodeguard.io/unhealthy=manual:NoSchedule"]),
    ("GpuMemoryFault", "NoExecute", ["nodeguard.io/unhealthy=GpuMemoryFault:NoExecute", OWN_TAINT]),
])
def test_c45d_a_persons_taint_under_our_key_stays(rig: Rig, value: str, effect: str, after: list[str]) -> None:
    """C45d: our key with a value or effect that is not ours is never changed, and is reported once.

    Key and effect are unique in the list, so where both are taken there is no room for ours.
    """
    rig.taint("nodeguard.io/unhealthy", value, effect)
    rig.say(FAULTY, 5)
    assert rig.taints == after
    rig.say(HEALTHY, 5)
    assert rig.taints == [f"nodeguard.io/unhealthy={value}:{effect}"]
    assert [what for what, _ in rig.reports] == ["foreign_taint"]
    assert f"{value}:{effect}" in rig.reports[0][1]


def test_other_writers_entries_survive_500_rounds(rig: Rig) -> None:
    """Somebody adds taints and conditions between reads and writes, 500 times: none is lost or doubled."""
    chance = random.Random(45)  # noqa: S311 (a seed, not a secret)
    others: list[str] = []

    def act() -> None:
        if chance.random() < 0.5:
            others.append(f"other-{chance.random()}")
            rig.taint(others[-1])
            rig.api.edit(NODE_PATH, lambda node: node["status"]["conditions"].append({"type": others[-1]}))
        if len(others) > 8:
            gone = others.pop(chance.randrange(8))
            rig.untaint(gone)
            rig.api.edit(NODE_PATH, lambda node: node["status"].update(
                conditions=[one for one in node["status"]["conditions"] if one["type"] != gone]))

    rig.api.before("*", NODE_PATH, act, times=10**9)
    for number in range(500):
        rig.say((FAULTY, HEALTHY)[number % 2], 60)
        assert [one for one in rig.taints if one != OWN_TAINT] == [f"{name}=:NoSchedule" for name in others]
        assert (OWN_TAINT in rig.taints) == (number % 2 == 0)
        assert rig.conditions.keys() == {*others, "Ready", "GpuMemoryFault"}
    assert rig.writer.status.conflicts_total > 100


def test_taint_value_follows_the_strongest_condition_in_place(rig: Rig) -> None:
    """Another strongest condition changes the value of our taint, not its place in the list."""
    rig.say(FAULTY)
    rig.taint("X")
    rig.say(make_intent([make_condition()], FAULTY.faults, "GpuLost"), 5)
    assert rig.taints == ["nodeguard.io/unhealthy=GpuLost:NoSchedule", "X=:NoSchedule"]


def test_taint_is_written_where_a_policy_refuses_the_status(rig: Rig) -> None:
    """A refused status write is reported, and the taint still protects the node."""
    rig.api.fail("PATCH", NODE_PATH + "/status", ApiRefused("403 denied by policy", status=403), times=100)
    rig.say(FAULTY, 5)
    assert rig.taints == [OWN_TAINT]
    assert rig.reports == [("failing", "403 denied by policy")]


def test_endless_conflicts_back_off(rig: Rig) -> None:
    """A Node that changes between every read and write costs a bounded number of tries."""
    rig.api.fail("PATCH", NODE_PATH, ApiConflict("409", status=409), times=10**6)
    rig.say(FAULTY, 60)
    assert len(rig.api.requests) < 150
    rig.api.heal()
    rig.run(20)
    assert rig.taints == [OWN_TAINT]
