"""Transitions become Events on the Node, each once and never a flood."""

import json
from dataclasses import replace
from typing import Any

import pytest

from nodeguard.kube.fake import FakeApi
from nodeguard.model.clock import FakeClock
from nodeguard.model.errors import ApiRefused, ApiUnavailable
from nodeguard.model.fault import Transition
from nodeguard.sinks.events import COLLECTION, EventWriter

from .rig import make_fault


class Bench:
    """A writer over a fake API, moved by hand."""

    def __init__(self) -> None:
        self.api, self.clock = FakeApi(), FakeClock()
        self.writer = EventWriter(self.api, "gpu-7", self.clock)

    def run(self, seconds: float = 0.0) -> None:
        """Let the writer do all that is due now and in the next ``seconds``."""
        end = self.clock.boot() + seconds
        while (wait := self.writer.turn()) + self.clock.boot() <= end:
            self.clock.advance(wait)
        self.clock.advance(end - self.clock.boot())

    def say(self, *transitions: Transition) -> None:
        """Announce and run."""
        self.writer.announce(transitions, "b1")
        self.run()

    @property
    def events(self) -> list[dict[str, Any]]:
        """All Events that stand."""
        return self.api.under(COLLECTION)


@pytest.fixture
def bench() -> Bench:
    """A fresh one."""
    return Bench()


def opened(number: int = 0, **changes: Any) -> Transition:
    """A fault that opened ``number`` lines after the first."""
    return Transition(at=1000.0, transition="opened", detail="Xid 95",
                      fault=make_fault(**{"key": f"kmsg:{number}", **changes}))


def closed() -> Transition:
    """The first fault, cured."""
    return Transition(at=1000.0, transition="closed", detail="recovery action is 0", fault=make_fault(key="kmsg:0"))


def test_event_is_found_by_kubectl_and_reads_well(bench: Bench) -> None:
    """It is about the Node by name, with the name as UID as the kubelet's are, in the namespace ``default``."""
    bench.say(opened(runbook="https://example.org/95"))
    (event,) = bench.events
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "gpu-7", "uid": "gpu-7"}
    assert (event["type"], event["reason"]) == ("Warning", "GpuLost")
    assert event["message"] == ("gpu/GPU-aaaa: uncontained ECC error (Xid 95); needs reset_gpu; "
                                "see https://example.org/95")
    assert event["firstTimestamp"] == "2023-11-14T22:13:20Z"


def test_cleared_is_normal(bench: Bench) -> None:
    """A cure is told as its own, normal Event with what cured it."""
    bench.say(opened(), closed())
    assert [(one["type"], one["reason"]) for one in bench.events] == [
        ("Warning", "GpuLost"), ("Normal", "GpuLostCleared")]
    assert "(recovery action is 0)" in bench.events[1]["message"]


def test_again_after_a_crash_is_told_once(bench: Bench) -> None:
    """The same deed announced by another process has the same name: "already exists" is success."""
    bench.say(opened())
    bench.writer = EventWriter(bench.api, "gpu-7", bench.clock)
    bench.say(opened())
    assert len(bench.events) == 1
    assert bench.writer.status.written_total == 1


def test_another_occurrence_is_another_event(bench: Bench) -> None:
    """A fault that closed and opened anew is told anew."""
    bench.say(opened(0), opened(1))
    assert len(bench.events) == 2


def test_twice_at_one_moment_is_told_twice(bench: Bench) -> None:
    """Lines that waited are judged at one moment: a level that came and went twice in them is four Events."""
    bench.say(opened(), closed(), opened(), closed())
    assert [one["reason"] for one in bench.events] == ["GpuLost", "GpuLostCleared"] * 2


def test_second_life_of_a_moment_ends_too(bench: Bench) -> None:
    """The level came, went and came again at one moment; its end, told later, is not taken for the first one's."""
    first, end = opened(key="kmsg@5.000"), replace(closed(), fault=make_fault(key="kmsg@5.000"))
    bench.say(first, end, first)
    bench.say(replace(end, at=1003.0))
    assert [one["reason"] for one in bench.events] == ["GpuLost", "GpuLostCleared"] * 2


def test_each_change_of_a_fault_is_told(bench: Bench) -> None:
    """A fault that grows worse is told again, and the same change only once."""
    worse = replace(opened(action="replace_hw"), transition="updated")
    bench.say(opened(), worse, worse, replace(worse, fault=replace(worse.fault, severity="warning")))
    assert len(bench.events) == 3


def test_effect_none_is_not_told_and_observed_says_so(bench: Bench) -> None:
    """Faults without any effect make no Event; observe mode says what it would have done."""
    bench.say(opened(0, effect="none"), opened(1, effect="event", would="evict"))
    (event,) = bench.events
    assert event["message"].endswith("only observed, its effect would be evict")


def test_flood_is_ten_events_and_a_number(bench: Bench) -> None:
    """Of 1000 transitions the first ten are told, the newest ten one by one later, the others as one number."""
    bench.say(*(opened(number) for number in range(1000)))
    bench.run(10 * 60)
    reasons = [one["reason"] for one in bench.events]
    assert len(reasons) <= 10 + 60
    folded = [one for one in bench.events if one["reason"] == "NodeguardMoreEvents"]
    told = sum(one["count"] for one in folded)
    assert told + len(reasons) - len(folded) == 1000
    assert "GpuLost" in folded[0]["message"]
    assert bench.writer.status.waiting == 0


def test_outage_keeps_the_newest_hundred_with_their_times(bench: Bench) -> None:
    """While the server is away the queue is bounded; afterwards the original times are told."""
    bench.api.fail("POST", COLLECTION, ApiUnavailable("no answer"), times=10**6)
    for number in range(300):
        bench.say(opened(number))
    bench.run(600)
    assert bench.writer.status.waiting <= 100
    bench.api.heal()
    bench.run(7200)
    assert bench.writer.status.waiting == 0
    assert {one["firstTimestamp"] for one in bench.events} == {"2023-11-14T22:13:20Z"}
    assert len(bench.events) <= 101


def test_refused_event_costs_only_itself(bench: Bench) -> None:
    """An Event that the server will never take is counted and the next one told."""
    bench.api.fail("POST", COLLECTION, ApiRefused("422", status=422))
    bench.say(opened(0), opened(1))
    assert (len(bench.events), bench.writer.status.refused_total) == (1, 1)


def test_what_waits_outlives_the_process(bench: Bench) -> None:
    """Events that an outage held up, and those on their way to the writer, are told by the next process."""
    bench.api.fail("POST", COLLECTION, ApiUnavailable("away"))
    bench.say(opened(0))
    coming = bench.writer.compose([opened(1)], "b1")
    kept = json.loads(json.dumps(bench.writer.state(coming)))
    bench.writer = EventWriter(bench.api, "gpu-7", bench.clock)
    bench.writer.restore(kept)
    bench.run(60)
    assert len(bench.events) == 2


def test_numbers_of_a_flood_outlive_the_process(bench: Bench) -> None:
    """What was folded stays folded, and is told as a number."""
    bench.say(*(opened(number) for number in range(1000)))
    kept = json.loads(json.dumps(bench.writer.state()))
    bench.writer = EventWriter(bench.api, "gpu-7", bench.clock)
    bench.writer.restore(kept)
    bench.run(10 * 60)
    folded = [one["count"] for one in bench.events if one["reason"] == "NodeguardMoreEvents"]
    assert sum(folded) + len(bench.events) - len(folded) == 1000


@pytest.mark.parametrize("kept", [{}, {"waiting": 7, "folded": [], "folded_from": {}}, {"waiting": ["x", None]}])
def test_strange_memory_is_left_out(bench: Bench, kept: dict[str, Any]) -> None:
    """What has not the form of a state tells nothing and stops nothing."""
    bench.writer.restore(kept)
    bench.say(opened())
    assert len(bench.events) == 1
