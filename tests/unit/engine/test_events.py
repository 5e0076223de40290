"""Bare events and ``count``: windows, distinct values, groups, one occurrence from several sources (design §§3, 4)."""

from typing import Any

from nodeguard.model.device import NODE, mig
from nodeguard.model.sample import Batch, Event, Identified, PodRef, Pods, SourceState

from .rig import A, B, MakeRig

BARE = {"signal": "gpu_xid", "match": {"code": [48]}, "clear": {"after": "10m"}}
THREE = {"signal": "gpu_xid", "match": {"code": 43}, "count": {"at_least": 3, "within": "10m"}}


def known(**attributes: int | None) -> dict[str, Any]:
    """The attributes that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


def test_a_bare_event_opens_at_once_and_counts(rig: MakeRig) -> None:
    """A match list is one fault with the codes in its evidence; the text is what people read."""
    node = rig({**BARE, "match": {"code": [48, 63]}, "message": "{device} says {code}"})
    assert node.event(0, code=31) == []
    assert node.event(1, code=48, text="line 48") == ["1 opened r gpu/GPU-a"]
    assert node.transitions[-1].detail == "line 48"
    assert node.event(2, code=63) == []
    assert (node.fault.count, node.fault.since, node.fault.last) == (2, 1, 2)
    assert node.fault.message == "gpu/GPU-a says 63"
    assert node.event(3, device=B, code=48) == ["3 opened r gpu/GPU-b"]


def test_match_forms(rig: MakeRig) -> None:
    """A value, a list, ``not`` and an anchored regex; numbers match as they read; a missing attribute is not equal."""
    node = rig(
        {**BARE, "name": "one", "match": {"code": 48, "word": "fatal"}},
        {**BARE, "name": "other", "match": {"code": {"not": [48, 63]}}},
        {**BARE, "name": "words", "match": {"process": {"regex": "python[0-9]+"}}},
        {**BARE, "name": "no-words", "match": {"process": {"not": {"regex": "python.*"}}}},
        {**BARE, "name": "test", "match": {"injected": True}},
        {**BARE, "name": "real", "match": {"injected": {"not": True}}},
    )
    node.event(0, code=48.0, word="fatal", process="python3", injected=True)
    assert node.open == ["one gpu/GPU-a", "test gpu/GPU-a", "words gpu/GPU-a"]
    node.event(1, device=B, code=31, process="my python3")
    assert [one for one in node.open if one.endswith("b")] == [
        "no-words gpu/GPU-b",
        "other gpu/GPU-b",
        "real gpu/GPU-b",
    ]


def test_a_bare_event_clears_by_quiet(rig: MakeRig) -> None:
    """Each occurrence starts the clock anew; the transition has the due time; a blind source makes no quiet."""
    node = rig(BARE)
    node.event(0, code=48)
    node.event(500, code=48)
    assert node.wait(2000) == ["1100 closed r gpu/GPU-a"]
    node.event(2000, code=48)
    node.facts(2100, SourceState(up=False), source="kmsg")
    assert node.wait(9000) == []
    node.facts(9000, SourceState(up=True), source="kmsg")
    assert node.wait(9500) == ["9500 closed r gpu/GPU-a"]


def test_require_on_an_event(rig: MakeRig) -> None:
    """A companion that is false or unknown opens nothing."""
    node = rig({**BARE, "require": [{"signal": "gpu_row_remap_pending", "is": 0}]})
    assert node.event(0, code=48) == []
    node.poll(1, gpu_row_remap_pending=0)
    assert node.event(2, code=48) == ["2 opened r gpu/GPU-a"]


def test_count_in_a_window(rig: MakeRig) -> None:
    """Three within ten minutes, both ends included; it clears when nothing came for the window."""
    node = rig(THREE)
    node.event(0, code=43)
    node.event(1, code=43)
    node.event(1, code=31)
    assert node.event(601, code=43) == []
    assert node.event(601, device=B, code=43) == []
    assert node.event(601.5, code=43) == []
    assert node.event(602, code=43) == ["602 opened r gpu/GPU-a"]
    assert node.wait(2000) == ["1202 closed r gpu/GPU-a"]


def test_count_uses_the_records_own_stamps(rig: MakeRig) -> None:
    """A ring that is read at start is no burst; a burst that was read late is one."""
    node = rig(THREE)
    for stamp in (0, 1000, 2000, 3000):
        assert node.event(5000, code=43, stamp=stamp) == []
    late = rig(THREE)
    late.event(10, code=43, stamp=1)
    late.event(2000, code=43, stamp=2)
    assert late.event(4000, code=43, stamp=3) == ["4000 opened r gpu/GPU-a"]


def test_count_distinct_counts_values_not_events(rig: MakeRig) -> None:
    """The same value twice is one; a missing one is none."""
    node = rig({**THREE, "count": {"at_least": 3, "within": "10m", "distinct": "pid"}})
    for at, pid in enumerate((1, 1, 2, 2, 1, None)):
        assert node.event(at, code=43, **known(pid=pid)) == []
    assert node.event(9, code=43, pid=3) == ["9 opened r gpu/GPU-a"]


def test_count_distinct_pod_knows_the_pod_of_the_device(rig: MakeRig) -> None:
    """The only pod on the GPU is the event's; with two pods, or none known, nothing is counted."""
    node = rig({**THREE, "count": {"at_least": 3, "within": "10m", "distinct": "pod"}})

    def seen(at: float, *uids: str) -> list[str]:
        node.facts(at, Pods({A: tuple(PodRef(uid) for uid in uids)} if uids else {}))
        return node.event(at, code=43)

    assert [seen(0, "p1"), seen(1), seen(2, "p2", "p3"), seen(3, "p2"), seen(4)] == [[], [], [], [], []]
    assert seen(5, "p3") == ["5 opened r gpu/GPU-a"]
    assert node.fault.pods == (PodRef("p3"),)


def test_count_same_counts_apart(rig: MakeRig) -> None:
    """Three on one link, not on three; an event without the attribute is not counted."""
    node = rig({**THREE, "count": {"at_least": 3, "within": "10m", "same": ["link"]}})
    for at, link in enumerate((1, 2, 3, 1, None, None, None)):
        assert node.event(at, code=43, **known(link=link)) == []
    assert node.event(9, code=43, link=1) == ["9 opened r gpu/GPU-a"]


def test_two_groups_hold_one_fault(rig: MakeRig) -> None:
    """It closes when the last group is quiet."""
    node = rig({**THREE, "count": {"at_least": 1, "within": "10m", "same": "link"}})
    node.event(0, code=43, link=1)
    node.event(300, code=43, link=2)
    assert node.wait(5000) == ["900 closed r gpu/GPU-a"]


def test_a_flood_is_one_fault_with_a_count(rig: MakeRig) -> None:
    """C15c in small: one transition, memory bounded."""
    node = rig(BARE, {**THREE, "name": "three", "match": {"code": 48}})
    events = tuple(Event("gpu_xid", A, {"code": 48}, stamp=number / 1000, key=str(number)) for number in range(5000))
    told = node.take(0, Batch(source="kmsg", events=events))
    assert told == ["0 opened r gpu/GPU-a", "0 opened three gpu/GPU-a"]
    assert [fault.count for fault in node.engine.open_faults()] == [5000, 4998]


def test_one_occurrence_from_two_sources(rig: MakeRig) -> None:
    """Within 5 s the second only adds evidence, whichever came first; later it is another occurrence."""
    node = rig(BARE)
    node.event(0, code=48, source="nvml_events")
    assert node.event(5, code=48, pid=7, text="the line") == []
    assert (node.fault.count, node.fault.evidence["pid"], node.fault.evidence["text"]) == (1, 7, "the line")
    node.event(20, code=48)
    node.event(25.5, code=48, source="nvml_events")
    assert node.fault.count == 3


def test_two_of_each_source_are_two(rig: MakeRig) -> None:
    """Pairs, not a window that swallows: two lines and two events are two occurrences."""
    node = rig(BARE)
    for source in ("kmsg", "kmsg", "nvml_events", "nvml_events"):
        node.event(1, code=48, source=source)
    assert node.fault.count == 2
    assert sum(node.engine.event_counts.values()) == 2


def test_another_code_or_device_is_another_occurrence(rig: MakeRig) -> None:
    """Only equal device and code are one."""
    node = rig({**BARE, "match": {"code": [48, 63]}})
    node.event(0, code=48)
    node.event(1, code=63, source="nvml_events")
    node.event(1, device=B, code=48, source="nvml_events")
    assert [fault.count for fault in node.engine.open_faults()] == [2, 1]


def test_the_second_source_may_know_what_the_first_did_not(rig: MakeRig) -> None:
    """A number alone opens one rule; the words that the kernel adds open the rule that asks for them, once."""
    node = rig(
        {**BARE, "name": "bare-number", "match": {"code": 149, "resolution": {"not": "reset"}}},
        {**BARE, "name": "with-words", "match": {"code": 149, "resolution": "reset"}},
        {**BARE, "name": "both", "match": {"code": 149}, "count": {"at_least": 2, "within": "10m"}},
    )
    assert node.event(0, code=149, source="nvml_events") == ["0 opened bare-number gpu/GPU-a"]
    assert node.event(0.01, code=149, resolution="reset") == ["0.01 opened with-words gpu/GPU-a"]
    assert node.event(0.02, code=149, resolution="reset", source="exporter/dcgm") == []
    assert [fault.count for fault in node.engine.open_faults()] == [1, 1]


def test_mig_faults_that_need_a_reset_belong_to_the_parent(rig: MakeRig) -> None:
    """From ``reset_gpu`` up; below that the instance has its own."""
    node = rig({**BARE, "name": "app", "action": "restart_app"}, {**BARE, "name": "reset", "action": "reset_gpu"})
    assert node.event(0, device=mig(A, 5), code=48) == ["0 opened app gpu/GPU-a/gi5", "0 opened reset gpu/GPU-a"]
    node.event(1, device=mig(A, 6, 1), code=48)
    assert node.open == ["app gpu/GPU-a/gi5", "app gpu/GPU-a/gi6/ci1", "reset gpu/GPU-a"]
    assert node.wait(700) == [
        "600 closed app gpu/GPU-a/gi5",
        "601 closed app gpu/GPU-a/gi6/ci1",
        "601 closed reset gpu/GPU-a",
    ]


def test_no_device_is_the_node(rig: MakeRig) -> None:
    """An event that names none is the node's own."""
    node = rig(BARE)
    assert node.event(0, device=NODE, code=48) == ["0 opened r node"]


def test_events_after_a_gap_in_the_same_batch_are_in_order(rig: MakeRig) -> None:
    """An inventory line in a batch names the GPU for the events beside it."""
    node = rig(BARE)
    node.take(
        0, Batch(source="kmsg", facts=(Identified("0000:3b:00.0", A),), events=(Event("gpu_xid", A, {"code": 48}),))
    )
    assert node.fault.pci == "0000:3b:00.0"
