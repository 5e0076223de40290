"""C37, C39, C40, C41: RDMA ports, played as a recording and on files, with the shipped rules."""

import json
from pathlib import Path

from nodeguard.engine import memory
from nodeguard.engine.engine import Engine
from nodeguard.model.device import pcie, rdma_port
from nodeguard.sim import rdma
from nodeguard.sources.tree import DirectoryTree

from .rdma_rig import Live, Step, both, replay, seconds
from .rig import Played, shipped

PORT = "rdma_port/mlx5_5/1"
DOWN_LINE = "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN"
UP_LINE = "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE"


def counters(downed: int, symbol: int, wait: int) -> rdma.Patch:
    return (rdma.counter("mlx5_5", "link_downed", downed) | rdma.counter("mlx5_5", "symbol_error", symbol)
            | rdma.counter("mlx5_5", "port_xmit_wait", wait))


def c37() -> list[Step]:
    first = rdma.hca("mlx5_5", slot="0000:ab:00.0") | rdma.up("mlx5_5") | counters(253, 65535, 4294967295)
    return [
        (0, first),
        (10, counters(255, 65535, 4294967295)),
        (15, DOWN_LINE),
        (16, UP_LINE),
        (20, counters(255, 65535, 4294967295)),
    ]


def test_c37_a_counter_at_its_maximum_is_unknown_and_not_sound(tmp_path: Path) -> None:
    """The growth up to the maximum counts as flaps; there, one warning says that the counter is blind."""
    for world in both(tmp_path, c37()):
        assert world.told[:2] == [f"0 opened rdma-counter-saturated {PORT}", f"10 opened rdma-link-flapping {PORT}"]
        assert [one for one in world.open if "logged" not in one] == [
            f"rdma-counter-saturated {PORT}", f"rdma-link-flapping {PORT}"]
        warning = world.fault("rdma-counter-saturated")
        assert (warning["severity"], "counter saturated, clear it" in warning["message"]) == ("warning", True)


def test_c37_at_the_maximum_the_value_is_unknown(tmp_path: Path) -> None:
    """Neither 255 nor 0: three polls after the last number there is none."""
    live = Live(tmp_path).play([*c37(), *seconds(21, 24)])
    assert live.engine.series.value("rdma_link_downed_total", rdma_port("mlx5_5", 1)) is None


def test_c37_at_the_maximum_the_kernel_log_counts_flaps(tmp_path: Path) -> None:
    """One more drop is told, two are flapping, although the counter does not move."""
    steps = [*c37(), (25.0, DOWN_LINE), (26.0, UP_LINE)]
    for world in both(tmp_path, steps):
        assert f"15 opened rdma-link-down-logged {PORT}" in world.told
        assert world.told[-1] == f"25 opened rdma-link-flapping-in-log {PORT}"


def test_c37_with_a_counter_that_counts_the_log_adds_no_second_fault(tmp_path: Path) -> None:
    """Below its maximum link_downed tells every drop itself."""
    first = rdma.hca("mlx5_5", slot="0000:ab:00.0") | rdma.up("mlx5_5")
    steps: list[Step] = [(0, first), (1, DOWN_LINE), (2, UP_LINE), (3, DOWN_LINE), (4, UP_LINE),
                         (5, rdma.counter("mlx5_5", "link_downed", 2))]
    for world in both(tmp_path, steps):
        assert world.open == [f"rdma-link-down-logged {PORT}", f"rdma-link-flapping {PORT}"]


def test_c37_cleared_counters_are_a_new_baseline(tmp_path: Path) -> None:
    """No negative growth; the warning ends; one drop after it is one drop."""
    steps = [*c37(), (30.0, counters(2, 0, 10)), (40.0, counters(3, 0, 12))]
    for world in both(tmp_path, steps):
        assert f"30 closed rdma-counter-saturated {PORT}" in world.told
        # 2 up to the maximum and 1 after the reset: what the counter holds after a reset is no growth
        assert world.fault("rdma-link-flapping")["count"] == 2


def test_c37_congestion_is_never_a_fault(tmp_path: Path) -> None:
    """port_xmit_wait at its maximum opens nothing."""
    first = rdma.hca("mlx5_5") | rdma.up("mlx5_5") | rdma.counter("mlx5_5", "port_xmit_wait", 4294967295)
    for world in both(tmp_path, [(0, first), *seconds(1, 30)]):
        assert world.told == []


MEZZ = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")


def c39() -> list[Step]:
    tree: rdma.Patch = {}
    for number, name in enumerate(MEZZ):
        tree |= rdma.refusing(name, "1: DOWN" if number % 2 else "2: INIT")
    tree |= rdma.hca("mlx5_8", "ConnectX-6 Dx", "Ethernet", "eth9", slot="0000:e1:00.0") | rdma.up("mlx5_8", 100)
    tree |= rdma.counter("mlx5_8", "link_downed", 3)
    tree |= rdma.hca("mlx5_10", "ConnectX-6 Dx", "Ethernet") | rdma.disabled("mlx5_10")
    tree["class/infiniband/mlx5_10/device/physfn"] = {"link": "../0000:e1:00.0"}
    return [(0, tree), *seconds(1, 20), (20, rdma.counter("mlx5_8", "link_downed", 4)), *seconds(21, 60)]


REFUSED = ("mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, "
           "status bad operation(0x2), syndrome (0x305684), err(-22)")


def test_c39_ports_that_serve_something_else_raise_nothing(tmp_path: Path) -> None:
    """Functions of the firmware, the default route's NIC with one drop, a virtual function that is DOWN."""
    for world in both(tmp_path, c39()):
        assert world.told == []
        assert world.open == []


def test_c39_a_function_that_refused_is_not_read_again(tmp_path: Path) -> None:
    """One EINVAL, and nothing below that device is asked any more."""
    live = Live(tmp_path)
    steps = c39()
    live.play(steps[:1])
    asked = {name: live.tree.asked_below(name) for name in MEZZ}
    assert all(sum("counters/" in path for path in paths) == 1 for paths in asked.values())
    live.tree.asked.clear()
    live.play(steps[1:])
    assert [name for name in MEZZ if any("ports" in path for path in live.tree.asked_below(name))] == []


def test_c39_an_excluded_device_is_never_read(tmp_path: Path) -> None:
    """Not even once, and nothing is told of it."""
    live = Live(tmp_path, exclude=MEZZ).play(c39())
    assert [name for name in MEZZ if live.tree.asked_below(name)] == []
    told = {series.device for series in live.engine.series.of_signal("rdma_port_role")}
    assert told == {rdma_port("mlx5_8", 1), rdma_port("mlx5_10", 1)}


def test_c39_fifty_lines_are_one_info() -> None:
    """Deduplicated, without effect on the node."""
    played = replay([*c39(), *((60.0, REFUSED) for _ in range(50))])
    assert played.open == [f"rdma-access-refused {pcie('0000:d2:00.0')}"]
    fault = played.fault("rdma-access-refused")
    assert (fault["severity"], fault["effect"], fault["count"]) == ("info", "none", 50)
    assert played.final["effect"] == "none"


def test_c39_the_port_of_the_default_route_is_not_judged(tmp_path: Path) -> None:
    """Live, the routing table tells: neither drops nor a lost link are a fabric's fault."""
    (tmp_path / "proc/1/net").mkdir(parents=True)
    (tmp_path / "proc/1/net/route").write_text(rdma.ROUTES)
    live = Live(tmp_path / "sys", proc=DirectoryTree(tmp_path / "proc"))
    live.play([*c39(), (60, rdma.counter("mlx5_8", "link_downed", 9)), (61, rdma.down("mlx5_8")), *seconds(62, 80)])
    assert live.told == []
    assert live.engine.series.value("rdma_port_role", rdma_port("mlx5_8", 1)) == "host"


def compute(count: int, *down: int) -> rdma.Patch:
    tree: rdma.Patch = {}
    for number in range(count):
        name = f"mlx5_{number}"
        tree |= rdma.hca(name) | (rdma.down(name) if number in down else rdma.up(name))
    return tree


def never_up() -> rdma.Patch:
    card = rdma.hca("mlx5_0", "ConnectX-6 Dx", "Ethernet") | rdma.up("mlx5_0", 100)
    second = rdma.hca("mlx5_1", "ConnectX-6 Dx", "Ethernet", slot=rdma.SLOTS["mlx5_0"][:-1] + "1")
    return card | second | rdma.disabled("mlx5_1")


def test_c40a_a_port_that_was_never_up_is_no_fault(tmp_path: Path) -> None:
    """An unprovisioned second port is DOWN from the first poll on."""
    for world in both(tmp_path, [(0, never_up()), *seconds(1, 60)]):
        assert world.told == []


def test_c40b_its_peers_are_evidence(tmp_path: Path) -> None:
    """Seven of eight are ACTIVE: a warning, without a taint."""
    for world in both(tmp_path, [(0, compute(8, 4)), *seconds(1, 20)]):
        assert world.told == ["0 opened rdma-port-down-among-peers rdma_port/mlx5_4/1"]
        fault = world.fault("rdma-port-down-among-peers")
        assert (fault["severity"], fault["effect"]) == ("warning", "condition")


def test_c40b_few_peers_or_peers_that_are_down_too_are_none(tmp_path: Path) -> None:
    """One of three others is no rule, and four of eight that wait for their cables are no fault."""
    for number, tree in enumerate((compute(3, 1), compute(8, 0, 1, 2, 3), compute(2, 0))):
        for world in both(tmp_path / str(number), [(0, tree), *seconds(1, 20)]):
            assert world.told == []


def test_c40c_a_port_that_was_up_and_is_down_is_critical(tmp_path: Path) -> None:
    """One fault, on a small node too, and although its peers are up; it closes by itself."""
    steps = [(0, compute(8)), (5, rdma.down("mlx5_1")), *seconds(6, 20), (20, rdma.up("mlx5_1")), *seconds(21, 30)]
    for world in both(tmp_path, steps):
        assert world.told == [
            "5 opened rdma-port-down rdma_port/mlx5_1/1", "22 closed rdma-port-down rdma_port/mlx5_1/1"]
        assert (world.rows[0]["severity"], world.rows[0]["effect"]) == ("critical", "noschedule")


def test_c40d_active_without_a_link_is_unhealthy(tmp_path: Path) -> None:
    """The logical state alone is not believed."""
    lying: rdma.Patch = {"class/infiniband/mlx5_0/ports/1/phys_state": "3: Disabled"}
    for world in both(tmp_path, [(0, compute(1) | lying)]):
        assert world.open == ["rdma-port-phys-down rdma_port/mlx5_0/1"]
        assert world.fault("rdma-port-phys-down")["severity"] == "critical"


def test_c40e_after_a_reboot_the_port_that_was_never_up_is_still_none() -> None:
    """And a port that was up before the boot is a fault once the links had time to train."""
    entries: list[dict[str, object]] = [
        {"at": 0, "node": {"name": "n", "uid": "u", "boot_id": "b1"}}, {"at": 0, "sysfs": never_up()},
        {"at": 10, "reboot": {"boot_id": "b2"}}]
    entries += [{"at": at, "sysfs": never_up() if at == 20 else {}} for at in range(20, 700, 10)]
    assert Played(entries).told == []
    entries[3] = {"at": 20, "sysfs": never_up() | rdma.disabled("mlx5_0")}
    assert Played(entries).told == ["310 opened rdma-port-down rdma_port/mlx5_0/1"]


def test_c40e_a_new_boot_on_the_live_node(tmp_path: Path) -> None:
    """The store's memory says what was up; what was not is still no fault."""
    old = Live(tmp_path).play([(0, never_up()), *seconds(1, 5)])
    node = json.loads(json.dumps(memory.node_part(old.engine)))
    live = Live(tmp_path)
    live.engine = Engine(shipped())
    memory.restore(live.engine, node, None, boot_id="b2", node_uid="", now=0.0)
    live.play(seconds(0, 30))
    assert live.told == []


def test_c40f_an_expected_port_that_is_down_is_critical(tmp_path: Path) -> None:
    """The operator's word is evidence enough; so is it for a rate, and for a port that is not there at all."""
    steps = [(0.0, never_up()), *seconds(1, 5)]
    live = Live(tmp_path)
    live.expect({rdma_port("mlx5_0", 1): 200, rdma_port("mlx5_1", 1): None, rdma_port("mlx5_9", 1): None})
    wanted = {"mlx5_0": {"rate_gbps": 200}, "mlx5_1": {}, "mlx5_9": {}}
    for world in (replay(steps, expect=wanted), live.play(steps)):
        assert world.open == [
            "rdma-expected-port-down rdma_port/mlx5_1/1",
            "rdma-port-below-expected-rate rdma_port/mlx5_0/1",
            "rdma-port-disappeared rdma_port/mlx5_9/1",
        ]
        assert {row["severity"] for row in world.rows} == {"critical"}
