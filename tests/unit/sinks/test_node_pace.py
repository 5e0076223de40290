"""How often the node writer speaks to the API server, and that it keeps its word in its own thread."""

import threading
from dataclasses import replace

import pytest

from nodeguard.kube.fake import FakeApi
from nodeguard.model.clock import SystemClock
from nodeguard.model.errors import ApiUnavailable
from nodeguard.model.intent import Intent
from nodeguard.sinks.node import NodeWriter

from .rig import FAULTY, HEALTHY, NODE_PATH, OWN_TAINT, Rig, make_condition, make_fault, make_intent


@pytest.fixture
def rig() -> Rig:
    """A writer at its usual pace."""
    return Rig()


def counting(count: int) -> Intent:
    """The same fault, told ``count`` times."""
    return make_intent([make_condition()], [make_fault(count=count, last=1000.0 + count)], "GpuMemoryFault")


def test_c15_flood_of_equal_lines_costs_three_writes(rig: Rig) -> None:
    """C15c: 100,000 occurrences within a minute are three PATCHes: condition, taint, and the count a minute later."""
    for count in range(1, 100_001):
        rig.writer.publish(counting(count))
        if count % 500 == 1:
            rig.run(0.25)
    rig.run(120)
    assert [one.path for one in rig.api.writes()] == [NODE_PATH + "/status", NODE_PATH, NODE_PATH + "/status"]
    assert rig.document["faults"][0]["count"] == 100_000


def test_flapping_fault_is_slowed_to_one_write_a_second(rig: Rig) -> None:
    """A fault that opens and closes ten times a second: few writes at once, then one a second, the last state last."""
    for number in range(600):
        rig.say((FAULTY, HEALTHY)[number % 2], 0.1)
    assert len(rig.api.writes(NODE_PATH + "/status")) <= 8 + 60 + 1
    rig.run(5)
    assert rig.condition["status"] == "False"
    assert rig.taints == []


def test_other_wording_waits_a_minute(rig: Rig) -> None:
    """A message that changes with every line does not write with every line."""
    rig.say(FAULTY)
    for number in range(100):
        rig.say(make_intent([make_condition(message=f"seen {number}")], FAULTY.faults, "GpuMemoryFault"), 1)
    assert len(rig.api.writes(NODE_PATH + "/status")) == 2


def test_nothing_new_is_only_a_heartbeat_each_half_hour(rig: Rig) -> None:
    """A quiet day: a heartbeat each 30 min ± 10 %, no taint write, no transition."""
    rig.say(HEALTHY)
    began = rig.condition["lastTransitionTime"]
    rig.run(24 * 3600)
    beats = len(rig.api.writes()) - 1
    assert 24 * 2 / 1.1 - 1 <= beats <= 24 * 2 / 0.9
    assert rig.condition["lastTransitionTime"] == began


def test_restart_does_not_beat_early(rig: Rig) -> None:
    """A restarted agent goes on with the heartbeat that stands on the Node: a fleet's restart writes nothing."""
    rig.say(HEALTHY)
    rig.run(60)
    rig.restarted()
    rig.say(HEALTHY, 60)
    assert len(rig.api.writes()) == 1


def test_outage_is_met_with_a_growing_pause_and_retry_after(rig: Rig) -> None:
    """An hour of refusals costs a request each 15 s or so; a server that asks for 30 s gets them."""
    rig.say(HEALTHY)
    rig.api.requests.clear()
    rig.api.fail("*", "/", ApiUnavailable("503", status=503), times=10**6)
    rig.say(FAULTY, 3600)
    assert 3600 / 15 / 1.25 < len(rig.api.requests) < 3600 / 15 / 0.75 + 10
    assert (rig.writer.status.last_error, rig.writer.status.writes_total) == ("503", 1)
    rig.api.heal()
    rig.run(20)
    rig.api.fail("PATCH", "/", ApiUnavailable("429", status=429, retry_after=30.0))
    rig.say(HEALTHY)
    asked = len(rig.api.requests)
    rig.run(29.5)
    assert len(rig.api.requests) == asked
    rig.run(1)
    assert rig.condition["status"] == "False"


def test_equal_intent_costs_nothing(rig: Rig) -> None:
    """Publishing the same again, or a Node seen unchanged, makes no request."""
    rig.say(FAULTY, 5)
    rig.api.requests.clear()
    rig.say(replace(FAULTY), 5)
    rig.writer.observe(rig.node)
    rig.run(5)
    assert rig.api.requests == []


def test_thread_writes_at_once_and_ends_when_told() -> None:
    """In its own thread: publish returns at once, the Node follows, and ``stop`` ends the loop."""
    api, stop, tainted = FakeApi(), threading.Event(), threading.Event()
    api.add(NODE_PATH, {"metadata": {"uid": "u1"}, "spec": {}, "status": {}})
    writer = NodeWriter(api, "gpu-7", SystemClock())
    thread = threading.Thread(target=writer.run, args=(stop,))
    thread.start()

    def follow() -> None:
        for event in api.watch("/api/v1/nodes", {"resourceVersion": "0"}, stop):
            if event["object"]["spec"].get("taints"):
                tainted.set()

    watcher = threading.Thread(target=follow)
    watcher.start()
    writer.publish(FAULTY)
    assert tainted.wait(5)
    stop.set()
    thread.join(5)
    watcher.join(5)
    assert not thread.is_alive()
    assert not watcher.is_alive()
    assert OWN_TAINT.startswith(api.read(NODE_PATH)["spec"]["taints"][0]["key"])


def test_other_evidence_waits_a_minute(rig: Rig) -> None:
    """A value that is another with every poll does not write with every poll, and is told in the end."""
    def heated(degrees: int) -> Intent:
        return make_intent([make_condition()], [make_fault(evidence={"value": degrees})], "GpuMemoryFault")

    for degrees in range(100):
        rig.say(heated(degrees), 1)
    assert len(rig.api.writes(NODE_PATH + "/status")) == 2
    rig.run(60)
    assert rig.document["faults"][0]["evidence"] == "value=99"
