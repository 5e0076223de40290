"""C04 and C17: a log that overflows, closes and is read again, and which boot a line belongs to."""

from .rig import Played

LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
REBOOT = "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"


def test_c04_a_flood_is_counted_and_the_reader_goes_on() -> None:
    """66,230 lost records are an event and force no recovery; after a reopen nothing is raised twice."""
    before = [{"at": 1, "kmsg": f"4,{number},{number},-;usb 1-1: reset"} for number in range(5000, 5003)]
    held = {"at": 1, "kmsg": "4,5003,5003,-;NVRM: Xid (PCI:0000:5e:00): 48, DBE"}
    again = [{"at": 9, "kmsg": f"4,{number},{number},-;usb 1-1: reset"} for number in range(71230, 71234)]
    played = Played(
        [
            *before,
            held,
            {"at": 2, "kmsg_error": "EPIPE"},
            {"at": 2, "kmsg": f"4,71234,71234,-;{LOST}"},
            {"at": 3, "kmsg_error": "closed"},
            *again,
            {"at": 9, "kmsg": f"4,71234,71234,-;{LOST}"},
            {"at": 9, "kmsg": "4,71235,71235,-;usb 1-1: reset"},
            {"until": 30},
        ]
    )
    counters = played.final["counters"]
    assert counters["kmsg_lost_total"] == 71234 - 5003 - 1
    assert counters["kmsg_records_total"] + counters["kmsg_lost_total"] == 71235 - 5000 + 1
    assert counters["kmsg_overruns_total"] == 1
    assert played.open == [
        "gpu-lost gpu/0000:3b:00.0",
        "gpu-xid-uncorrectable-memory gpu/0000:5e:00.0",
        "kernel-log-gap node",
    ]
    assert played.fault("gpu-lost")["count"] == 1


def test_c04_a_reader_that_stays_closed_is_shown() -> None:
    """Degraded, not unhealthy; nothing clears while nobody reads."""
    played = Played(
        [{"at": 1, "kmsg": "NVRM: Xid (PCI:0000:5e:00): 999, x"}, {"at": 2, "kmsg_error": "closed"}, {"until": 9000}]
    )
    assert played.open == ["gpu-xid-unknown gpu/0000:5e:00.0", "nodeguard-source-down node"]
    assert played.final["conditions"]["NodeguardDegraded"]["status"] == "True"
    assert played.final["taints"] == []


def test_c17a_what_was_printed_before_the_agent_started_is_told() -> None:
    """The ring of this boot is read from its beginning."""
    played = Played(
        [
            {"at": 50, "node": {"name": "n", "uid": "u1", "boot_id": "B"}},
            {"at": 50, "kmsg": f"4,800,33300000,-;{LOST}"},
            {"at": 50, "kmsg": f"4,801,33400000,-;{REBOOT}"},
        ]
    )
    assert played.open == ["gpu-lost gpu/0000:3b:00.0", "gpu-recovery-reboot gpu/0000:3b:00.0"]
    assert (played.final["effect"], played.final["action"]) == ("evict", "reboot_node")


def test_c17b_a_reboot_clears_what_it_cures() -> None:
    """Faults of reset and reboot end with the boot; the clean log of the next one raises nothing."""
    played = Played(
        [
            {"at": 0, "node": {"name": "n", "uid": "u1", "boot_id": "A"}},
            {"at": 1, "kmsg": LOST},
            {"at": 2, "kmsg": "NVRM: Xid (PCI:0000:5e:00): 95, Uncontained"},
            {"at": 100, "reboot": {"boot_id": "B"}},
            {"at": 130, "kmsg": "6,5,1000,-;usb 1-1: new device"},
            {"at": 140, "nvml": {"gpus": {"GPU-a": {"pci": "0000:3b:00.0"}, "GPU-b": {"pci": "0000:5e:00.0"}}}},
            {"until": 900},
        ]
    )
    assert played.open == []
    assert played.final["taints"] == []
    assert not [line for line in played.told if "opened" in line and not line.startswith(("1 ", "2 "))]


def test_c17c_a_restart_in_the_same_boot_is_silent() -> None:
    """The ring holds what was read already: nothing new, nothing blinks."""
    ring = [
        {"at": 1, "kmsg": f"4,{number},{number},-;{LOST}" if number == 7 else f"6,{number},{number},-;usb"}
        for number in range(1, 10)
    ]
    played = Played([*ring, {"at": 10, "agent_restart": True}, *({**entry, "at": 11} for entry in ring), {"until": 60}])
    assert played.told == ["1 opened gpu-lost gpu/0000:3b:00.0"]
    assert played.fault("gpu-lost")["count"] == 1
    assert played.final["conditions"]["GpuLost"]["status"] == "True"


FAILED = {"GPU-a": {"pci": "0000:3b:00.0", "gpu_row_remap_failed": 1}}


def test_c17d_what_only_a_replacement_cures_stays() -> None:
    """It is still so in the new boot."""
    played = Played(
        [
            {"at": 0, "nvml": {"gpus": FAILED}},
            {"at": 100, "reboot": {"boot_id": "B"}},
            {"at": 130, "nvml": {"gpus": FAILED}},
        ]
    )
    assert played.told == ["0 opened gpu-row-remap-failed gpu/GPU-a"]
    assert (played.final["action"], played.final["effect"]) == ("replace_hw", "evict")


def test_c17e_it_stays_when_nobody_can_ask() -> None:
    """Without NVML in the new boot; another GPU in the slot ends it."""
    start = [
        {"at": 0, "nvml": {"gpus": FAILED}},
        {"at": 100, "reboot": {"boot_id": "B"}},
        {"at": 130, "kmsg": "usb 1-1: reset"},
    ]
    assert Played([*start, {"until": 90000}]).open == ["gpu-row-remap-failed gpu/GPU-a"]
    replaced = {"at": 140, "kmsg": "NVRM: GPU at PCI:0000:3b:00: GPU-c"}
    assert Played([*start, replaced]).open == []
