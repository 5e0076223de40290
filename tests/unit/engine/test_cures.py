"""What proves a fault cured: ``clear.on`` with its lattice, a person's word, repair records (design §4)."""

import pytest

from nodeguard.model.device import NODE, mig
from nodeguard.model.sample import (
    Batch,
    Booted,
    Event,
    Fact,
    Identified,
    NodeIs,
    PersonCleared,
    Present,
    Repaired,
    Sample,
    Told,
)

from .rig import A, B, MakeRig, Rig

SLOT = "0000:3b:00.0"
EVIDENCE = ("reset", "reboot", "replace", "never")


def four(rig: MakeRig) -> Rig:
    """A node with one open fault for each word of ``clear.on``."""
    node = rig(
        *({"name": word, "signal": "gpu_xid", "match": {"code": 48}, "clear": {"on": word}} for word in EVIDENCE)
    )
    node.facts(0, NodeIs("n", "u1"), Booted("b1"), Identified(SLOT, A))
    node.poll(0, gpu_recovery_action=1, gpu_row_remap_pending=1)
    node.event(1, code=48)
    return node


@pytest.mark.parametrize(
    ("fact", "left"),
    [
        (Repaired(A, "reset_gpu"), ("never", "reboot", "replace")),
        (Repaired(NODE, "reboot_node"), ("never", "replace")),
        (Repaired(A, "replace_hw"), ("never",)),
        (Repaired(A, "restart_app"), EVIDENCE),
        (Repaired(B, "reset_gpu"), EVIDENCE),
        (Booted("b2", 2), ("never", "replace")),
        (Identified(SLOT, B), ("never",)),
        (NodeIs("n", "u2"), ()),
    ],
)
def test_each_evidence_cures_its_own_and_the_weaker(rig: MakeRig, fact: Fact, left: tuple[str, ...]) -> None:
    """Stronger evidence cures what weaker would; ``never`` waits for a person (or ends with the node)."""
    node = four(rig)
    node.facts(2, fact)
    assert node.open == sorted(f"{word} gpu/GPU-a" for word in left)


@pytest.mark.parametrize("signal", ["gpu_recovery_action", "gpu_row_remap_pending"])
def test_a_state_back_to_zero_is_a_reset(rig: MakeRig, signal: str) -> None:
    """From another value, on this GPU only."""
    node = four(rig)
    assert node.read(2, signal, 0, B) == []
    assert node.read(3, signal, 0) == ["3 closed reset gpu/GPU-a"]


def test_a_state_that_was_unknown_in_between_is_back_to_zero(rig: MakeRig) -> None:
    """During a reset nobody can read the GPU: 1, unknown, 0 is a way back; unknown itself is not."""
    node = four(rig)
    for at in (2, 3, 4, 5):
        assert node.poll(at, gpu_recovery_action=None) == []
    assert node.poll(6, gpu_recovery_action=0) == ["6 closed reset gpu/GPU-a"]


def test_a_state_that_always_was_zero_proves_nothing(rig: MakeRig) -> None:
    """Nor does the first sight of a zero."""
    node = rig({"signal": "gpu_xid", "clear": {"on": "reset"}})
    node.event(0, code=48)
    assert [node.poll(at, gpu_recovery_action=0, gpu_row_remap_pending=0) for at in (1, 2)] == [[], []]


def test_another_recovery_action_is_no_cure(rig: MakeRig) -> None:
    """C08b: 4 to 1 changes the wish, not the GPU."""
    node = four(rig)
    assert node.poll(2, gpu_recovery_action=4) == []
    assert len(node.open) == 4


def test_evidence_must_be_later_than_the_last_occurrence(rig: MakeRig) -> None:
    """Within one batch: what the kernel printed before the cure is cured, what it printed after is not."""
    node = four(rig)
    cured = Told(samples=(Sample("gpu_recovery_action", A, 0),))
    again = Told(events=(Event("gpu_xid", A, {"code": 48}),))
    assert node.parts(5, again, cured) == ["5 closed reset gpu/GPU-a"]
    node.poll(6, gpu_recovery_action=1)
    assert node.parts(7, cured, again) == ["7 opened reset gpu/GPU-a"]
    node.poll(8, gpu_recovery_action=1)
    node.take(19, Batch(source="nvml", samples=cured.samples, events=again.events))
    assert "reset gpu/GPU-a" in node.open


def test_a_reset_cures_the_mig_instances_too(rig: MakeRig) -> None:
    """Evidence on the GPU is about all that is cut from it."""
    node = rig({"signal": "gpu_xid", "clear": {"on": "reset"}})
    node.event(0, device=mig(A, 5), code=48)
    assert node.facts(1, Repaired(A, "reset_gpu")) == ["1 closed r gpu/GPU-a/gi5"]


def test_a_level_with_evidence_or_a_level_clears_by_either(rig: MakeRig) -> None:
    """``clear: {on: reset, is: 0}``; with evidence alone time does nothing."""
    node = rig(
        {
            "name": "either",
            "signal": "gpu_fabric_state",
            "is": "unhealthy",
            "clear": {"on": "reset", "is": "completed"},
        },
        {"name": "only", "signal": "gpu_fabric_state", "is": "unhealthy", "clear": {"on": "reset"}},
    )
    node.poll(0, gpu_fabric_state="unhealthy")
    assert node.poll(1, gpu_fabric_state="completed") == ["1 closed either gpu/GPU-a"]
    for at in (2, 3, 4, 5, 6):
        assert node.poll(at, gpu_fabric_state="completed") == []
    assert node.facts(7, Repaired(A, "reset_gpu")) == ["7 closed only gpu/GPU-a"]


def test_a_level_that_is_still_true_opens_again(rig: MakeRig) -> None:
    """A repair record does not stop anybody from looking."""
    node = rig({"signal": "gpu_row_remap_failed", "is": 1, "clear": {"on": "replace"}})
    node.poll(0, gpu_row_remap_failed=1)
    assert node.facts(1, Repaired(A, "replace_hw")) == ["1 closed r gpu/GPU-a"]
    assert node.poll(2, gpu_row_remap_failed=1) == ["2 opened r gpu/GPU-a"]


def test_another_gpu_in_the_slot_cures_the_slots_faults(rig: MakeRig) -> None:
    """Also after a reboot, from the stored inventory; the new GPU is not the old one's heir."""
    node = four(rig)
    node.facts(2, Booted("b2", 2))
    assert node.open == ["never gpu/GPU-a", "replace gpu/GPU-a"]
    assert node.facts(3, Identified(SLOT, B)) == ["3 closed replace gpu/GPU-a"]
    assert node.facts(400, Present("gpu", frozenset({B})), source="nvml") == []


def test_a_new_node_forgets_the_old_ones_memory(rig: MakeRig) -> None:
    """Another node UID: windows, values and inventory of the old node are nobody's."""
    node = rig(
        {"signal": "gpu_xid", "count": {"at_least": 2, "within": "1h"}},
        {"name": "hot", "signal": "gpu_temperature_celsius", "above": 90, "for": "5s"},
    )
    node.facts(0, NodeIs("n", "u1"))
    node.event(0, code=1)
    node.hot(0, 95)
    node.facts(1, NodeIs("n", "u2"))
    assert node.event(2, code=1) == []
    assert node.hot(6, 95) == []


def test_faults_that_outlive_a_boot_stay_and_the_others_are_judged_anew(rig: MakeRig) -> None:
    """C17d and e: what only a replacement cures stays, whether or not anybody can read it now."""
    node = rig(
        {"name": "failed", "signal": "gpu_row_remap_failed", "is": 1, "clear": {"on": "replace"}},
        {"name": "hot", "signal": "gpu_temperature_celsius", "above": 90},
        {"name": "app", "signal": "gpu_xid", "clear": {"after": "1h"}},
    )
    node.poll(0, gpu_row_remap_failed=1, gpu_temperature_celsius=95)
    node.event(0, code=31)
    assert sorted(node.facts(10, Booted("b2", 10))) == ["10 closed app gpu/GPU-a", "10 closed hot gpu/GPU-a"]
    assert node.open == ["failed gpu/GPU-a"]
    assert node.poll(20, gpu_row_remap_failed=1) == []
    assert node.open == ["failed gpu/GPU-a"]


def test_an_event_fault_that_outlives_a_boot_can_still_clear_by_time(rig: MakeRig) -> None:
    """``clear: {on: replace, after: 1h}``: quiet counts in the new boot."""
    node = rig({"signal": "gpu_xid", "clear": {"on": "replace", "after": "1h"}})
    node.event(0, code=64)
    node.facts(10, Booted("b2", 10))
    assert node.open == ["r gpu/GPU-a"]
    node.event(20, code=31, device=B)
    assert "closed r gpu/GPU-a" in node.wait(9000)[0]


def test_the_same_boot_id_is_no_reboot(rig: MakeRig) -> None:
    """Told again after a restart of the agent."""
    node = four(rig)
    assert node.facts(2, Booted("b1")) == []


@pytest.mark.parametrize(
    ("word", "left"),
    [
        (PersonCleared("never", None, 2), 3),
        (PersonCleared("never", A, 2), 3),
        (PersonCleared("never", B, 2), 4),
        (PersonCleared("other", None, 2), 4),
        (PersonCleared("never", None, 1), 4),
    ],
)
def test_a_person_clears_what_is_older_than_the_word(rig: MakeRig, word: PersonCleared, left: int) -> None:
    """By rule, optionally one device; what occurred at or after the stated time stays."""
    node = four(rig)
    node.facts(3, word)
    assert len(node.open) == left


def test_a_persons_word_may_stand_for_ever(rig: MakeRig) -> None:
    """The annotation need not be removed: the next occurrence opens and stays open."""
    node = rig({"signal": "gpu_xid", "clear": {"on": "never"}})
    word = PersonCleared("r", None, 2)
    node.event(1, code=48)
    assert node.facts(3, word) == ["3 closed r gpu/GPU-a"]
    assert node.event(4, code=48) == ["4 opened r gpu/GPU-a"]
    assert node.facts(5, word) == []


def test_a_persons_word_starts_windows_anew(rig: MakeRig) -> None:
    """What was counted before the word does not count again."""
    node = rig({"signal": "gpu_xid", "count": {"at_least": 2, "within": "1h"}, "clear": {"on": "never"}})
    node.event(0, code=48)
    node.event(1, code=48)
    node.facts(3, PersonCleared("r", None, 2))
    assert node.event(4, code=48) == []
    assert node.event(5, code=48) == ["5 opened r gpu/GPU-a"]


def test_what_the_same_poll_still_sees_is_not_cured(rig: MakeRig) -> None:
    """The recovery action is back at 0, and the very poll that says so shows the fault: no blink."""
    node = rig({"signal": "gpu_fabric_state", "is": "unhealthy", "clear": {"on": "reset"}})
    node.poll(0, gpu_recovery_action=1, gpu_fabric_state="unhealthy")
    assert node.poll(1, gpu_recovery_action=0, gpu_fabric_state="unhealthy") == []
    node.poll(2, gpu_recovery_action=1, gpu_fabric_state="completed")
    assert node.poll(3, gpu_recovery_action=0, gpu_fabric_state="completed") == ["3 closed r gpu/GPU-a"]
