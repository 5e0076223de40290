"""What the engine remembers over restarts of the agent, reboots and lost state files (design §§5, 6)."""

from typing import Any

import pytest

from nodeguard.engine import memory
from nodeguard.engine.engine import Engine
from nodeguard.model.device import gpu_at
from nodeguard.model.sample import Booted, Expected, Identified, PodRef, Pods, Present, SourceState

from .rig import A, B, MakeRig, Rig

XID = {
    "name": "xid",
    "signal": "gpu_xid",
    "match": {"code": 48},
    "effect": "evict",
    "action": "reset_gpu",
    "condition": "GpuMemoryFault",
    "clear": {"after": "10m"},
}
LEVEL = {
    "name": "failed",
    "signal": "gpu_row_remap_failed",
    "is": 1,
    "effect": "evict",
    "action": "replace_hw",
    "condition": "GpuMemoryFault",
    "clear": {"on": "replace"},
}


def test_a_restart_tells_nothing_and_loses_nothing() -> None:
    """Faults, counts, readings, pods, expectations and counters come back as they were."""
    node = Rig(XID, LEVEL)
    node.facts(0, Identified("0000:3b:00.0", A), Pods({A: (PodRef("p1", "ns", "train-0"),)}), Expected(frozenset({B})))
    node.event(1, code=48)
    node.poll(2, gpu_row_remap_failed=1)
    before = (
        node.engine.open_faults(),
        node.engine.intent(),
        node.engine.readings(),
        node.engine.next_due(),
        node.engine.inventory.expected,
    )
    node.restart()
    assert before == (
        node.engine.open_faults(),
        node.engine.intent(),
        node.engine.readings(),
        node.engine.next_due(),
        node.engine.inventory.expected,
    )
    assert node.wait(3) == []


def test_a_restart_with_other_rules_judges_as_a_reload(rig: MakeRig) -> None:
    """Unknown rules are dropped in silence; changed ones take their faults over."""
    node = rig(XID, LEVEL)
    node.event(0, code=48)
    node.poll(0, gpu_row_remap_failed=1)
    node.rules = Rig({**XID, "clear": {"after": "1m"}}).rules
    node.restart()
    assert node.open == ["xid gpu/GPU-a"]
    assert node.wait(700) == ["60 closed xid gpu/GPU-a"]


def test_a_live_reboot_keeps_only_what_it_cannot_cure() -> None:
    """C17d: with its times turned into this boot's; C17b: the rest is gone without a word."""
    node = Rig(XID, LEVEL)
    node.event(1000, code=48)
    node.poll(1001, gpu_row_remap_failed=1)
    node.reboot("b2", now=7, shift=-5000)
    assert node.open == ["failed gpu/GPU-a"]
    assert (node.fault.since, node.fault.last) == (1001 - 5000, 1001 - 5000)
    assert node.facts(8, Booted("b2", 0.0)) == []
    assert node.poll(9, gpu_row_remap_failed=1) == []
    assert node.fault.count == 1


def test_an_event_fault_kept_over_a_live_reboot_is_the_same_fault() -> None:
    """Another occurrence counts on it; replacing the GPU ends it."""
    node = Rig({**XID, "clear": {"on": "replace"}})
    node.facts(0, Identified("0000:3b:00.0", A), Present("gpu", frozenset({A})))
    node.event(1, code=48)
    node.reboot("b2", now=7, shift=-100)
    assert node.event(10, code=48) == []
    assert node.fault.count == 2
    assert node.facts(11, Identified("0000:3b:00.0", B)) == ["11 closed xid gpu/GPU-a"]


def row(**fields: Any) -> dict[str, Any]:
    return {
        "rule": "xid",
        "device": "gpu/GPU-a",
        "pci": "0000:3b:00.0",
        "severity": "warning",
        "action": "reset_gpu",
        "effect": "evict",
        "scope": "device",
        "since": "T",
        "count": 3,
        **fields,
    }


def restored(*rows: Any, boot: str = "b1", written: tuple[dict[str, Any], ...] = (XID, LEVEL)) -> Rig:
    node = Rig(*written)
    node.engine = Engine(node.rules)
    memory.restore(node.engine, {}, None, boot_id="b1", node_uid="u", now=100)
    memory.restore_annotation(
        node.engine, {"boot": boot, "faults": list(rows)}, boot_id="b1", now=100, wall_to_engine={"T": 50.0}
    )
    return node


def test_the_annotation_brings_faults_back_in_silence() -> None:
    """With the original time; the Node never blinks to healthy."""
    node = restored(row())
    assert node.open == ["xid gpu/GPU-a"]
    assert node.engine.intent().taint == "GpuMemoryFault"
    assert node.facts(100, Booted("b1", 0.0)) == []
    assert (node.fault.since, node.fault.count, node.fault.pci) == (50, 3, "0000:3b:00.0")
    node.facts(100, SourceState(up=True), source="kmsg")
    assert node.wait(5000) == ["700 closed xid gpu/GPU-a"]


def test_the_ring_read_again_does_not_double_the_count() -> None:
    """The records that the annotation counted count up to it, then on; under the slot's name too."""
    node = restored(row())
    for sequence in range(5):
        assert node.event(101, device=gpu_at("0000:3b:00.0"), code=48, stamp=sequence) == []
    assert node.fault.count == 5


def test_a_level_of_the_annotation_is_judged_by_its_series() -> None:
    """Its first reading takes it over."""
    node = restored(row(rule="failed", action="replace_hw"))
    assert node.poll(101, gpu_row_remap_failed=1) == []
    assert node.fault.since == 50
    again = restored(
        row(rule="hot", action="none", effect="event"),
        written=({"name": "hot", "signal": "gpu_temperature_celsius", "above": 90},),
    )
    for at in (101, 102):
        assert again.hot(at, 50) == []
    assert again.hot(103, 50) == ["103 closed hot gpu/GPU-a"]


def test_an_annotation_of_another_boot_brings_only_what_a_reboot_does_not_cure() -> None:
    """As the state file would."""
    node = restored(row(), row(rule="failed", action="replace_hw"), boot="b0")
    assert node.open == ["failed gpu/GPU-a"]


@pytest.mark.parametrize(
    "bad",
    [
        "text",
        None,
        7,
        {},
        row(rule="nobody"),
        row(device=3),
        row(device="toaster/1"),
        row(since="never"),
        row(count="3"),
        row(severity="awful"),
        row(effect=None),
        row(action=[]),
    ],
)
def test_a_row_that_nobody_wrote_is_left_out(bad: object) -> None:
    """People can edit annotations: what is not understood opens nothing and breaks nothing."""
    node = restored(bad, row())
    assert node.open == ["xid gpu/GPU-a"]


def test_words_that_changed_since_are_told() -> None:
    """The annotation says what was told last: another effect now is an update."""
    node = restored(row(effect="noschedule"))
    assert node.wait(101) == ["101 updated xid gpu/GPU-a"]
    assert node.fault.effect == "evict"


def test_soak_goes_on_over_restart_and_reboot() -> None:
    """Its end is kept, in this boot's time."""
    hot = {"name": "hot", "signal": "gpu_temperature_celsius", "above": 90}
    for reboot in (False, True):
        node = Rig(hot, soak=600)
        node.wait(1000)
        node.reload(1000, {**hot, "above": 95})
        due = node.engine.next_due()
        assert due is not None
        if reboot:
            node.reboot("b2", now=10, shift=-990)
        else:
            node.restart()
        node.wait(11 if reboot else 1001)
        assert node.engine.next_due() == pytest.approx(due - 990 if reboot else due)
