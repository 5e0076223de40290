"""What the node writer says on the Node, and which times it writes."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from nodeguard.kube.api import Object
from nodeguard.model.errors import ApiUnavailable
from nodeguard.model.intent import FAULTS_ANNOTATION
from nodeguard.sinks.node import Pace

from .rig import FAULTY, HEALTHY, NODE_PATH, OWN_TAINT, Rig, make_condition, make_fault, make_intent


@pytest.fixture
def rig() -> Rig:
    """A writer that is not slowed down."""
    return Rig(Pace(burst=10_000))


def test_fault_is_told_by_two_requests_after_the_first_read(rig: Rig) -> None:
    """Conditions and annotation go in one PATCH; its answer lets the taint follow without reading."""
    rig.run()
    rig.api.requests.clear()
    rig.say(FAULTY)
    assert [(one.method, one.path) for one in rig.api.requests] == [
        ("PATCH", NODE_PATH + "/status"), ("PATCH", NODE_PATH)]
    assert rig.condition == {
        "type": "GpuMemoryFault", "status": "True", "reason": "GpuLost", "message": "a message",
        "lastTransitionTime": rig.now(), "lastHeartbeatTime": rig.now()}
    assert rig.taints == [OWN_TAINT]
    assert rig.document["faults"] == [{
        "rule": "gpu-lost", "device": "gpu/GPU-aaaa", "pci": "0000:3b:00.0", "severity": "critical",
        "action": "reset_gpu", "effect": "evict", "scope": "device", "since": "2023-11-14T22:13:20.000Z", "count": 1,
        "hash": "", "pods": [{"uid": "p1", "namespace": "train", "name": "rank-0"}]}]
    assert "Ready" in rig.conditions
    assert rig.node["metadata"]["annotations"]["somebody"] == "else"


def test_recovery_leaves_an_empty_list_and_no_taint(rig: Rig) -> None:
    """After a fault the condition is False, the taint gone, and the annotation says healthy instead of nothing."""
    rig.say(FAULTY)
    rig.say(HEALTHY, 5)
    assert rig.condition["status"] == "False"
    assert rig.taints == []
    assert (rig.document["faults"], rig.document["cut"]) == ([], 0)


def test_c43_alternating_reasons_keep_the_transition_time(rig: Rig) -> None:
    """C43: reason and message may change for hours; lastTransitionTime stays while the status does."""
    rig.say(FAULTY)
    began = rig.condition["lastTransitionTime"]
    for number in range(6):
        rig.clock.advance(30)
        name = "AB"[number % 2]
        rig.say(make_intent([make_condition(reason=f"Reason{name}", message=f"A; B, worst {name}")], FAULTY.faults), 60)
        assert rig.condition["reason"] == f"Reason{name}"
        assert rig.condition["lastTransitionTime"] == began
        assert rig.condition["lastHeartbeatTime"] > began


def test_true_begins_with_the_oldest_fault_and_false_with_the_clearing(rig: Rig) -> None:
    """A True status dates from the engine's ``since``, a False one from the moment of clearing."""
    rig.clock.advance(100)
    rig.say(make_intent([make_condition(since=1040.0)]))
    assert rig.condition["lastTransitionTime"] == "2023-11-14T22:14:00Z"
    rig.clock.advance(50)
    rig.say(HEALTHY)
    assert rig.condition["lastTransitionTime"] == rig.now()


def test_time_is_of_the_first_true_though_it_was_never_written(rig: Rig) -> None:
    """The oldest fault of an outage ends before the server is back: the status is True since it began all the same."""
    rig.say(HEALTHY)
    rig.api.fail("*", "/", ApiUnavailable("no answer"), times=10**6)
    rig.say(make_intent([make_condition(since=990.0)]), 100)
    rig.say(make_intent([make_condition(since=1050.0)]), 100)
    rig.api.heal()
    rig.run(20)
    assert rig.condition["lastTransitionTime"] == "2023-11-14T22:13:10Z"


def test_time_on_the_node_outlives_a_change_that_was_never_written(rig: Rig) -> None:
    """True, then Unknown unseen by anybody, then True again: the Node's status never changed, nor does its time."""
    rig.say(FAULTY)
    rig.clock.advance(100)
    rig.writer.publish(make_intent([make_condition("Unknown")]))
    rig.say(make_intent([make_condition(since=1050.0, reason="Other")]), 5)
    assert (rig.condition["reason"], rig.condition["lastTransitionTime"]) == ("Other", "2023-11-14T22:13:20Z")


def test_time_that_stood_at_start_is_written_again(rig: Rig) -> None:
    """After a restart somebody removes our condition: it returns with the time that stood there before."""
    rig.say(HEALTHY)
    began = rig.condition["lastTransitionTime"]
    rig.clock.advance(600)
    rig.restarted()
    rig.say(HEALTHY, 5)
    rig.api.edit(NODE_PATH, lambda node: node["status"]["conditions"].pop())
    rig.writer.observe(rig.node)
    rig.run(5)
    assert rig.condition["lastTransitionTime"] == began


def test_c44b_restart_never_blinks(rig: Rig) -> None:
    """C44b: a new process writes nothing before its intent is ready, and keeps the time that stands on the Node."""
    rig.say(FAULTY)
    before = rig.node
    rig.clock.advance(600)
    rig.clock.step_wall(-7)
    rig.api.requests.clear()
    rig.restarted()
    rig.say(make_intent([make_condition("Unknown")], ready=False), 9)
    rig.say(FAULTY, 60)
    assert rig.api.writes() == []
    assert rig.node == before


def test_c44c_recovery_while_the_server_is_away_ends_clean(rig: Rig) -> None:
    """C44c: the recovery is retried through two minutes of 503 and dates from when it happened."""
    rig.say(FAULTY)
    rig.api.fail("*", "/", ApiUnavailable("503", status=503), times=10_000)
    rig.say(HEALTHY)
    cleared = rig.now()
    rig.run(120)
    assert rig.writer.status.pending_since == pytest.approx(1000.0)
    assert rig.taints == [OWN_TAINT]
    rig.api.heal()
    rig.run(20)
    assert (rig.condition["status"], rig.condition["lastTransitionTime"]) == ("False", cleared)
    assert rig.taints == []
    assert rig.writer.status.pending_since is None
    assert [what for what, _ in rig.reports] == ["failing", "recovered"]


def test_c44c_fault_while_the_server_is_away_has_its_original_time(rig: Rig) -> None:
    """C44c: a fault that began in an outage of hours is written afterwards with the time at which it began."""
    rig.say(HEALTHY)
    rig.api.fail("*", "/", ApiUnavailable("no answer"), times=100_000)
    rig.clock.advance(500)
    rig.say(make_intent([make_condition(since=1480.0)], [make_fault(since=1480.0)], "GpuMemoryFault"))
    rig.run(3 * 3600)
    rig.clock.step_wall(-3600)
    rig.api.heal()
    healed = rig.now()
    rig.run(20)
    assert rig.condition["lastTransitionTime"] == "2023-11-14T22:21:20Z"
    assert rig.document["faults"][0]["since"] == "2023-11-14T22:21:20.000Z"
    assert rig.condition["lastHeartbeatTime"] >= healed


def test_c44d_long_message_is_cut_and_clears(rig: Rig) -> None:
    """C44d: forty ports in a message are cut to fit; state is elsewhere, so clearing works."""
    message = "; ".join(f"port {number} of the fabric is down: Ü" for number in range(40))
    rig.say(make_intent([make_condition(message=message)], FAULTY.faults, "GpuMemoryFault"))
    told = rig.condition["message"]
    assert len(told.encode()) <= 1024
    assert told.startswith("port 0 of")
    assert told.endswith(f"; and {40 - told.count('port')} more")
    rig.say(HEALTHY, 5)
    assert (rig.condition["status"], rig.taints) == ("False", [])


def test_type_that_no_rule_feeds_is_removed_if_we_wrote_it(rig: Rig) -> None:
    """Also by a later process; a type of the same pattern that somebody else wrote stays."""
    rig.api.edit(NODE_PATH, lambda node: node["status"]["conditions"].append({"type": "GpuOfOthers", "status": "True"}))
    rig.say(make_intent([make_condition("False"), make_condition("False", type="GpuOld")]))
    rig.restarted()
    rig.say(HEALTHY, 5)
    assert set(rig.conditions) == {"Ready", "GpuOfOthers", "GpuMemoryFault"}


@pytest.mark.parametrize("spoil", [
    lambda node: node["status"].update(conditions=[node["status"]["conditions"][0]]),
    lambda node: node["status"]["conditions"][1].update(status="False"),
    lambda node: node["spec"].update(taints=[]),
    lambda node: node["metadata"]["annotations"].pop(FAULTS_ANNOTATION),
    lambda node: node["metadata"]["annotations"].update({FAULTS_ANNOTATION: "{torn"}),
])
def test_what_somebody_else_changes_of_ours_is_written_again(rig: Rig, spoil: Callable[[Object], None]) -> None:
    """A watcher's news that our condition, taint or annotation changed brings it back, with its old time."""
    rig.say(FAULTY)
    rig.run(5)
    began = rig.condition["lastTransitionTime"]
    rig.clock.advance(60)
    rig.api.edit(NODE_PATH, spoil)
    rig.writer.observe(rig.node)
    rig.run(5)
    assert (rig.condition["status"], rig.condition["lastTransitionTime"]) == ("True", began)
    assert rig.taints == [OWN_TAINT]
    assert [one["rule"] for one in rig.document["faults"]] == ["gpu-lost"]


def test_late_news_from_the_watcher_is_ignored(rig: Rig) -> None:
    """A watcher that still tells the Node as it was before our write causes no second write."""
    old = rig.node
    rig.say(FAULTY)
    written = len(rig.api.writes())
    rig.writer.observe(old)
    rig.run(5)
    assert len(rig.api.writes()) == written


def test_missing_node_is_waited_for(rig: Rig) -> None:
    """A Node that is not registered yet is said once and written as soon as it is there."""
    node = rig.node
    rig.api.remove(NODE_PATH)
    rig.say(FAULTY, 60)
    rig.api.add(NODE_PATH, node)
    rig.run(20)
    assert rig.taints == [OWN_TAINT]
    assert [what for what, _ in rig.reports] == ["node_missing", "recovered"]


def test_another_node_object_of_the_same_name_is_reported(rig: Rig) -> None:
    """A new UID means another machine: the caller is told, and nothing is written until it says what it wants here."""
    rig.say(FAULTY)
    fresh = {"metadata": {"name": "gpu-7", "uid": "u2"}, "spec": {}, "status": {"conditions": []}}
    rig.api.remove(NODE_PATH)
    rig.api.add(NODE_PATH, fresh)
    rig.writer.observe(rig.node)
    rig.run(60)
    assert [what for what, _ in rig.reports] == ["node_replaced"]
    assert rig.taints == []
    rig.say(FAULTY)
    assert rig.taints == [OWN_TAINT]


def test_annotation_stays_within_8_kib(rig: Rig) -> None:
    """Faults that do not fit are left out from the weakest, and their number is told."""
    faults = [make_fault(f"rule-{number}") for number in range(100)]
    rig.say(make_intent([make_condition()], faults))
    text = rig.node["metadata"]["annotations"][FAULTS_ANNOTATION]
    assert len(text.encode()) <= 8192
    kept = json.loads(text)["faults"]
    assert [one["rule"] for one in kept] == [f"rule-{number}" for number in range(len(kept))]
    assert len(kept) > 20
    assert rig.document["cut"] == 100 - len(kept)


@pytest.mark.parametrize(("effect", "evidence", "told"), [
    ("evict", {"code": 79, "text": "NVRM: Xid 79"}, "NVRM: Xid 79"), ("noschedule", {"value": 91.5, "of": "x"},
                                                                      "value=91.5, of=x"),
    ("evict", {"text": "a\nb\t\ud800 c"}, "a b ? c"), ("evict", {"text": "é" * 200}, "é" * 159 + "…"),
    ("condition", {"value": 91.5}, None), ("evict", {}, None),
])
def test_what_keeps_pods_away_says_why(rig: Rig, effect: str, evidence: dict[str, Any], told: str | None) -> None:
    """The rule's hash, by which a bad rule is known, and one short line for the record of the decision."""
    rig.say(make_intent([make_condition()], [make_fault(effect=effect, evidence=evidence, rule_hash="abc")]))
    (fault,) = rig.document["faults"]
    assert fault["hash"] == "abc"
    assert fault.get("evidence") == told


def test_words_give_way_before_faults_do(rig: Rig) -> None:
    """As many faults are told with long evidence as without any."""
    few = [make_fault(f"rule-{number}", evidence={"text": "x" * 160}) for number in range(10)]
    rig.say(make_intent([make_condition()], few))
    assert all("evidence" in fault for fault in rig.document["faults"])
    kept = []
    for words in ({}, {"text": "x" * 160}):
        many = [make_fault(f"rule-{number}", evidence=words) for number in range(100)]
        rig.say(make_intent([make_condition()], many), 60)
        kept.append([fault["rule"] for fault in rig.document["faults"]])
    assert kept[0] == kept[1]
    assert len(kept[0]) > 20
