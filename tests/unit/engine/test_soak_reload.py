"""Observe mode, soak and reloads: what changes while rules change (design §4)."""

import pytest

from nodeguard.engine.engine import Engine
from nodeguard.engine.soak import judging_hashes

from .rig import A, B, MakeRig, Rig, rules

HOT = {"name": "hot", "signal": "gpu_temperature_celsius", "above": 90, "effect": "noschedule", "condition": "GpuHot"}
XID = {
    "name": "xid",
    "signal": "gpu_xid",
    "match": {"code": 48},
    "effect": "evict",
    "action": "reset_gpu",
    "condition": "GpuMemoryFault",
    "clear": {"after": "10m"},
}


def effect(node: Rig) -> tuple[str, str | None]:
    return node.fault.effect, node.fault.would


def test_observe_caps_the_effect_at_event(rig: MakeRig) -> None:
    """And says what it would have done; a weaker effect stays."""
    node = rig({**HOT, "mode": "observe"})
    node.hot(0, 95)
    assert effect(node) == ("event", "noschedule")
    assert node.engine.intent().taint is None
    assert node.engine.intent().faults == ()
    quiet = rig({"signal": "gpu_temperature_celsius", "above": 90, "effect": "none", "mode": "observe"})
    quiet.hot(0, 95)
    assert effect(quiet) == ("none", None)


def test_a_changed_level_rule_soaks_and_an_event_rule_does_not(rig: MakeRig) -> None:
    """At most ``condition`` until a moment between one and two periods, by a timer that tells the change."""
    node = rig(HOT, XID, soak=600, node_name="n1")
    node.hot(0, 80)
    node.reload(100, {**HOT, "above": 85}, {**XID, "match": {"code": [48, 95]}})
    node.hot(101, 88)
    assert effect(node) == ("condition", "noschedule")
    node.event(102, code=95)
    assert [fault.effect for fault in node.engine.open_faults()] == ["evict", "condition"]
    told = [one for one in node.wait(2000) if "updated" in one]
    at = float(told[0].split()[0])
    assert told == [f"{at:g} updated hot gpu/GPU-a"]
    assert 700 <= at <= 1300


def test_the_end_of_soak_is_spread_over_nodes() -> None:
    """By the node's name, always the same for one node."""
    ends: dict[str, set[float | None]] = {}
    for name in ("n1", "n2", "n3", "n1"):
        node = Rig(HOT, soak=600, node_name=name)
        node.wait(0)
        node.reload(1, {**HOT, "above": 85})
        ends.setdefault(name, set()).add(node.engine.next_due())
    assert all(len(one) == 1 for one in ends.values())
    assert len({one.pop() for one in ends.values()}) == 3


def test_the_first_set_is_not_new_and_an_unchanged_one_does_not_soak(rig: MakeRig) -> None:
    """The image's own rules at first start; changes of words only; a rule that was there before."""
    node = rig(HOT, soak=600)
    node.hot(0, 95)
    assert effect(node) == ("noschedule", None)
    node.reload(1, {**HOT, "severity": "critical", "message": "hot"}, XID)
    assert effect(node) == ("noschedule", None)


def test_an_override_at_first_start_is_new() -> None:
    """What differs from the image's own set soaks; a new rule does too."""
    shipped = judging_hashes(rules(HOT))
    node = Rig({**HOT, "above": 85}, soak=600, baseline=shipped)
    node.hot(0, 88)
    assert effect(node) == ("condition", "noschedule")
    same = Rig(HOT, soak=600, baseline=shipped)
    same.hot(0, 95)
    assert effect(same) == ("noschedule", None)


def test_soak_without_a_start_time_lasts_from_the_first_step() -> None:
    """A replay with ``--soak`` begins whenever its recording begins."""
    node = Rig(HOT, soak=600, baseline={})
    node.hot(5000, 95)
    assert effect(node) == ("condition", "noschedule")


def test_left_and_absent_and_counters_soak_too(rig: MakeRig) -> None:
    """Everything but events."""
    counted = {"signal": "pcie_replay_total", "effect": "noschedule", "condition": "PcieX"}
    node = rig({**counted, "increase": {"at_least": 5, "within": "1m"}}, soak=600)
    node.count(0, 0)
    node.reload(1, {**counted, "increase": {"at_least": 4, "within": "1m"}})
    node.count(2, 4)
    assert node.fault.effect == "condition"


def test_a_reload_keeps_timers_and_faults_of_rules_that_judge_as_before(rig: MakeRig) -> None:
    """Holds, windows, quiet clocks; severity and effect of open faults change and are told."""
    counted = {"name": "count", "signal": "gpu_xid", "match": {"code": 43}, "count": {"at_least": 2, "within": "1h"}}
    node = rig({**HOT, "for": "10s"}, XID, counted)
    node.hot(0, 95)
    node.event(0, code=48)
    node.event(0, code=43)
    assert node.reload(
        5,
        {**HOT, "for": "10s", "severity": "info"},
        {**XID, "effect": "noschedule"},
        counted,
        {"name": "new", "signal": "gpu_power_watts", "above": 5},
    ) == ["5 updated xid gpu/GPU-a"]
    assert node.transitions[-1].fault.effect == "noschedule"
    assert node.hot(10, 95) == ["10 opened hot gpu/GPU-a"]
    assert node.event(11, code=43) == ["11 opened count gpu/GPU-a"]
    assert "600 closed xid gpu/GPU-a" in node.wait(700)


def test_words_alone_are_told_to_nobody_but_shown(rig: MakeRig) -> None:
    """``updated`` is for severity, action, effect and would."""
    node = rig(XID)
    node.event(0, code=48)
    assert node.reload(1, {**XID, "message": "other words"}) == []
    assert node.fault.message == "other words"


def test_a_removed_rule_closes_its_faults_with_that_reason(rig: MakeRig) -> None:
    """Also one switched off."""
    node = rig(XID, HOT)
    node.event(0, code=48)
    node.hot(0, 95)
    assert node.reload(1, HOT) == ["1 closed xid gpu/GPU-a"]
    assert node.transitions[-1].detail == "the rule was removed"
    assert node.reload(2, {**HOT, "mode": "off"}, XID) == ["2 closed hot gpu/GPU-a"]


def test_a_changed_rule_goes_on_judging_its_open_fault(rig: MakeRig) -> None:
    """The new limit decides when it ends; nothing blinks."""
    node = rig(HOT)
    node.hot(0, 95)
    assert node.reload(1, {**HOT, "above": 97}) == []
    for at in (2, 3):
        assert node.hot(at, 95) == []
    assert node.hot(4, 95) == ["4 closed hot gpu/GPU-a"]
    events = rig(XID)
    events.event(0, code=48)
    events.reload(1, {**XID, "clear": {"after": "1m"}})
    assert events.wait(700) == ["61 closed xid gpu/GPU-a"]


@pytest.mark.parametrize(
    "changed",
    [
        {"signal": "gpu_power_watts", "above": 90},
        {"across": {"kind": "gpu", "at_least": 1}},
        {"signal": "nvlink_state", "above": None, "is": "inactive", "match": {"link": "3"}},
    ],
)
def test_a_fault_that_the_changed_rule_does_not_look_at_closes(rig: MakeRig, changed: dict[str, object]) -> None:
    """Nobody could ever end it."""
    node = rig(HOT)
    node.hot(0, 95)
    rule = {key: value for key, value in {**HOT, **changed}.items() if value is not None}
    assert node.reload(1, rule) == ["1 closed hot gpu/GPU-a"]
    assert "judged anew" in node.transitions[-1].detail


def test_a_reload_while_a_device_is_gone_keeps_what_can_come_back(rig: MakeRig) -> None:
    """Series stay known, so the fault keeps its judge."""
    node = rig(HOT)
    node.hot(0, 95, B)
    node.hot(0, 95, A)
    node.reload(1, HOT)
    assert len(node.open) == 2


def test_an_empty_set_judges_nothing() -> None:
    """Every fault closes; a step without rules is a step."""
    engine = Engine(rules())
    assert engine.step(0) == ()
    node = Rig(XID)
    node.event(0, code=48)
    assert node.reload(1) == ["1 closed xid gpu/GPU-a"]
