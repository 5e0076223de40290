"""``left`` with its memory over reboots, and ``absent`` (design §4)."""

from nodeguard.model.device import Device, rdma_port
from nodeguard.model.sample import Batch, Booted, Expected, Identified, Missed, Present, Renamed, Sample, SourceState

from .rig import A, B, MakeRig, Rig

PORT, OTHER = rdma_port("mlx5_0", 1), rdma_port("mlx5_1", 1)
LEFT = {"signal": "rdma_port_state", "left": ["ACTIVE"]}


def port(node: Rig, at: float, word: str | None, device: Device = PORT) -> list[str]:
    return node.polls(at, "rdma_port_state", {device: word}, source="rdma")


def test_left_fires_only_after_it_was_seen_there(rig: MakeRig) -> None:
    """C40: a port that was never up is no fault; one that was is."""
    node = rig(LEFT)
    assert port(node, 0, "DOWN") == []
    assert port(node, 1, "DOWN") == []
    assert port(node, 2, "ACTIVE") == []
    assert port(node, 3, "INIT") == ["3 opened r rdma_port/mlx5_0/1"]


def test_left_clears_back_in_the_state(rig: MakeRig) -> None:
    """Three polls by default, ``after`` where given; another wrong state does not clear."""
    node = rig(LEFT)
    port(node, 0, "ACTIVE")
    port(node, 1, "DOWN")
    assert [port(node, at, word) for at, word in ((2, "INIT"), (3, "ACTIVE"), (4, "ACTIVE"))] == [[], [], []]
    assert port(node, 5, "ACTIVE") == ["5 closed r rdma_port/mlx5_0/1"]
    slow = rig({**LEFT, "clear": {"after": "10m"}})
    port(slow, 0, "ACTIVE")
    port(slow, 1, "DOWN")
    port(slow, 2, "ACTIVE")
    assert port(slow, 601, "ACTIVE") == []
    assert port(slow, 602, "ACTIVE") == ["602 closed r rdma_port/mlx5_0/1"]


def test_left_holds_for(rig: MakeRig) -> None:
    """``for`` and ``require`` as on any level."""
    node = rig({**LEFT, "for": "5s", "require": [{"signal": "rdma_port_phys_state", "is_not": "Disabled"}]})
    port(node, 0, "ACTIVE")
    port(node, 1, "DOWN")
    port(node, 7, "DOWN")
    assert node.open == []
    node.polls(8, "rdma_port_phys_state", {PORT: "Polling"}, source="rdma")
    port(node, 8, "DOWN")
    assert port(node, 13, "DOWN") == ["13 opened r rdma_port/mlx5_0/1"]


def test_left_of_a_number(rig: MakeRig) -> None:
    """States without words are remembered too."""
    node = rig({"signal": "gpu_recovery_action", "left": 0})
    assert node.poll(0, gpu_recovery_action=1) == []
    node.poll(1, gpu_recovery_action=0)
    assert node.poll(2, gpu_recovery_action=1.0) == ["2 opened r gpu/GPU-a"]


def test_the_memory_outlives_a_reboot_after_five_minutes_of_grace(rig: MakeRig) -> None:
    """For 5 minutes only what was seen in this boot counts; then what an earlier boot saw counts again."""
    node = rig(LEFT)
    port(node, 0, "ACTIVE")
    node.facts(100, Booted("b2", 100))
    assert port(node, 101, "DOWN") == []
    assert port(node, 399, "DOWN") == []
    assert port(node, 400, "DOWN") == ["400 opened r rdma_port/mlx5_0/1"]


def test_in_the_grace_a_port_that_came_up_and_left_is_a_fault(rig: MakeRig) -> None:
    """The grace is for memory of the boot before only."""
    node = rig(LEFT)
    port(node, 0, "ACTIVE")
    node.facts(100, Booted("b2", 100))
    port(node, 110, "ACTIVE")
    assert port(node, 111, "DOWN") == ["111 opened r rdma_port/mlx5_0/1"]


def test_a_boot_long_ago_has_no_grace(rig: MakeRig) -> None:
    """A boot ID without a time says nothing of when it began."""
    node = rig(LEFT)
    port(node, 0, "ACTIVE")
    node.facts(100, Booted("b2"))
    assert port(node, 101, "DOWN") == ["101 opened r rdma_port/mlx5_0/1"]


def test_a_live_reboot_keeps_the_memory_and_has_the_grace() -> None:
    """The agent starts under another boot ID with the node part of its store."""
    node = Rig(LEFT)
    port(node, 5000, "ACTIVE")
    node.reboot("b2", now=20)
    node.facts(20, Booted("b2", 0.0))
    assert port(node, 21, "DOWN") == []
    assert port(node, 301, "DOWN") == ["301 opened r rdma_port/mlx5_0/1"]


def test_a_renamed_hca_starts_anew(rig: MakeRig) -> None:
    """Faults and memory of the old name close as renamed; the new name starts from a baseline."""
    node = rig(
        LEFT, {"name": "flaps", "signal": "rdma_link_downed_total", "increase": {"at_least": 1, "within": "10m"}}
    )
    port(node, 0, "ACTIVE")
    node.polls(0, "rdma_link_downed_total", {PORT: 3}, source="rdma")
    node.polls(1, "rdma_link_downed_total", {PORT: 4}, source="rdma")
    port(node, 1, "DOWN")
    assert node.facts(2, Renamed(PORT, OTHER), source="rdma") == [
        "2 closed flaps rdma_port/mlx5_0/1",
        "2 closed r rdma_port/mlx5_0/1",
    ]
    assert all("renamed" in one.detail for one in node.transitions[-2:])
    assert port(node, 3, "DOWN", OTHER) == []
    assert node.polls(3, "rdma_link_downed_total", {OTHER: 9}, source="rdma") == []
    assert port(node, 4, "DOWN") == []


ABSENT = {"signal": "rdma_port_state", "absent": {"for": "30s"}}


def test_an_expected_device_that_never_comes_is_absent(rig: MakeRig) -> None:
    """C40f: judged at polls of its source, while that is up."""
    node = rig(ABSENT)
    node.facts(0, Expected(frozenset({PORT})))
    assert node.wait(100) == []
    assert port(node, 100, "ACTIVE", OTHER) == []
    node.facts(110, SourceState(up=False), source="rdma")
    assert node.wait(129) == []
    node.facts(129, SourceState(up=True), source="rdma")
    assert port(node, 130, "ACTIVE", OTHER) == ["130 opened r rdma_port/mlx5_0/1"]
    assert [port(node, at, "DOWN") for at in (131, 140, 160)] == [[], [], []]
    assert port(node, 161, "DOWN") == ["161 closed r rdma_port/mlx5_0/1"]


def test_a_sample_that_was_there_and_is_gone_is_absent(rig: MakeRig) -> None:
    """A sample never supported is not missed; one that aged out is, for as long as ``for`` says."""
    node = rig({"signal": "gpu_power_watts", "absent": {"for": {"samples": 2}}, "clear": {"after": "5s"}})
    node.poll(0, B, gpu_power_watts=None, gpu_temperature_celsius=30)
    node.poll(0, gpu_power_watts=70)
    for at in (1, 2, 3):
        assert node.poll(at, gpu_power_watts=None, gpu_temperature_celsius=30) == []
    assert node.hot(4, 30) == ["4 opened r gpu/GPU-a"]
    node.poll(5, gpu_power_watts=70)
    assert node.poll(10, gpu_power_watts=70) == ["10 closed r gpu/GPU-a"]


def test_a_device_that_is_gone_is_absent(rig: MakeRig) -> None:
    """A whole poll without it, and its sample with it."""
    node = rig({"signal": "gpu_power_watts", "absent": {}})
    node.take(
        0, Batch(source="nvml", facts=(Present("gpu", frozenset({A, B})),), samples=(Sample("gpu_power_watts", A, 70),))
    )
    assert node.facts(1, Present("gpu", frozenset({B})), source="nvml") == ["1 opened r gpu/GPU-a"]


def test_a_replaced_device_is_not_absent(rig: MakeRig) -> None:
    """Another UUID holds its slot: nobody waits for the old one's samples."""
    node = rig({"signal": "gpu_power_watts", "absent": {}})
    slot = "0000:3b:00.0"
    node.take(
        0,
        Batch(
            source="nvml",
            facts=(Identified(slot, A), Present("gpu", frozenset({A}))),
            samples=(Sample("gpu_power_watts", A, 70),),
        ),
    )
    assert (
        node.take(
            9,
            Batch(
                source="nvml",
                facts=(Identified(slot, B), Present("gpu", frozenset({B}))),
                samples=(Sample("gpu_power_watts", B, 70),),
            ),
        )
        == []
    )
    assert node.poll(10, B, gpu_power_watts=70) == []


def test_absence_of_one_labels_series_asks_only_those_that_were_there(rig: MakeRig) -> None:
    """A GPU that never had link 4 does not miss it."""
    node = rig({"signal": "nvlink_state", "match": {"link": "4"}, "absent": {}})
    samples = (
        Sample("nvlink_state", A, "active", (("link", "4"),)),
        Sample("nvlink_state", B, "active", (("link", "1"),)),
    )
    assert node.take(0, Batch(source="nvml", samples=samples)) == []
    for at in (1, 2):
        node.take(at, Batch(source="nvml", samples=(Sample("nvlink_state", A, None, (("link", "4"),)),)))
    assert node.take(3, Batch(source="nvml", samples=(Sample("nvlink_state", A, None, (("link", "4"),)),))) == [
        "3 opened r gpu/GPU-a"
    ]


def test_a_source_that_is_down_makes_nothing_absent(rig: MakeRig) -> None:
    """What cannot be seen is not gone."""
    node = rig({"signal": "gpu_power_watts", "absent": {}})
    node.poll(0, gpu_power_watts=70)
    for at in range(1, 9):
        assert node.facts(at, SourceState(up=False), Missed(), source="nvml") == []
