"""C13, C14 and C16: what programs do to GPUs, and a system processor that stops answering."""

from .rig import Played

GPUS = [f"{number:02x}" for number in range(0x10, 0x18)]


def burst() -> list[dict[str, object]]:
    """Fifteen channels of each of eight GPUs within 3 s."""
    return [
        {
            "at": 1 + channel / 5,
            "kmsg": f"NVRM: Xid (PCI:0000:{gpu}:00): 45, pid=149{gpu}, name=trainer, Ch {channel:08d}",
        }
        for channel in range(15)
        for gpu in GPUS
    ]


def test_c13a_a_burst_of_45_after_a_crash_touches_no_node() -> None:
    """120 lines, no condition, no taint, not even an event, and nothing counts them up."""
    played = Played([*burst(), {"until": 60}])
    assert played.final["effect"] == "none"
    assert {fault["rule"] for fault in played.final["faults"]} == {"gpu-xid-cleanup"}
    assert [name for name, one in played.final["conditions"].items() if one["status"] == "True"] == []
    assert Played([*burst(), {"until": 3600}]).open == []


def test_c13b_the_149_before_it_is_the_fault() -> None:
    """On its own GPU only."""
    zeros = " 0x00000000" * 5
    fatal = f"NVRM: Xid (PCI:0000:12:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 18 (0x021425c6{zeros})"
    played = Played([{"at": 0.98, "kmsg": fatal}, *burst()])
    strong = [fault for fault in played.final["faults"] if fault["effect"] != "none"]
    assert [(fault["rule"], fault["device"]) for fault in strong] == [("gpu-nvlink5-reset", "gpu/0000:12:00.0")]
    assert played.final["effect"] == "evict"


def test_c14a_a_programs_errors_are_its_own() -> None:
    """Three lines of one 13, a 31 and a 43."""
    lines = [
        "13, pid=7, name=python3, Graphics SM Warp Exception on (GPC 1, TPC 0, SM 0): Out Of Range Address",
        "13, pid=7, name=python3, Graphics SM Global Exception on (GPC 1, TPC 0, SM 0): Multiple Warp Errors",
        "13, pid=7, name=python3, Graphics Exception: ESR 0x50c730=0x9000e 0x50c734=0x20 0x50c728=0x4c1eb72",
        "31, pid=7, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS",
        "43, pid=7, name=python3, Ch 00000008",
    ]
    played = Played(
        [{"at": 1 + number, "kmsg": f"NVRM: Xid (PCI:0000:3b:00): {line}"} for number, line in enumerate(lines)]
    )
    assert played.open == ["gpu-xid-application gpu/0000:3b:00.0"]
    assert (played.final["effect"], played.final["taints"]) == ("none", [])


def program(at: float, pod: str) -> list[dict[str, object]]:
    return [
        {"at": at, "pods": {"GPU-aaaa": [{"uid": pod}]}},
        {"at": at + 1, "kmsg": "NVRM: Xid (PCI:0000:3b:00): 43, pid=7, name=python3, Ch 00000008"},
    ]


def test_c14b_three_pods_on_one_gpu_make_the_gpu_suspect() -> None:
    """Condition, taint and a reset; two pods, or the same pod three times, do not."""
    start: list[dict[str, object]] = [{"at": 0, "nvml": {"gpus": {"GPU-aaaa": {"pci": "0000:3b:00.0"}}}}]
    two = [*start, *program(10, "p1"), *program(100, "p2"), *program(200, "p2")]
    assert Played(two).final["taints"] == []
    played = Played([*two, *program(300, "p3")])
    assert played.final["conditions"]["GpuNeedsAttention"]["status"] == "True"
    assert (played.final["effect"], played.final["action"]) == ("noschedule", "reset_gpu")
    assert played.final["taints"] == ["nodeguard.io/unhealthy=GpuNeedsAttention:NoSchedule"]
    late = [*start, *program(10, "p1"), *program(100, "p2"), *program(700, "p3")]
    assert Played(late).final["taints"] == []


TABLE = [
    "NVRM: GPU4 GSP RPC buffer contains function 103 (GSP_RM_ALLOC) and data 0x0000000000002081 0x0000000000000004.",
    "NVRM: GPU4 RPC history (CPU -> GSP):",
    "NVRM:     entry function                   data0              data1",
    *[
        f"NVRM:     -{number}    76 GSP_RM_CONTROL          0x0000000020800a4c 0x0000000000000004"
        for number in range(16)
    ],
    "CPU: 12 PID: 20 Comm: nvidia-smi Tainted: P           OE",
    "Call Trace:",
    " _nv011644rm+0x340/0x3d0 [nvidia]",
    " nvidia_unlocked_ioctl+0x19f/0x8c0 [nvidia]",
]


def test_c16a_three_timeouts_with_their_tables_are_one_fault() -> None:
    """Named by the UUID that the driver printed; who asked does not matter, the table adds nothing."""
    timeout = (
        "NVRM: Xid (PCI:0000:9b:00): 119, pid=20, name=nvidia-smi, Timeout after 6s of waiting for RPC response from "
        "GPU4 GSP! Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4)."
    )
    entries: list[dict[str, object]] = [{"at": 0, "kmsg": "NVRM: GPU at PCI:0000:9b:00: GPU-aaaa"}]
    for at in (1, 7, 13):
        entries += [{"at": at, "kmsg": line} for line in (timeout, *TABLE)]
    played = Played(entries)
    assert played.told == ["1 opened gpu-xid-gsp gpu/GPU-aaaa"]
    fault = played.fault("gpu-xid-gsp")
    assert (fault["count"], fault["action"], fault["effect"], fault["pci"]) == (3, "reset_gpu", "evict", "0000:9b:00.0")


def test_c16b_a_heartbeat_that_stopped_blames_no_gpu() -> None:
    """The driver's index is no address."""
    line = "NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 12 diff 6070 timeout 5200"
    played = Played([{"at": 1, "kmsg": line}, {"at": 7, "kmsg": line}])
    assert played.open == ["gpu-driver-gsp-heartbeat node"]
    assert (played.fault("gpu-driver-gsp-heartbeat")["severity"], played.final["taints"]) == ("warning", [])
