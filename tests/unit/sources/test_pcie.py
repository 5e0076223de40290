"""The PCI bus: whose errors are counted, what a link can do, and who is whose neighbour."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from nodeguard.model.device import Device
from nodeguard.model.sample import Affinity, Batch, Missed, SourceState, Value
from nodeguard.sim import pcie as sim
from nodeguard.sources.pcie import PciePoll
from nodeguard.sources.recording.tree import RecordedTree
from nodeguard.sources.tree import DirectoryTree

NVIDIA, MELLANOX = ("0x10de", "0x030200"), ("0x15b3", "0x020700")
SWITCH = ("pci0000:3a", "0000:3a:01.0", "0000:3b:00.0", "0000:3c:08.0")


def tree(*entries: Mapping[str, object]) -> RecordedTree:
    found = RecordedTree()
    for entry in entries:
        found.patch(entry, pytest.fail)
    return found


def readings(batch: Batch) -> dict[str, Value | None]:
    return {f"{one.device} {one.signal}": one.value for one in batch.samples}


def hca(name: str, below: tuple[str, ...] = (), called: str = "mlx5_0", files: Mapping[str, str] | None = None,
        ) -> Mapping[str, object]:
    return sim.function(name, *MELLANOX, {f"infiniband/{called}/ports/1/state": "4: ACTIVE", **(files or {})},
                        below=below)


@pytest.mark.parametrize(("vendor", "code", "device"), [
    ("0x10de", "0x030200", "gpu/0000:3b:00.0"), ("0x10de", "0x030000", "gpu/0000:3b:00.0"),
    ("0x10de", "0x068000", "nvswitch/0000:3b:00.0"), ("0x1002", "0x120000", "gpu/0000:3b:00.0"),
    ("0x1002", "0x038000", "gpu/0000:3b:00.0"), ("0x8086", "0x038000", "gpu/0000:3b:00.0"),
    ("0x19e5", "0x120000", "gpu/0000:3b:00.0"), ("0x10de", "0x040300", None), ("0x8086", "0x030000", None),
    ("0x1a03", "0x030000", None), ("0x8086", "0x060400", None), ("0x15b3", "0x020700", None),
])
def test_errors_of_accelerators_of_every_brand_are_counted(vendor: str, code: str, device: str | None) -> None:
    """A GPU's sound function, a display chip, a bridge, and an adapter without a driver are nobody's business."""
    poll = PciePoll(tree(sim.function("0000:3b:00.0", vendor, code, sim.aer(correctable=7, fatal=1))))
    found = readings(poll.poll(0))
    assert found.pop("node pcie_function_count") == (device is not None)
    wanted = {"correctable": 7, "nonfatal": None, "fatal": 1} if device else {}
    assert found == {f"{device} pcie_aer_{severity}_total": count for severity, count in wanted.items()}


@pytest.mark.parametrize("text", ["", "TOTAL_ERR_FATAL x", "TOTAL_ERR_FATAL -1", "RxErr 3", "TOTAL_ERR_FATAL 1 2"])
def test_a_count_that_cannot_be_read_is_unknown(text: str) -> None:
    """And is no zero."""
    poll = PciePoll(tree(sim.function("0000:3b:00.0", *NVIDIA, {"aer_dev_fatal": text})))
    assert readings(poll.poll(0))["gpu/0000:3b:00.0 pcie_aer_fatal_total"] is None


def test_a_card_with_two_functions_is_one_device() -> None:
    """Their errors are added up; virtual functions are left out."""
    poll = PciePoll(tree(
        hca("0000:3b:00.0", files=sim.aer(correctable=2)), hca("0000:3b:00.1", files=sim.aer(correctable=3)),
        hca("0000:3b:00.2", files={"physfn": "x", **sim.aer(correctable=9)})))
    assert readings(poll.poll(0))["pcie/0000:3b:00.0 pcie_aer_correctable_total"] == 5


def test_what_is_possible_is_what_both_ends_can_do() -> None:
    """The slot's port is the function right above the card in its path."""
    above = ("pci0000:3a", "0000:3a:01.0")
    port = sim.function("0000:3a:01.0", "0x8086", "0x060400", sim.link("16.0", 8, "16.0", 8))
    poll = PciePoll(tree(port, hca("0000:3b:00.0", above, files=sim.link("16.0", 4, "32.0", 16))))
    found = readings(poll.poll(0))
    assert {name.rpartition("_link_")[2]: value for name, value in found.items() if "_link_" in name} == {
        "generation": 4, "generation_max": 4, "width": 4, "width_max": 8}


def test_a_virtual_link_is_unknown() -> None:
    """It has no speed that says anything, and as many lanes as the register holds."""
    files = {"current_link_speed": "Unknown", "current_link_width": "0", "max_link_speed": "", "max_link_width": "255"}
    found = readings(PciePoll(tree(hca("0000:3b:00.0", files=files))).poll(0))
    assert {value for name, value in found.items() if "_link_" in name} == {None}


def test_an_accelerators_link_is_its_drivers_to_tell() -> None:
    """It slows its link down when idle, and only the driver knows the load."""
    poll = PciePoll(tree(sim.function("0000:3b:00.0", *NVIDIA, sim.link("2.5", 16))))
    assert not [name for name in readings(poll.poll(0)) if "_link_" in name]


def test_neighbours_share_the_longest_way_up() -> None:
    """An adapter and its ports name the GPUs behind the same bridge; told once, and again when it changes."""
    deep, other = (*SWITCH, "0000:3d:00.0"), ("pci0000:5a", "0000:5a:01.0")
    world = tree(
        sim.function("0000:3e:00.0", *NVIDIA, below=deep), sim.function("0000:3f:00.0", *NVIDIA, below=SWITCH),
        sim.function("0000:5b:00.0", *NVIDIA, below=other), hca("0000:40:00.0", deep),
        hca("0000:41:00.0", ("pci0000:3a", "0000:3a:09.0"), "mlx5_9"))
    poll = PciePoll(world)
    near = (Device("gpu/0000:3e:00.0"),)
    assert poll.poll(0).facts == (
        Affinity({Device("pcie/0000:40:00.0"): near, Device("rdma_port/mlx5_0/1"): near}),)
    assert poll.poll(30).facts == ()
    world.patch({f"{sim.BUS}/0000:40:00.0": None}, pytest.fail)
    assert poll.poll(60).facts == (Affinity({}),)


def test_the_same_from_a_directory(tmp_path: Path) -> None:
    """Real links and files, as the kernel has them."""
    sim.write(tmp_path, sim.function("0000:3e:00.0", *NVIDIA, sim.aer(fatal=3), below=SWITCH))
    sim.write(tmp_path, hca("0000:40:00.0", SWITCH, files=sim.link("32.0", 16)))
    batch = PciePoll(DirectoryTree(tmp_path)).poll(0)
    assert readings(batch)["gpu/0000:3e:00.0 pcie_aer_fatal_total"] == 3
    assert readings(batch)["pcie/0000:40:00.0 pcie_link_width"] == 16
    (fact,) = batch.facts
    assert isinstance(fact, Affinity)
    assert fact.near[Device("rdma_port/mlx5_0/1")] == ("gpu/0000:3e:00.0",)


def test_no_bus_is_nothing_to_tell_and_a_broken_one_is_blindness() -> None:
    """A machine without PCI has no errors; one that cannot be read says that it sees nothing."""
    assert readings(PciePoll(tree()).poll(0)) == {"node pcie_function_count": 0}
    broken = PciePoll(tree({sim.BUS: {"error": "EIO"}})).poll(0)
    assert [type(fact) for fact in broken.facts] == [SourceState, Missed]
    assert not broken.samples


def test_a_function_that_cannot_be_read_costs_itself() -> None:
    """The next one is read all the same."""
    world = tree(sim.function("0000:3b:00.0", *NVIDIA), sim.function("0000:5e:00.0", *NVIDIA, sim.aer(fatal=1)))
    world.patch({f"{sim.BUS}/0000:3b:00.0/vendor": {"error": "EIO"}, f"{sim.BUS}/notes": "x"}, pytest.fail)
    assert readings(PciePoll(world).poll(0))["gpu/0000:5e:00.0 pcie_aer_fatal_total"] == 1
