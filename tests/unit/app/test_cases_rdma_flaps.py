"""C41 and a whole node: RDMA ports that flap, vanish and return, played as a recording and on files."""

import json
from pathlib import Path

from nodeguard.engine import memory
from nodeguard.engine.engine import Engine
from nodeguard.model.device import NODE, rdma_port
from nodeguard.sim import rdma
from nodeguard.sources.tree import DirectoryTree

from .rdma_rig import Live, Step, both, replay, seconds
from .rig import Played, shipped
from .test_cases_rdma import compute

PORT = "rdma_port/mlx5_5/1"


def c41() -> list[Step]:
    port = rdma.hca("mlx5_5") | rdma.up("mlx5_5") | rdma.counter("mlx5_5", "link_downed", 7)
    changes: dict[int, rdma.Patch] = {
        0: port,
        30: {"class/infiniband/mlx5_5/ports/1/state": {"error": "EIO"}},
        31: rdma.up("mlx5_5"),
        60: rdma.down("mlx5_5"),
        62: rdma.up("mlx5_5") | rdma.counter("mlx5_5", "link_downed", 8),
        120: rdma.down("mlx5_5"),
        121: rdma.up("mlx5_5") | rdma.counter("mlx5_5", "link_downed", 9),
        1600: rdma.gone("mlx5_5"),
    }
    return [(at, changes.get(at, {})) for at in range(1604)]


def test_c41_flaps_a_bad_read_and_a_device_that_goes(tmp_path: Path) -> None:
    """Each drop is told; two are flapping, until 15 minutes of ACTIVE; three polls without the device are one fault."""
    for world in both(tmp_path, c41()):
        assert world.told == [
            f"60 opened rdma-port-down {PORT}", f"64 closed rdma-port-down {PORT}",
            f"120 opened rdma-port-down {PORT}", f"121 opened rdma-link-flapping {PORT}",
            f"123 closed rdma-port-down {PORT}", f"1021 closed rdma-link-flapping {PORT}",
            f"1602 opened rdma-port-disappeared {PORT}",
        ]
        flapping = next(row for row in world.rows if row["rule"] == "rdma-link-flapping")
        assert flapping["effect"] == "condition"
        gone = world.fault("rdma-port-disappeared")
        assert gone["evidence"]["link_layer"] == "InfiniBand"
        assert "(link layer InfiniBand)" in gone["message"]


def test_c41_a_drop_between_two_polls_is_seen(tmp_path: Path) -> None:
    """The port is ACTIVE at every poll; link_downed tells."""
    port = rdma.hca("mlx5_5") | rdma.up("mlx5_5") | rdma.counter("mlx5_5", "link_downed", 7)
    steps = [(0, port), (1, rdma.counter("mlx5_5", "link_downed", 8)), (60, rdma.counter("mlx5_5", "link_downed", 9))]
    for world in both(tmp_path, steps):
        assert world.told == [f"60 opened rdma-link-flapping {PORT}"]


def test_c41_a_restart_of_the_agent_keeps_the_baseline() -> None:
    """A drop while nobody looked is counted; the numbers from before are not."""
    port = rdma.hca("mlx5_5") | rdma.up("mlx5_5") | rdma.counter("mlx5_5", "link_downed", 7)
    played = Played([
        {"at": 0, "sysfs": port}, {"at": 1, "sysfs": rdma.counter("mlx5_5", "link_downed", 8)},
        {"at": 5, "agent_restart": True}, {"at": 6, "sysfs": rdma.counter("mlx5_5", "link_downed", 9)}])
    assert played.told == [f"6 opened rdma-link-flapping {PORT}"]


def test_c41_a_restart_does_not_blink_a_lost_device(tmp_path: Path) -> None:
    """The fault stands over the restart, and one poll without a device is no loss after a restart either."""
    live = Live(tmp_path).play([(0, compute(2)), *seconds(1, 5), (5, rdma.gone("mlx5_1")), *seconds(6, 9)])
    state = json.loads(json.dumps([memory.node_part(live.engine), memory.boot_part(live.engine)]))
    live.engine = Engine(shipped())
    memory.restore(live.engine, *state, boot_id="b1", node_uid="", now=9.0)
    live.restart_source()
    live.rows.clear()
    live.play([(9, rdma.gone("mlx5_0")), *seconds(10, 13)])
    assert live.told == ["11 opened rdma-port-disappeared rdma_port/mlx5_0/1"]
    assert live.open == [f"rdma-port-disappeared rdma_port/mlx5_{number}/1" for number in range(2)]


def test_c41_a_roce_device_that_goes_is_named_so(tmp_path: Path) -> None:
    """One fault, of its own link layer."""
    card = rdma.hca("mlx5_0", "ConnectX-6 Dx", "Ethernet") | rdma.up("mlx5_0", 100)
    for world in both(tmp_path, [(0, card), (5, rdma.gone("mlx5_0")), *seconds(6, 12)]):
        assert world.told == ["7 opened rdma-port-disappeared rdma_port/mlx5_0/1"]
        assert world.fault("rdma-port-disappeared")["evidence"]["link_layer"] == "Ethernet"


def test_eight_hcas_are_silent_when_healthy(tmp_path: Path) -> None:
    """Compute, storage bond, management, a port without a cable, virtual functions: four minutes without a word."""
    (tmp_path / "proc/1/net").mkdir(parents=True)
    (tmp_path / "proc/1/net/route").write_text(rdma.ROUTES)
    steps: list[Step] = [(0, rdma.healthy_node()), *seconds(1, 240)]
    live = Live(tmp_path / "sys", proc=DirectoryTree(tmp_path / "proc")).play(steps)
    assert live.told == []
    roles = {series.device: series.value for series in live.engine.series.of_signal("rdma_port_role")}
    assert roles == {
        **{rdma_port(name, 1): "fabric" for name in (*rdma.COMPUTE, rdma.SPARE)},
        rdma_port(rdma.STORAGE, 1): "bond", rdma_port(rdma.MANAGEMENT, 1): "host",
        **{rdma_port(name, 1): "virtual" for name in rdma.VIRTUAL}}
    assert live.engine.series.value("rdma_port_count", NODE) == 13
    assert replay(steps[:60]).told == []


def test_eight_hcas_one_fault_each(tmp_path: Path) -> None:
    """Down, flap, half rate, disappeared, saturated: one fault on one port, whoever reads."""
    port = "rdma_port/mlx5_3/1"
    breaks = {
        "rdma-port-down": rdma.down("mlx5_3"),
        "rdma-link-flapping": rdma.counter("mlx5_3", "link_downed", 2),
        "rdma-port-slow": rdma.slow("mlx5_3", 200),
        "rdma-port-disappeared": rdma.gone("mlx5_3"),
        "rdma-counter-saturated": rdma.saturated("mlx5_3"),
    }
    for rule, patch in breaks.items():
        steps: list[Step] = [(0, rdma.healthy_node()), *seconds(1, 20), (20, patch), *seconds(21, 35)]
        for world in both(tmp_path / rule, steps):
            assert world.open == [f"{rule} {port}"], rule
            assert len(world.told) == 1, rule
