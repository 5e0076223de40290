"""C08, C11 and C15: recovery actions, one memory error in three lines, contained and uncontained errors."""

import time

from .rig import Played

AT = "gpu/0000:3b:00.0"
UNKNOWN = "pid='<unknown>', name=<unknown>"


def changed(was: str, now: str, pci: str = "0000:3b:00") -> str:
    return f"NVRM: Xid (PCI:{pci}): 154, GPU recovery action changed from {was} to {now}"


NONE, RESET, REBOOT, DRAIN = (
    "0x0 (None)",
    "0x1 (GPU Reset Required)",
    "0x2 (Node Reboot Required)",
    "0x4 (Drain and Reset)",
)


def test_c08a_node_reboot_required() -> None:
    """Critical, reboot, evict."""
    played = Played([{"at": 1, "kmsg": changed(NONE, REBOOT)}])
    fault = played.fault("gpu-recovery-reboot")
    assert (fault["severity"], fault["action"], fault["effect"]) == ("critical", "reboot_node", "evict")
    assert played.final["taints"] == ["nodeguard.io/unhealthy=GpuRecoveryRequired:NoSchedule"]


def test_c08b_one_incident_whose_action_is_a_reset() -> None:
    """Drain and reset, then reset: the same fault all along."""
    played = Played([{"at": 1, "kmsg": changed(NONE, DRAIN)}, {"at": 2, "kmsg": changed(DRAIN, RESET)}])
    assert played.told == [f"1 opened gpu-recovery-reset {AT}"]
    assert played.final["action"] == "reset_gpu"


def test_c08b_from_reset_to_reboot_the_action_grows() -> None:
    """The weaker wish closes when the stronger one comes."""
    played = Played([{"at": 1, "kmsg": changed(NONE, RESET)}, {"at": 2, "kmsg": changed(RESET, REBOOT)}])
    assert played.open == [f"gpu-recovery-reboot {AT}"]
    assert played.final["action"] == "reboot_node"


def test_c08c_none_closes_what_a_reset_cures_on_that_gpu_only() -> None:
    """Its own fault and the 95 of the GPU; not the neighbour's, not a lost GPU."""
    played = Played(
        [
            {"at": 1, "kmsg": "NVRM: Xid (PCI:0000:3b:00): 95, Uncontained"},
            {"at": 1, "kmsg": "NVRM: Xid (PCI:0000:5e:00): 95, x"},
            {"at": 2, "kmsg": changed(NONE, RESET)},
            {"at": 3, "kmsg": changed(NONE, RESET, "0000:5e:00")},
            {"at": 60, "kmsg": changed(RESET, NONE)},
        ]
    )
    assert played.open == ["gpu-recovery-reset gpu/0000:5e:00.0", "gpu-xid-uncontained-ecc gpu/0000:5e:00.0"]


def test_c08d_a_crafted_line_is_a_warning() -> None:
    """Brackets in the wrong order."""
    played = Played([{"at": 1, "kmsg": "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed ) to ( 0x2"}])
    assert played.open == [f"gpu-recovery-unread {AT}"]
    assert (played.fault("gpu-recovery-unread")["severity"], played.final["taints"]) == ("warning", [])


def test_c08e_an_unknown_action_is_for_a_person() -> None:
    """Shown as a condition; nothing reboots."""
    played = Played([{"at": 1, "kmsg": changed(NONE, "0x9 (Something New)")}])
    assert (played.final["effect"], played.final["action"], played.final["taints"]) == ("condition", "none", [])
    assert played.final["conditions"]["GpuRecoveryRequired"]["status"] == "True"


def triple(at: float) -> list[dict[str, object]]:
    return [
        {
            "at": at,
            "kmsg": f"NVRM: Xid (PCI:0000:52:00): 48, {UNKNOWN}, An uncorrectable double bit error (DBE) has been "
            "detected on GPU in the framebuffer at physAddr 0x18f00000 partition 16, subpartition 3.",
        },
        {
            "at": at + 0.02,
            "kmsg": f"NVRM: Xid (PCI:0000:52:00): 63, {UNKNOWN}, Row Remapper: New row (0x0000000018f00000) "
            "marked for remapping, reset gpu to activate.",
        },
        {
            "at": at + 0.03,
            "kmsg": f"NVRM: Xid (PCI:0000:52:00): 94, {UNKNOWN}, Contained: SM (0x1). RST: No, D-RST: No",
        },
    ]


def poll(at: float, *, uncorrected: int, pending: int) -> dict[str, object]:
    readings = {
        "pci": "0000:52:00.0",
        "gpu_ecc_uncorrected_volatile_total": None,
        "gpu_ecc_uncorrected_aggregate_total": None,
        "gpu_row_remap_corrected_total": 0,
        "gpu_row_remap_uncorrected_total": uncorrected,
        "gpu_row_remap_pending": pending,
        "gpu_row_remap_failed": 0,
    }
    return {"at": at, "nvml": {"gpus": {"GPU-a": readings}}}


def test_c11_one_memory_error_is_one_incident_for_a_reset() -> None:
    """No replacement, no strike rule, no word about the counters that cannot be read; pending back at 0 closes it."""
    start = [poll(0, uncorrected=0, pending=0), *triple(10), poll(30, uncorrected=1, pending=1)]
    played = Played(start)
    assert {fault["device"] for fault in played.final["faults"]} == {"gpu/GPU-a"}
    assert (played.final["action"], played.final["effect"]) == ("reset_gpu", "noschedule")
    cured = Played([*start, poll(300, uncorrected=1, pending=0), {"until": 1000}])
    assert cured.open == []


def test_c11b_the_same_again_after_a_reset_is_hardware() -> None:
    """11 to 12 two minutes after a reset, and after a reboot: replace, although no remap failed."""
    for between in ([poll(100, uncorrected=11, pending=0)], [{"at": 100, "reboot": {"boot_id": "b2"}}]):
        played = Played(
            [
                poll(0, uncorrected=10, pending=0),
                *triple(10),
                poll(30, uncorrected=11, pending=1),
                *between,
                *triple(220),
                poll(230, uncorrected=12, pending=1),
            ]
        )
        assert played.final["action"] == "replace_hw"
        assert "gpu-row-remap-repeats gpu/GPU-a" in played.open


def test_c15a_a_contained_error_is_the_programs() -> None:
    """The GPU stays in use."""
    played = Played(
        [{"at": 1, "kmsg": f"NVRM: Xid (PCI:0000:3b:00): 94, {UNKNOWN}, Contained: SM (0x1). RST: No, D-RST: No"}]
    )
    assert (played.final["effect"], played.final["action"], played.final["taints"]) == ("none", "restart_app", [])


UNCONTAINED = (
    "NVRM: Xid (PCI:0000:3b:00): 95, pid=7062, name=python3, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"
)


def test_c15b_an_uncontained_error_evicts() -> None:
    """Critical, reset, everybody off the GPU."""
    played = Played([{"at": 1, "kmsg": UNCONTAINED}])
    fault = played.fault("gpu-xid-uncontained-ecc")
    assert (fault["severity"], fault["action"], fault["effect"], fault["scope"]) == (
        "critical",
        "reset_gpu",
        "evict",
        "device",
    )


def test_c15c_a_flood_is_one_fault_with_a_count() -> None:
    """One transition however many lines; the count is exact and the time is short."""
    started = time.process_time()
    played = Played(
        [{"at": number / 200, "kmsg": f"4,{number},{number * 5000},-;{UNCONTAINED}"} for number in range(5000)]
    )
    assert played.told == [f"0 opened gpu-xid-uncontained-ecc {AT}"]
    assert played.fault("gpu-xid-uncontained-ecc")["count"] == 5000
    assert played.final["counters"]["gpu_xid_total"] == 5000
    assert time.process_time() - started < 10
