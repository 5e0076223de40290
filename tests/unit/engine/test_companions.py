"""Rules that look beside what they judge: kinds of device, parts of a limit, and counters that stand still."""

from nodeguard.model.device import Device, rdma_port
from nodeguard.model.sample import Affinity, Identified

from .rig import A, B, C, Rig

DATA = "rdma_port_xmit_data_total"
ONE, TWO = rdma_port("mlx5_0", 1), rdma_port("mlx5_1", 1)
HOT = {"signal": "gpu_temperature_celsius", "above": 80}
QUIET = {"signal": DATA, "kind": "rdma_port", "rate": {"below": 10, "over": "20s"}}


def rdma(rig: Rig, at: float, count: int | None, port: Device = ONE) -> None:
    rig.polls(at, DATA, {port: count}, source="rdma")


def test_a_part_of_a_limit() -> None:
    """``times`` comes before ``plus``."""
    rig = Rig({"signal": "gpu_power_watts", "below": {"signal": "gpu_power_limit_watts", "times": 0.4, "plus": 20}})
    assert rig.poll(0, gpu_power_watts=300, gpu_power_limit_watts=700) == []
    assert rig.poll(1, gpu_power_watts=299, gpu_power_limit_watts=700) == ["1 opened r gpu/GPU-a"]


def test_a_rule_of_one_kind_leaves_others_alone() -> None:
    """The signal is the same, the device is not."""
    rig = Rig({"signal": "pcie_link_width", "kind": "pcie", "below": 16})
    assert rig.poll(0, A, pcie_link_width=8) == []
    assert rig.poll(1, Device("pcie/0000:3c:00.0"), pcie_link_width=8) == ["1 opened r pcie/0000:3c:00.0"]


def test_a_counter_must_be_watched_for_the_whole_time() -> None:
    """Before that nobody knows whether it stood still."""
    rig = Rig({**HOT, "require": [QUIET]})
    for at in (0, 10, 19):
        rdma(rig, at, 500)
        assert rig.poll(at, gpu_temperature_celsius=90) == []
    rdma(rig, 20, 500)
    assert rig.poll(21, gpu_temperature_celsius=90) == ["21 opened r gpu/GPU-a"]


def test_a_counter_that_moves_slowly_stands_still() -> None:
    """Less than the limit, averaged over the time."""
    rig = Rig({**HOT, "require": [QUIET]})
    for at in range(0, 30, 10):
        rdma(rig, at, 9 * at)
    assert rig.poll(31, gpu_temperature_celsius=90) == ["31 opened r gpu/GPU-a"]


def test_one_counter_that_moves_is_enough() -> None:
    """All of the kind must stand still."""
    rig = Rig({**HOT, "require": [QUIET]})
    for at in range(0, 50, 10):
        rdma(rig, at, 0)
        rdma(rig, at, 100 * at, TWO)
    assert rig.poll(51, gpu_temperature_celsius=90) == []
    for at in range(60, 100, 10):
        rdma(rig, at, 0)
        rdma(rig, at, 4000, TWO)
    assert rig.poll(101, gpu_temperature_celsius=90) == ["101 opened r gpu/GPU-a"]


def test_no_counter_at_all_is_not_known() -> None:
    """Not to see the network is not to see that it stands still."""
    rig = Rig({**HOT, "require": [QUIET]})
    assert [rig.poll(at, gpu_temperature_celsius=90) for at in (0, 30, 60)] == [[], [], []]


def test_a_counter_that_was_not_seen_for_a_while_starts_anew() -> None:
    """What it did meanwhile is not known."""
    rig = Rig({**HOT, "require": [QUIET]})
    for at in range(0, 30, 10):
        rdma(rig, at, 500)
    for at in (31, 32, 33):
        rdma(rig, at, None)
    assert rig.poll(34, gpu_temperature_celsius=90) == []
    rdma(rig, 35, 500)
    rdma(rig, 45, 500)
    assert rig.poll(46, gpu_temperature_celsius=90) == []
    rdma(rig, 55, 500)
    assert rig.poll(56, gpu_temperature_celsius=90) == ["56 opened r gpu/GPU-a"]


def test_a_counter_of_the_same_device() -> None:
    """Without a kind, the others do not matter."""
    rig = Rig({**HOT, "require": [{"signal": "pcie_replay_total", "rate": {"below": 1, "over": "10s"}}]})
    for at in (0, 10):
        rig.poll(at, A, pcie_replay_total=5)
        rig.poll(at, B, pcie_replay_total=100 * at)
    told = [rig.poll(11, one, gpu_temperature_celsius=90) for one in (A, B, C)]
    assert told == [["11 opened r gpu/GPU-a"], [], []]


def test_a_restart_watches_anew() -> None:
    """A minute of watching is not kept, and an open fault is."""
    rig = Rig({**HOT, "require": [QUIET]}, restarts=True)
    for at in range(0, 60, 10):
        rdma(rig, at, 500)
    assert rig.poll(61, gpu_temperature_celsius=90) == []


def test_a_network_adapters_fault_names_its_neighbours() -> None:
    """By their UUIDs once those are known, in message and evidence; a GPU's own does not."""
    rig = Rig({"signal": "rdma_port_state", "is": "DOWN", "message": "{device} is down"}, {**HOT, "name": "hot"})
    rig.facts(0, Affinity({ONE: (Device("gpu/0000:3b:00.0"), Device("gpu/0000:5e:00.0"))}), source="pcie")
    rig.facts(1, Identified("0000:3b:00.0", A), source="nvml")
    rig.poll(2, ONE, source="rdma", rdma_port_state="DOWN")
    rig.poll(2, A, gpu_temperature_celsius=90)
    faults = {fault.rule: fault for fault in rig.engine.open_faults()}
    assert faults["r"].message == "rdma_port/mlx5_0/1 (beside gpu/GPU-a, gpu/0000:5e:00.0) is down"
    assert faults["r"].evidence["near"] == "gpu/GPU-a, gpu/0000:5e:00.0"
    assert "near" not in faults["hot"].evidence
    rig.facts(3, Affinity({}), source="pcie")
    assert "rdma_port/mlx5_0/1 is down" in [fault.message for fault in rig.engine.open_faults()]
