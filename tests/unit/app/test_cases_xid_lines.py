"""C01, C02, C03, C06 and C07: which lines are evidence, of what, and of which GPU."""

import pytest

from .rig import Played

AT = "gpu/0000:3b:00.0"
UNKNOWN = "pid='<unknown>', name=<unknown>"


def test_c01_only_the_kernel_itself_is_evidence() -> None:
    """A 79 and a 95 written by user space, by a daemon or through syslog leave no trace but a count."""
    played = Played(
        [
            {
                "at": 1,
                "kmsg": "4,88123,512000111,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, name=python3, Ch 00000008, "
                "intr 00000000. MMU Fault: ENGINE GRAPHICS",
            },
            {"at": 2, "kmsg": "11,88124,512000222,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."},
            {
                "at": 3,
                "kmsg": "30,88125,512000333,-;ncat[1749]: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
            },
            {"at": 4, "kmsg": "12,88126,512000444,-;NVRM: Xid (PCI:0000:5e:00): 95, Uncontained"},
        ]
    )
    assert played.open == [f"gpu-xid-application {AT}"]
    assert (played.fault("gpu-xid-application")["severity"], played.final["effect"]) == ("info", "none")
    assert played.final["taints"] == []
    assert [name for name, one in played.final["conditions"].items() if one["status"] == "True"] == []
    assert played.final["counters"]["kmsg_untrusted_total"] == 3
    assert played.final["counters"]["gpu_xid_total"] == 1


BLOCK = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)
SHORT = "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus."


@pytest.mark.parametrize(
    "lines",
    [
        (r"4,1502,1843308145,-;" + r"\x0a".join(BLOCK),),
        BLOCK,
        (SHORT,),
        (SHORT, f"NVRM: Xid (PCI:0000:b3:00): 79, {UNKNOWN}, GPU has fallen off the bus."),
    ],
    ids=["one-record", "three-records", "short", "short-and-79"],
)
def test_c02_fallen_off_the_bus_in_every_form_is_one_fault(lines: tuple[str, ...]) -> None:
    """Critical, reboot, evict and taint, once per GPU."""
    played = Played([{"at": 1 + number / 1000, "kmsg": line} for number, line in enumerate(lines)])
    assert [line.split(" ", 1)[1] for line in played.told] == ["opened gpu-lost gpu/0000:b3:00.0"]
    fault = played.fault("gpu-lost")
    assert (fault["severity"], fault["action"], fault["effect"]) == ("critical", "reboot_node", "evict")
    assert played.final["taints"] == ["nodeguard.io/unhealthy=GpuLost:NoSchedule"]
    if len(lines) == 2:
        assert fault["evidence"]["code"] == 79


def test_c02_a_failed_probe_alone_is_a_warning() -> None:
    """It names no GPU."""
    played = Played([{"at": 1, "kmsg": "NVRM: The NVIDIA probe routine failed for 1 device(s)."}])
    assert played.open == ["gpu-driver-probe-failed node"]
    assert (played.fault("gpu-driver-probe-failed")["severity"], played.final["taints"]) == ("warning", [])


def test_c03_a_bad_record_costs_itself() -> None:
    """48 and 94 are found between two malformed records; attributes and extra header fields are neither."""
    dbe = (
        f"4,700,90000000,-,caller=T4242;NVRM: Xid (PCI:0000:3b:00): 48, {UNKNOWN}, An uncorrectable double bit error "
        "(DBE) has been detected on GPU in the framebuffer at physAddr 0x18f00000 partition 16, subpartition 3.\n"
        " SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n"
    )
    played = Played(
        [
            {"at": 1, "kmsg": record}
            for record in (
                dbe,
                "6,701,90000010,-;pci 0000:3b:00.0: note; with; semicolons\n",
                "6,702,9000002x,-;bad timestamp\n",
                f"4,703,90000030,-;NVRM: Xid (PCI:0000:3b:00): 94, {UNKNOWN}, Contained: SM (0x1). RST: No\n",
            )
        ]
    )
    assert played.open == [f"gpu-xid-application {AT}", f"gpu-xid-uncorrectable-memory {AT}"]
    counters = played.final["counters"]
    assert (counters["gpu_xid_total"], counters["kmsg_malformed_total"]) == (2, 1)
    assert "kmsg_lost_total" not in counters


@pytest.mark.parametrize(
    ("line", "device", "code"),
    [
        (
            f"NVRM: Xid (PCI:0000:cb:00): 13, {UNKNOWN}, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0)",
            "0000:cb:00.0",
            13,
        ),
        (
            "NVRM: Xid (PCI:0000:c6:00): 79, pid=41002, name=nvc:[driver], GPU has fallen off the bus.",
            "0000:c6:00.0",
            79,
        ),
        ("NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus.", "0000:44:00.0", 79),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "0000:03:00.0", 14),
        ("NVRM: Xid (PCI:0000:1a:00): 79", "0000:1a:00.0", 79),
        (
            "[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:9b:00): 119, pid=20, name=nvidia-smi, Timeout after 6s ...",
            "0000:9b:00.0",
            119,
        ),
        (
            "Feb 14 05:03:41 hostx kernel: NVRM: Xid (PCI:0000:9b:00): 119, pid=20, name=nvidia-smi, Timeout",
            "0000:9b:00.0",
            119,
        ),
        (
            "[171167.62] NVRM: Xid (PCI:0000:9b:00): 119, pid=20, name=nvidia-smi, Timeout after 6s ...",
            "0000:9b:00.0",
            119,
        ),
        ("NVRM: Xid (PCI:0000:00:05): 43, pid=41001, name=pt_main_thread, Ch 00000008", "0000:00:05.0", 43),
        ("nvrm:  xid ( pci:0000:00:1e.0 ) : 43, channel 0x1", "0000:00:1e.0", 43),
        (
            "NVRM: Xid (PCI:0000:3b:00): 31, pid=777, name=x): 79, GPU, Ch 00000008, intr 00000000. MMU Fault",
            "0000:3b:00.0",
            31,
        ),
        (
            "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818, name=python3, Ch 00000001 caused by previous Xid 149",
            "0000:dc:00.0",
            45,
        ),
    ],
)
def test_c06_the_number_after_the_device_is_the_code(line: str, device: str, code: int) -> None:
    """Whatever stands before the header and whatever a process calls itself."""
    played = Played([{"at": 1, "kmsg": line}])
    (fault,) = played.final["faults"]
    assert (fault["device"], fault["pci"], fault["evidence"]["code"]) == (f"gpu/{device}", device, code)
    assert (fault["effect"] == "evict") == (code in (79, 119))


def test_c06_a_154_without_a_device_blames_no_gpu() -> None:
    """A warning on the node."""
    played = Played([{"at": 1, "kmsg": "NVRM: Xid: 154, GPU recovery action changed to 0x2 (Node Reboot Required)"}])
    assert played.open == ["gpu-recovery-unread node"]
    assert (played.fault("gpu-recovery-unread")["severity"], played.final["effect"]) == ("warning", "event")


def test_c06_a_45_that_another_xid_caused_is_a_consequence() -> None:
    """Its cause is in the evidence, and is no second 149."""
    played = Played(
        [
            {
                "at": 1,
                "kmsg": "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818, name=python3, Ch 00000001 caused by "
                "previous Xid 149",
            }
        ]
    )
    assert played.open == ["gpu-xid-cleanup gpu/0000:dc:00.0"]
    assert played.fault("gpu-xid-cleanup")["evidence"]["caused_by"] == 149


LOST_79 = f"NVRM: Xid (PCI:000b:00:00): 79, {UNKNOWN}, GPU has fallen off the bus."


def test_c07_a_lost_gpu_is_named_from_what_is_known_of_its_slot() -> None:
    """NVML's spelling of the address and the kernel's are one GPU; that it cannot be asked now is no matter."""
    played = Played(
        [
            {"at": 0, "nvml": {"gpus": {"GPU-aaaa": {"index": 0, "pci": "0000000B:00:00.0"}}}},
            {"at": 1, "kmsg": LOST_79},
            {
                "at": 1.1,
                "nvml": {"gpus": {"GPU-aaaa": {"index": 0, "pci": "0000000B:00:00.0", "error": "GPU_IS_LOST"}}},
            },
        ]
    )
    assert played.open == ["gpu-lost gpu/GPU-aaaa"]
    assert played.fault("gpu-lost")["pci"] == "000b:00:00.0"


def test_c07_without_an_inventory_it_is_named_by_its_slot() -> None:
    """Never dropped; the UUID comes when the driver prints it."""
    played = Played([{"at": 1, "kmsg": LOST_79}])
    assert played.open == ["gpu-lost gpu/000b:00:00.0"]
    later = Played([{"at": 1, "kmsg": LOST_79}, {"at": 2, "kmsg": "NVRM: GPU at PCI:000b:00:00: GPU-aaaa"}])
    assert later.told == ["1 opened gpu-lost gpu/000b:00:00.0", "2 updated gpu-lost gpu/GPU-aaaa"]
