"""``across``: many devices judged together on the node, and what it mutes (design §4)."""

from nodeguard.model.device import Device, rdma_port
from nodeguard.model.sample import Batch, Expected, Present

from .rig import A, B, C, MakeRig, Rig

P1, P2, P3 = (rdma_port(f"mlx5_{number}", 1) for number in range(3))
DOWN = {"name": "down", "signal": "rdma_port_state", "is_not": "ACTIVE"}
ALL = {
    "name": "all-down",
    "signal": "rdma_port_state",
    "is_not": "ACTIVE",
    "for": "5s",
    "mutes": ["down"],
    "across": {"kind": "rdma_port", "at_least": "all"},
}


def ports(node: Rig, at: float, *words: str | None) -> list[str]:
    return node.polls(at, "rdma_port_state", dict(zip((P1, P2, P3), words, strict=False)), source="rdma")


def test_all_of_a_kind(rig: MakeRig) -> None:
    """One fault on the node, after ``for``; one device that is well is enough to prevent it."""
    node = rig(ALL, DOWN)
    ports(node, 0, "DOWN", "ACTIVE")
    ports(node, 1, "DOWN", "DOWN")
    assert ports(node, 5, "DOWN", "DOWN") == []
    told = ports(node, 6, "DOWN", "DOWN")
    assert told[0] == "6 opened all-down node"
    assert node.open == ["all-down node"]
    assert node.fault.evidence["devices"] == f"{P1}, {P2}"


def test_a_number_of_a_kind(rig: MakeRig) -> None:
    """At least two at once; unknown ones are no evidence."""
    node = rig({**ALL, "for": {"samples": 1}, "across": {"kind": "rdma_port", "at_least": 2}}, DOWN)
    assert ports(node, 0, "DOWN", None, "ACTIVE") == ["0 opened down rdma_port/mlx5_0/1"]
    assert "1 opened all-down node" in ports(node, 1, "DOWN", "DOWN", "ACTIVE")


def test_unknown_devices_neither_open_nor_clear(rig: MakeRig) -> None:
    """While the unknown one could decide, nothing is decided."""
    node = rig({**ALL, "for": {"samples": 1}}, DOWN)
    ports(node, 0, "ACTIVE", "ACTIVE")
    for at in (1, 2, 3):
        ports(node, at, "DOWN", None)
    assert "all-down node" not in node.open
    ports(node, 4, "DOWN", "DOWN")
    assert node.open == ["all-down node"]
    for at in (5, 6, 7, 8, 9):
        ports(node, at, "DOWN", None)
    assert node.open == ["all-down node"]


def test_mutes_hide_what_it_explains(rig: MakeRig) -> None:
    """Muted faults close with that reason, and open again when the cause is gone and they are not."""
    node = rig({**ALL, "for": {"samples": 2}}, DOWN)
    assert ports(node, 0, "DOWN", "DOWN") == ["0 opened down rdma_port/mlx5_0/1", "0 opened down rdma_port/mlx5_1/1"]
    assert ports(node, 1, "DOWN", "DOWN") == [
        "1 opened all-down node",
        "1 closed down rdma_port/mlx5_0/1",
        "1 closed down rdma_port/mlx5_1/1",
    ]
    assert node.transitions[-1].detail == "muted by all-down"
    ports(node, 2, "ACTIVE", "DOWN")
    ports(node, 3, "ACTIVE", "DOWN")
    assert ports(node, 4, "ACTIVE", "DOWN") == ["4 closed all-down node", "4 opened down rdma_port/mlx5_1/1"]


def test_other_kinds_are_not_counted(rig: MakeRig) -> None:
    """A rule across GPUs does not look at NVSwitches with the same signal."""
    node = rig({"name": "slow", "signal": "pcie_link_width", "below": 16, "across": {"kind": "gpu", "at_least": 2}})
    assert node.polls(0, "pcie_link_width", {A: 8, Device("nvswitch/0000:c1:00.0"): 8}) == []
    assert node.polls(1, "pcie_link_width", {A: 8, B: 8}) == ["1 opened slow node"]


def test_counters_across(rig: MakeRig) -> None:
    """Devices whose counter grew too much within the window."""
    node = rig(
        {
            "name": "storm",
            "signal": "pcie_replay_total",
            "increase": {"at_least": 10, "within": "1m"},
            "across": {"kind": "gpu", "at_least": 2},
        }
    )
    node.polls(0, "pcie_replay_total", {A: 0, B: 0})
    assert node.polls(1, "pcie_replay_total", {A: 10, B: 3}) == []
    assert node.polls(30, "pcie_replay_total", {A: 10, B: 13}) == ["30 opened storm node"]
    for at in (62, 63):
        node.polls(at, "pcie_replay_total", {A: 10, B: 13})
    assert node.polls(64, "pcie_replay_total", {A: 10, B: 13}) == ["64 closed storm node"]


def test_left_across(rig: MakeRig) -> None:
    """Only devices that had been in the state."""
    node = rig(
        {"name": "gone", "signal": "rdma_port_state", "left": "ACTIVE", "across": {"kind": "rdma_port", "at_least": 2}}
    )
    ports(node, 0, "ACTIVE", "DOWN", "ACTIVE")
    assert ports(node, 1, "DOWN", "DOWN", "ACTIVE") == []
    assert ports(node, 2, "DOWN", "DOWN", "DOWN") == ["2 opened gone node"]


def test_a_device_that_left_has_no_voice_until_it_returns(rig: MakeRig) -> None:
    """A lost GPU neither prevents nor supports ``all``; back again it counts again."""
    node = rig(
        {"name": "hot", "signal": "gpu_temperature_celsius", "above": 90, "across": {"kind": "gpu", "at_least": "all"}}
    )
    present = Present("gpu", frozenset({A, B}))
    node.facts(0, present, source="nvml")
    node.polls(0, "gpu_temperature_celsius", {A: 95, B: 50})
    node.facts(1, Present("gpu", frozenset({A})), source="nvml")
    assert node.polls(1, "gpu_temperature_celsius", {A: 95}) == ["1 opened hot node"]
    node.facts(2, present, source="nvml")
    for at in (2, 3):
        node.polls(at, "gpu_temperature_celsius", {A: 95, B: 50})
    assert node.polls(4, "gpu_temperature_celsius", {A: 95, B: 50}) == ["4 closed hot node"]


def test_counts_across(rig: MakeRig) -> None:
    """Events of each device are counted by themselves; enough devices make one fault."""
    node = rig(
        {
            "name": "many",
            "signal": "gpu_xid",
            "match": {"code": 31},
            "across": {"kind": "gpu", "at_least": 2},
            "count": {"at_least": 2, "within": "1m"},
            "message": "{code}",
        }
    )
    node.event(0, device=A, code=31)
    node.event(1, device=A, code=31)
    assert node.event(2, device=B, code=31) == []
    assert node.event(3, device=B, code=31) == ["3 opened many node"]
    assert node.fault.evidence["devices"] == f"{A}, {B}"
    assert node.wait(100) == ["61 closed many node"]


def test_counts_across_all_need_to_know_the_devices(rig: MakeRig) -> None:
    """``all`` of an unknown number is not judged."""
    rule = {
        "name": "many",
        "signal": "gpu_xid",
        "across": {"kind": "gpu", "at_least": "all"},
        "count": {"at_least": 1, "within": "1m"},
    }
    node = rig(rule)
    assert node.event(0, device=A, code=31) == []
    node.facts(1, Present("gpu", frozenset({A, B})), source="nvml")
    assert node.event(2, device=A, code=31) == []
    assert node.event(3, device=B, code=31) == ["3 opened many node"]


def test_absence_across(rig: MakeRig) -> None:
    """All expected ports are missing: one fault on the node, not one each."""
    node = rig(
        {"name": "none", "signal": "rdma_port_state", "absent": {}, "across": {"kind": "rdma_port", "at_least": "all"}}
    )
    node.facts(0, Expected(frozenset({P1, P2})))
    told = node.take(1, Batch(source="rdma", facts=(Present("rdma_port", frozenset()),)))
    assert told == ["1 opened none node"]
    ports(node, 2, "DOWN")
    ports(node, 3, "DOWN")
    assert ports(node, 4, "DOWN") == ["4 closed none node"]


def test_the_node_fault_is_never_muted(rig: MakeRig) -> None:
    """Mutes hide faults of the muted rule on devices of the kind only."""
    node = rig({**ALL, "for": {"samples": 1}, "mutes": ["down"]}, DOWN, {**DOWN, "name": "other"})
    ports(node, 0, "DOWN")
    assert node.open == ["all-down node", "other rdma_port/mlx5_0/1"]
    assert C not in node.open
