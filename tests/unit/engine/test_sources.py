"""The agent's own sight: sources that go down or hang, and what has been judged (design §§3, 4, 5)."""

from nodeguard.model.device import NODE, gpu
from nodeguard.model.sample import Batch, Booted, KindsHere, Missed, PersonCleared, Sample, SourceState, Stalled

from .rig import A, B, MakeRig, Rig

HANGS = {"signal": "source_stalled_seconds", "above": 2}
DOWN = {"signal": "source_up", "is": 0, "for": "10s", "clear": {"is": 1}}


def test_a_hanging_call_opens_by_timer(rig: MakeRig) -> None:
    """At the limit, on the device, though nothing is polled; the answer clears it."""
    node = rig(HANGS)
    assert node.facts(2, Stalled(A, 2), Missed(frozenset({A})), source="nvml") == []
    assert node.wait(30) == ["4 opened r gpu/GPU-a"]
    assert node.fault.evidence == {"source": "nvml", "value": 2}
    node.facts(40, Stalled(A, None), source="nvml")
    for at in (41, 42):
        node.take(at, Batch(source="nvml", samples=(Sample("source_stalled_seconds", A, 0, (("source", "nvml"),)),)))
    assert node.open == []


def test_an_answer_in_time_opens_nothing(rig: MakeRig) -> None:
    """The clock of the next stall starts anew; ``for`` adds to the limit."""
    node = rig({**HANGS, "for": "3s"})
    node.facts(2, Stalled(A, 2), source="nvml")
    node.facts(6.9, Stalled(A, None), source="nvml")
    node.facts(8, Stalled(A, 8), source="nvml")
    assert node.wait(12.9) == []
    assert node.wait(13) == ["13 opened r gpu/GPU-a"]


def test_a_stall_told_again_began_when_it_was_first_told(rig: MakeRig) -> None:
    """A restarted agent meets the same silence."""
    node = rig(HANGS)
    node.facts(2, Stalled(A, 2), source="nvml")
    assert node.facts(3, Stalled(A, 3), source="nvml") == []
    assert node.wait(4) == ["4 opened r gpu/GPU-a"]


def test_a_person_may_clear_a_stall_that_lasts(rig: MakeRig) -> None:
    """The same call does not open it again at once; the next one does."""
    node = rig(HANGS)
    node.facts(2, Stalled(A, 2), source="nvml")
    node.wait(10)
    assert node.facts(11, PersonCleared("r", None, 11)) == ["11 closed r gpu/GPU-a"]
    assert node.wait(100) == []
    node.facts(101, Stalled(A, None), source="nvml")
    node.facts(102, Stalled(A, 102), source="nvml")
    assert node.wait(104) == ["104 opened r gpu/GPU-a"]


def test_a_source_behind_which_nothing_answers_holds_nothing_back(rig: MakeRig) -> None:
    """Hung from the start: the Node is written without its first reading, and its conditions stay Unknown."""
    hot = {"name": "hot", "signal": "gpu_temperature_celsius", "above": 90}
    node = rig({**hot, "effect": "condition", "condition": "GpuThermal"}, configured=("nvml",))
    node.facts(0, Booted("b1", 0.0), KindsHere(frozenset({"gpu"})))
    node.facts(1, Stalled(A, 0), Missed(frozenset({A})), source="nvml")
    assert not node.engine.intent().ready
    node.facts(1, Stalled(NODE, 0), Missed(frozenset({NODE})), source="nvml")
    assert node.engine.intent().ready
    assert status(node) == {"GpuThermal": "Unknown"}


def test_a_rule_that_changes_while_a_call_hangs_judges_that_call(rig: MakeRig) -> None:
    """The new limit counts from the beginning of the stall."""
    node = rig({**HANGS, "above": 100})
    node.facts(2, Stalled(A, 2), source="nvml")
    node.reload(50, {**HANGS, "above": 60})
    assert node.wait(90) == ["62 opened r gpu/GPU-a"]


def test_a_required_companion_of_a_stall(rig: MakeRig) -> None:
    """While it is unknown the fault waits; when it is known to hold, the fault opens."""
    node = rig({**HANGS, "require": [{"signal": "gpu_power_watts", "above": 5}]})
    node.facts(2, Stalled(A, 2), source="nvml")
    assert node.wait(30) == []
    assert node.poll(31, source="exporter/dcgm", gpu_power_watts=50) == ["31 opened r gpu/GPU-a"]


def test_a_source_that_is_down_for_long_enough(rig: MakeRig) -> None:
    """By time alone: the source says it once."""
    node = rig(DOWN)
    node.facts(0, SourceState(up=True), source="kmsg")
    node.facts(5, SourceState(up=False), source="kmsg")
    assert node.wait(14) == []
    assert node.wait(60) == ["15 opened r node"]
    assert node.fault.evidence["source"] == "kmsg"
    assert node.facts(61, SourceState(up=True), source="kmsg") == ["61 closed r node"]


def test_a_short_blink_is_nothing_and_repeated_words_do_not_start_anew(rig: MakeRig) -> None:
    """Down for 9 s and up again; down told every second is down since the first."""
    node = rig(DOWN)
    node.facts(0, SourceState(up=False), source="kmsg")
    node.facts(9, SourceState(up=True), source="kmsg")
    for at in range(20, 30):
        assert node.facts(at, SourceState(up=False), source="kmsg") == []
    assert node.facts(31, SourceState(up=False), source="kmsg") == ["30 opened r node"]


def test_a_steady_signal_clears_by_time_too(rig: MakeRig) -> None:
    """Default clear and ``clear.after``: nobody will tell it three times."""
    node = rig({**DOWN, "clear": {"after": "1m"}})
    node.facts(0, SourceState(up=False), source="kmsg")
    node.wait(10)
    node.facts(20, SourceState(up=True), source="kmsg")
    assert node.wait(100) == ["80 closed r node"]
    plain = rig({"signal": "rules_invalid", "is": 1, "for": "10s"})
    plain.poll(0, NODE, source="agent", rules_invalid=1)
    assert plain.wait(15) == ["10 opened r node"]
    plain.poll(20, NODE, source="agent", rules_invalid=0)
    assert plain.wait(40) == ["30 closed r node"]


def test_a_steady_signal_needs_no_samples_in_a_row(rig: MakeRig) -> None:
    """``for: {samples: 3}`` would wait for ever."""
    node = rig({"signal": "rules_invalid", "is": 1, "for": {"samples": 3}})
    assert node.poll(0, NODE, source="agent", rules_invalid=1) == ["0 opened r node"]


def test_a_companion_of_a_steady_signal_is_looked_at_when_it_changes(rig: MakeRig) -> None:
    """Unknown at the due time: it waits, and does not spin; known later: it opens."""
    node = rig({**DOWN, "require": [{"signal": "host_memory_available_ratio", "above": 0.1}]})
    node.poll(0, NODE, source="host", host_memory_available_ratio=0.5)
    node.facts(1, SourceState(up=False), source="kmsg")
    for at in (2, 3, 4):
        node.poll(at, NODE, source="host", host_memory_available_ratio=None)
    assert node.wait(60) == []
    assert node.poll(61, NODE, source="host", host_memory_available_ratio=0.5) == ["61 opened r node"]


def test_two_sources_down_are_one_fault_of_the_node(rig: MakeRig) -> None:
    """It closes when both see again."""
    node = rig(DOWN)
    node.facts(0, SourceState(up=False), source="kmsg")
    node.facts(1, SourceState(up=False), source="nvml")
    assert node.wait(20) == ["10 opened r node"]
    assert node.facts(21, SourceState(up=True), source="kmsg") == []
    assert node.facts(22, SourceState(up=True), source="nvml") == ["22 closed r node"]


CONDITION = {
    "signal": "gpu_xid",
    "match": {"code": 48},
    "clear": {"on": "reset"},
    "effect": "condition",
    "condition": "GpuMemoryFault",
}


def status(node: Rig) -> dict[str, str]:
    return {one.type: one.status for one in node.engine.intent().conditions}


def test_a_condition_is_unknown_until_its_rules_have_judged(rig: MakeRig) -> None:
    """Absent without such a device; an event rule has judged when its source has caught up; True at once."""
    node = rig(CONDITION, configured=("kmsg",))
    node.facts(0, Booted("b1", 0.0))
    assert status(node) == {}
    node.facts(1, KindsHere(frozenset({"gpu"})))
    assert status(node) == {"GpuMemoryFault": "Unknown"}
    node.facts(2, SourceState(up=True, caught_up=False), source="kmsg")
    assert status(node) == {"GpuMemoryFault": "Unknown"}
    node.event(3, code=48)
    assert status(node) == {"GpuMemoryFault": "True"}
    assert not node.engine.intent().ready
    node.facts(4, SourceState(up=True), source="kmsg")
    node.poll(5, B, source="kmsg", gpu_recovery_action=0)
    assert node.engine.intent().ready


def test_an_intent_lists_what_the_node_must_say(rig: MakeRig) -> None:
    """Faults from effect condition up, strongest first; the taint is the strongest one's condition."""
    node = rig(
        CONDITION,
        {
            **CONDITION,
            "name": "evicts",
            "match": {"code": 95},
            "effect": "evict",
            "action": "reset_gpu",
            "condition": "GpuDriverFault",
        },
        {"name": "event", "signal": "gpu_xid", "clear": {"after": "1h"}},
    )
    node.event(0, code=48)
    assert node.engine.intent().taint is None
    node.event(1, code=95)
    intent = node.engine.intent()
    assert ([fault.rule for fault in intent.faults], intent.taint, intent.effect) == (
        ["evicts", "r"],
        "GpuDriverFault",
        "evict",
    )
    assert [one.status for one in intent.conditions] == ["True", "True"]


def test_a_flood_of_conditions_words_is_cut(rig: MakeRig) -> None:
    """A condition's message names what fits and how much more there is."""
    node = rig({**CONDITION, "message": "x" * 400 + " {device}"})
    for number in range(9):
        node.event(number, device=gpu(f"GPU-{number}"), code=48)
    (condition,) = node.engine.intent().conditions
    assert len(condition.message) < 1100
    assert condition.message.endswith("and 7 more")
