"""The simulated node's PCI tree, alone and following a simulated driver."""

from pathlib import Path

from nodeguard.config.settings import resolve_agent_settings
from nodeguard.sim.driver import SimulatedDriver
from nodeguard.sim.node import SimulatedNode


def shown(node: SimulatedNode) -> list[str]:
    return sorted(path.name for path in (node.sys_root / "bus/pci/devices").iterdir())


def test_a_node_shows_its_gpus_without_a_driver() -> None:
    """Each slot is a 3D controller of NVIDIA bound to its driver."""
    with SimulatedNode("gpu-1", gpus=2) as node:
        assert shown(node) == sorted(node.slots)
        device = node.sys_root / "bus/pci/devices" / node.slots[0]
        assert (device / "driver").resolve().name == "nvidia"
        assert ((device / "vendor").read_text(), (device / "class").read_text()) == ("0x10de\n", "0x030200\n")


def test_the_tree_follows_the_drivers_bus() -> None:
    """A GPU that leaves the bus disappears and comes back; one that NVML calls lost is still shown."""
    with SimulatedNode("gpu-1", gpus=3) as node:
        driver = SimulatedDriver.at(node.slots, node.uuids)
        node.attach(driver)
        assert [gpu.uuid for gpu in driver.gpus] == list(node.uuids)
        driver.gpus[0].lose()
        driver.remove(driver.gpus[1])
        assert shown(node) == sorted((node.slots[0], node.slots[2]))
        driver.insert(driver.gpus[1])
        assert shown(node) == sorted(node.slots)


def test_values_of_a_gpu_are_shown_after_a_refresh() -> None:
    """NUMA node, link and the kernel driver that holds it (C20e: passed to a guest)."""
    with SimulatedNode("gpu-1", gpus=1) as node:
        driver = SimulatedDriver.at(node.slots, node.uuids)
        node.attach(driver)
        gpu = driver.gpus[0]
        assert gpu.pcie is not None
        gpu.numa_node, gpu.driver_name, gpu.pcie.generation, gpu.pcie.width = 1, "vfio-pci", 2, 8
        node.refresh()
        device = node.sys_root / "bus/pci/devices" / node.slots[0]
        texts = {name: (device / name).read_text() for name in (
            "numa_node", "current_link_speed", "max_link_speed", "current_link_width")}
        assert texts == {"numa_node": "1\n", "current_link_speed": "5.0 GT/s PCIe\n",
                         "max_link_speed": "32.0 GT/s PCIe\n", "current_link_width": "8\n"}
        assert (device / "driver").resolve().name == "vfio-pci"


def test_the_settings_point_an_agent_at_this_node_only(tmp_path: Path) -> None:
    """Every path is the node's own, below the directory that was asked for, and gone afterwards."""
    with SimulatedNode("gpu-1", gpus=1, directory=tmp_path) as node:
        settings = dict(node.settings)
        assert settings.pop("node_name") == "gpu-1"
        assert all(Path(path).is_relative_to(tmp_path) for path in settings.values())
        assert resolve_agent_settings(node.settings, {}).kmsg == node.log.path
    assert list(tmp_path.iterdir()) == []


def test_a_reboot_gives_another_boot_id_and_an_empty_kernel_log() -> None:
    """Records are numbered from 0 again, and the old ones are gone."""
    with SimulatedNode("gpu-1", gpus=1) as node:
        before = node.boot_id
        assert [node.log.write("one"), node.log.write("two")] == [0, 1]
        node.reboot()
        told = (node.proc_root / "sys/kernel/random/boot_id").read_text().strip()
        assert told == node.boot_id != before
        assert node.log.write("three") == 0
        with node.log.path.open("rb") as log:
            assert log.readline().endswith(b";three\n")
