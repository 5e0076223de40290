"""Names of devices: re-keying when a UUID becomes known, lost GPUs, slots (design §3)."""

import pytest

from nodeguard.model.device import Device, gpu_at, mig
from nodeguard.model.sample import Batch, Booted, Event, Identified, Present, Sample

from .rig import A, B, C, MakeRig

SLOT = "0000:3b:00.0"
AT = gpu_at(SLOT)
BARE = {"signal": "gpu_xid", "match": {"code": 48}, "clear": {"after": "10m"}}
LOST = {"name": "lost", "signal": "gpu_lost", "clear": {"on": "reboot"}}


def test_a_fault_is_rekeyed_without_opening_or_closing(rig: MakeRig) -> None:
    """``updated`` with the old name; count, times and the quiet clock go on."""
    node = rig(BARE)
    assert node.event(0, device=AT, code=48) == [f"0 opened r {AT}"]
    assert node.facts(100, Identified(SLOT, A)) == [f"100 updated r gpu/GPU-a was {AT}"]
    assert (node.fault.pci, node.fault.since, node.fault.count) == (SLOT, 0, 1)
    assert node.wait(700) == ["600 closed r gpu/GPU-a"]


def test_after_rekeying_the_same_fault_counts_on(rig: MakeRig) -> None:
    """Lines that still name the slot are the UUID's."""
    node = rig(BARE)
    node.event(0, device=AT, code=48)
    node.facts(1, Identified(SLOT, A))
    assert node.event(2, device=AT, code=48) == []
    assert node.event(3, device=A, code=48) == []
    assert node.fault.count == 3
    assert node.wait(700) == ["603 closed r gpu/GPU-a"]


def test_windows_move_with_the_name(rig: MakeRig) -> None:
    """Two events under the slot and one under the UUID are three of one GPU."""
    node = rig({"signal": "gpu_xid", "count": {"at_least": 3, "within": "1h"}})
    node.event(0, device=AT, code=1)
    node.event(1, device=AT, code=1)
    node.facts(2, Identified(SLOT, A))
    assert node.event(3, device=A, code=1) == ["3 opened r gpu/GPU-a"]


def test_levels_and_counters_move_with_the_name(rig: MakeRig) -> None:
    """Holds, windows, baselines and open faults of the slot's series."""
    node = rig(
        {"name": "hot", "signal": "gpu_temperature_celsius", "above": 90, "for": "5s"},
        {"name": "grows", "signal": "pcie_replay_total", "increase": {"at_least": 2, "within": "1h"}},
        {"name": "act", "signal": "gpu_recovery_action", "is": 1, "clear": {"is": 0}},
        {"name": "link", "signal": "pcie_link_width", "below": {"signal": "pcie_link_width_max"}, "for": "5s"},
    )
    node.poll(
        0,
        AT,
        gpu_temperature_celsius=95,
        pcie_replay_total=7,
        gpu_recovery_action=1,
        pcie_link_width=8,
        pcie_link_width_max=16,
    )
    node.poll(1, AT, pcie_replay_total=8)
    assert node.facts(2, Identified(SLOT, A)) == [f"2 updated act gpu/GPU-a was {AT}"]
    assert sorted(node.poll(5, A, gpu_temperature_celsius=95, pcie_replay_total=9, pcie_link_width=8)) == [
        "5 opened grows gpu/GPU-a",
        "5 opened hot gpu/GPU-a",
        "5 opened link gpu/GPU-a",
    ]
    assert node.poll(6, A, gpu_recovery_action=0) == ["6 closed act gpu/GPU-a"]


def test_across_goes_on_under_the_new_name(rig: MakeRig) -> None:
    """References are looked up on the new name."""
    node = rig(
        {
            "name": "slow",
            "signal": "pcie_link_width",
            "below": {"signal": "pcie_link_width_max"},
            "across": {"kind": "gpu", "at_least": 1},
            "for": {"samples": 2},
        }
    )
    node.poll(0, AT, pcie_link_width=8, pcie_link_width_max=16)
    node.facts(1, Identified(SLOT, A))
    assert node.poll(2, A, pcie_link_width=8, pcie_link_width_max=16) == ["2 opened slow node"]


def test_mig_instances_are_rekeyed_with_their_gpu(rig: MakeRig) -> None:
    """The part after the GPU's name stays."""
    node = rig(BARE)
    node.event(0, device=mig(AT, 5), code=48)
    assert node.facts(1, Identified(SLOT, A)) == [f"1 updated r gpu/GPU-a/gi5 was {AT}/gi5"]
    assert node.wait(700) == ["600 closed r gpu/GPU-a/gi5"]


def test_two_faults_become_one(rig: MakeRig) -> None:
    """One told under the slot, one under the UUID: the older time, both counts, one closing."""
    node = rig(BARE)
    node.event(0, device=AT, code=48)
    node.event(20, device=A, code=48)
    node.facts(30, Identified(SLOT, A))
    assert node.open == ["r gpu/GPU-a"]
    assert (node.fault.since, node.fault.count) == (0, 2)
    assert node.wait(700) == ["620 closed r gpu/GPU-a"]


def test_one_occurrence_told_under_two_names(rig: MakeRig) -> None:
    """The kernel names the slot, NVML the UUID a moment later."""
    node = rig(BARE)
    node.event(0, device=AT, code=48)
    node.facts(1, Identified(SLOT, A))
    node.event(2, device=A, code=48, source="nvml_events")
    assert node.fault.count == 1


def test_c07_a_lost_gpu_keeps_the_name_it_had(rig: MakeRig) -> None:
    """The line names the slot; slot and UUID are in the fault."""
    node = rig(LOST)
    node.facts(0, Identified("000b:00:00.0", A))
    assert node.event(1, "gpu_lost", gpu_at("000b:00:00.0"), code=79) == ["1 opened lost gpu/GPU-a"]
    assert node.fault.pci == "000b:00:00.0"


def test_a_gpu_that_a_poll_misses_is_lost(rig: MakeRig) -> None:
    """Once; and again only after it was there again."""
    node = rig(LOST)
    node.facts(0, Present("gpu", frozenset({A, B})), source="nvml")
    assert node.facts(1, Present("gpu", frozenset({B})), source="nvml") == ["1 opened lost gpu/GPU-a"]
    node.facts(2, Present("gpu", frozenset({B})), source="nvml")
    assert node.fault.count == 1
    node.facts(3, Present("gpu", frozenset({A, B})), source="nvml")
    node.facts(4, Present("gpu", frozenset({B})), source="nvml")
    assert node.fault.count == 2


def test_a_gpu_whose_slot_holds_another_one_is_not_lost(rig: MakeRig) -> None:
    """It was replaced."""
    node = rig(LOST)
    node.facts(0, Identified(SLOT, A), Present("gpu", frozenset({A, B})), source="nvml")
    assert node.facts(1, Identified(SLOT, C), Present("gpu", frozenset({B, C})), source="nvml") == []


@pytest.mark.parametrize(("at", "told"), [(399, []), (400, ["400 opened lost gpu/GPU-a"])])
def test_an_empty_slot_of_an_earlier_boot_is_a_lost_gpu_after_the_grace(
    rig: MakeRig, at: float, told: list[str]
) -> None:
    """Five minutes from the boot on."""
    node = rig(LOST)
    node.facts(0, Identified(SLOT, A), Identified("0000:5e:00.0", B), Present("gpu", frozenset({A, B})), source="nvml")
    node.facts(100, Booted("b2", 100))
    here = (Identified("0000:5e:00.0", B), Present("gpu", frozenset({B})))
    assert node.facts(200, *here, source="nvml") == []
    assert node.facts(at, *here, source="nvml") == told


def test_c21_another_index_is_no_other_gpu(rig: MakeRig) -> None:
    """Counters and faults go by UUID."""
    node = rig({"signal": "gpu_ecc_corrected_aggregate_total", "increase": {"at_least": 1, "within": "1h"}}, LOST)
    node.polls(0, "gpu_ecc_corrected_aggregate_total", {A: 0, B: 5_000_000, C: 0})
    node.facts(0, Present("gpu", frozenset({A, B, C})), source="nvml")
    assert node.facts(1, Present("gpu", frozenset({A, C})), source="nvml") == ["1 opened lost gpu/GPU-b"]
    assert node.polls(1, "gpu_ecc_corrected_aggregate_total", {A: 0, C: 0}) == []


def test_identity_told_again_changes_nothing(rig: MakeRig) -> None:
    """Kernel lines and polls repeat it all the time."""
    node = rig(BARE)
    node.facts(0, Identified(SLOT, A))
    node.event(1, device=A, code=48)
    assert node.facts(2, Identified(SLOT, A)) == []
    node.take(
        3,
        Batch(
            source="nvml",
            facts=(Identified(SLOT, A),),
            samples=(Sample("gpu_power_watts", A, 3),),
            events=(Event("gpu_xid", Device(AT), {"code": 48}),),
        ),
    )
    assert node.open == ["r gpu/GPU-a"]
