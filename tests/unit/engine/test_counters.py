"""``increase`` and ``rate``: windows over counters that reset, saturate and are read by several sources (design §4)."""

from nodeguard.model.device import rdma_port
from nodeguard.model.sample import Booted, Sample, SourceState

from .rig import A, MakeRig, Rig

GROWS = {"signal": "pcie_replay_total", "increase": {"at_least": 10, "within": "1m"}}
PORT = rdma_port("mlx5_0", 1)


def test_the_first_sight_is_a_baseline(rig: MakeRig) -> None:
    """C41: 5 million at the first poll says nothing; ten more in a minute do, and exactly at the limit."""
    node = rig(GROWS)
    assert node.count(0, 5_000_000) == []
    assert node.count(1, 5_000_009) == []
    assert node.count(61, 5_000_010) == ["61 opened r gpu/GPU-a"]


def test_growth_falls_out_of_the_window(rig: MakeRig) -> None:
    """Nine and one more after more than a minute are not ten within one."""
    node = rig(GROWS)
    node.count(0, 0)
    node.count(1, 9)
    assert node.count(61.5, 10) == []
    assert node.count(62, 19) == ["62 opened r gpu/GPU-a"]


def test_a_reset_is_no_growth(rig: MakeRig) -> None:
    """A counter that goes back starts a new baseline there."""
    node = rig(GROWS)
    node.count(0, 100)
    assert node.count(1, 3) == []
    assert node.count(2, 12) == []
    assert node.count(3, 13) == ["3 opened r gpu/GPU-a"]


def test_c37_a_saturated_counter_is_unknown(rig: MakeRig) -> None:
    """It grew up to its maximum; there it says nothing, and after being cleared it starts at a baseline."""
    node = rig(
        {"signal": "rdma_link_downed_total", "increase": {"at_least": 2, "within": "10m"}},
        {"name": "high", "signal": "rdma_link_downed_total", "above": 254},
    )

    def downed(at: float, value: float) -> list[str]:
        return node.polls(at, "rdma_link_downed_total", {PORT: value}, source="rdma")

    downed(0, 253)
    assert downed(1, 255) == ["1 opened r rdma_port/mlx5_0/1"]
    assert [downed(at, 255) for at in (2, 3, 4, 5)] == [[], [], [], []]
    assert node.engine.counts["samples_saturated_total"] == 5
    assert downed(6, 2) == []
    assert downed(601.5, 3) == ["601 closed r rdma_port/mlx5_0/1"]
    assert downed(602, 4) == ["602 opened r rdma_port/mlx5_0/1"]


def test_unknown_is_no_zero(rig: MakeRig) -> None:
    """What grew while nobody could read it counts when it is read again, from the last known value."""
    node = rig(GROWS)
    node.count(0, 100)
    for at in range(1, 8):
        node.count(at, None)
    assert node.count(8, 105) == []
    assert node.count(9, 110) == ["9 opened r gpu/GPU-a"]


def test_the_baseline_is_per_source(rig: MakeRig) -> None:
    """Two sources with other offsets do not make a jump."""
    node = rig(GROWS)
    node.count(0, 100)
    assert node.count(1, 9000, source="exporter/dcgm") == []
    assert node.count(2, 101) == []
    assert node.count(3, 9001, source="exporter/dcgm") == []


def test_two_sources_that_see_the_same_growth_do_not_add_up(rig: MakeRig) -> None:
    """Six errors seen twice are six."""
    node = rig(GROWS)
    node.count(0, 0)
    node.count(0, 0, source="exporter/dcgm")
    node.count(1, 6)
    assert node.count(1, 6, source="exporter/dcgm") == []


def test_increase_clears_when_nothing_new_came_for_the_window(rig: MakeRig) -> None:
    """By a timer, at its due time; growth below the limit is something new."""
    node = rig(GROWS)
    node.count(0, 0)
    node.count(1, 10)
    assert node.count(50, 11) == []
    assert node.count(60, 11) == []
    assert node.wait(200) == ["110 closed r gpu/GPU-a"]


def test_quiet_counts_only_while_the_source_is_up(rig: MakeRig) -> None:
    """Time in which nobody looked is not quiet."""
    node = rig({**GROWS, "clear": {"after": "100s"}})
    node.count(0, 0)
    node.count(1, 10)
    node.facts(51, SourceState(up=False), source="nvml")
    assert node.wait(1000) == []
    node.facts(1000, SourceState(up=True), source="nvml")
    assert node.wait(1049) == []
    assert node.wait(1051) == ["1050 closed r gpu/GPU-a"]


def test_quiet_counts_only_while_the_companion_holds(rig: MakeRig) -> None:
    """``clear: {after, while}``: flaps clear after 15 minutes of ACTIVE."""
    node = rig(
        {
            "signal": "rdma_link_downed_total",
            "increase": {"at_least": 2, "within": "10m"},
            "clear": {"after": "15m", "while": {"signal": "rdma_port_state", "is": "ACTIVE"}},
        }
    )

    def port(at: float, word: str, downed: float) -> list[str]:
        node.polls(at, "rdma_port_state", {PORT: word}, source="rdma")
        return node.polls(at, "rdma_link_downed_total", {PORT: downed}, source="rdma")

    port(0, "ACTIVE", 7)
    port(60, "DOWN", 7)
    port(62, "ACTIVE", 8)
    port(120, "DOWN", 8)
    assert port(121, "DOWN", 9) == ["121 opened r rdma_port/mlx5_0/1"]
    assert node.wait(2000) == []
    port(2000, "ACTIVE", 9)
    assert node.wait(3000) == ["2900 closed r rdma_port/mlx5_0/1"]


def test_rate_is_growth_a_second_over_the_window(rig: MakeRig) -> None:
    """Above, not at, the limit; it clears when it was not above for the window."""
    node = rig({"signal": "pcie_replay_total", "rate": {"above": 100, "over": "10s"}})
    node.count(0, 0)
    assert node.count(5, 1000) == []
    assert node.count(6, 1001) == ["6 opened r gpu/GPU-a"]
    assert node.count(15.5, 1100) == []
    assert node.wait(30) == ["16 closed r gpu/GPU-a"]


def test_require_on_a_counter(rig: MakeRig) -> None:
    """Unknown or false companions open nothing."""
    node = rig({**GROWS, "require": [{"signal": "gpu_utilization_ratio", "above": 0.5}]})
    node.count(0, 0)
    assert node.count(1, 10) == []
    node.poll(2, gpu_utilization_ratio=0.9)
    assert node.count(3, 11) == ["3 opened r gpu/GPU-a"]


def test_a_counter_level(rig: MakeRig) -> None:
    """``above`` on a counter looks at its value."""
    node = rig({"signal": "pcie_replay_total", "above": 5})
    assert node.count(0, 6) == ["0 opened r gpu/GPU-a"]


def test_a_reboot_starts_volatile_counters_anew(rig: MakeRig) -> None:
    """The first sight after a boot is a baseline again, and the fault is judged anew."""
    node = rig(GROWS)
    node.count(0, 0)
    node.count(1, 10)
    assert node.facts(2, Booted("b2", 2)) == ["2 closed r gpu/GPU-a"]
    assert node.count(3, 30) == []


REMAPS = {
    "signal": "gpu_row_remap_uncorrected_total",
    "increase": {"at_least": 2, "within": "24h"},
    "clear": {"on": "replace"},
}


def remaps(node: Rig, at: float, value: float) -> list[str]:
    return node.polls(at, "gpu_row_remap_uncorrected_total", {A: value})


def test_counters_that_the_device_keeps_count_over_a_reboot(rig: MakeRig) -> None:
    """C11b: baseline and window outlive the boot."""
    node = rig(REMAPS)
    remaps(node, 0, 10)
    remaps(node, 10, 11)
    node.facts(100, Booted("b2", 100))
    assert remaps(node, 220, 12) == ["220 opened r gpu/GPU-a"]


def test_c11b_they_count_over_a_live_reboot_with_the_clock_shifted() -> None:
    """One row 23 hours before this boot's time 0 and one soon after: within a day; two hours later: not."""
    for now, opened in ((100, True), (7300, False)):
        node = Rig(REMAPS)
        remaps(node, 5000, 10)
        remaps(node, 10_000, 11)
        node.reboot("b2", now=now, shift=-(10_000 + 23 * 3600))
        assert bool(remaps(node, now, 12)) is opened


def test_a_window_that_held_a_fault_ended_by_the_reboot_starts_anew() -> None:
    """Live as in a replay: a fault that the reboot closes is not half open afterwards."""
    node = Rig({**REMAPS, "clear": {"after": "24h"}})
    remaps(node, 0, 10)
    remaps(node, 10, 12)
    assert node.open == ["r gpu/GPU-a"]
    node.reboot("b2", now=10, shift=-100)
    assert node.open == []
    assert remaps(node, 20, 13) == []
    assert remaps(node, 30, 14) == ["30 opened r gpu/GPU-a"]


def test_a_fault_that_outlives_the_boot_goes_on_live() -> None:
    """It stays open, its window counts on, and the same GPU does not open it twice."""
    node = Rig(REMAPS)
    remaps(node, 0, 10)
    remaps(node, 10, 12)
    node.reboot("b2", now=5, shift=-100)
    assert node.open == ["r gpu/GPU-a"]
    assert remaps(node, 20, 13) == []
    assert node.fault.count == 2


def test_labels_have_windows_of_their_own(rig: MakeRig) -> None:
    """Every series counts for itself."""
    node = rig(GROWS)
    node.polls(0, "pcie_replay_total", {A: 0, PORT: 0})
    assert node.polls(1, "pcie_replay_total", {A: 5, PORT: 5}) == []
    assert Sample("pcie_replay_total", A, 5) in [one for one, _ in node.engine.readings()]
