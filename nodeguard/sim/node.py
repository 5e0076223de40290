"""A simulated node: its kernel log, its /proc and its /sys, in a temporary directory."""

import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from nodeguard.sim.kernel_log import KernelLogPipe

if TYPE_CHECKING:
    from nodeguard.sim.driver import SimulatedDriver, SimulatedGpu

_FIRST_BUS = 0x1B
_BUS_STEP = 0x11
_SPEEDS = ("2.5", "5.0", "8.0", "16.0", "32.0", "64.0")
"""GT/s by PCIe generation, as the kernel prints them (drivers/pci/probe.c)."""


class SimulatedNode:
    """A node with ``gpus`` GPUs that an agent can be pointed at. A context manager: leaving it removes everything.

    Its files lie in a directory of their own below ``directory`` (None: the system's temporary directory).
    """

    def __init__(self, name: str, gpus: int = 8, *, directory: Path | None = None) -> None:
        self.name = name
        self.boot_id = str(uuid.uuid4())
        self.slots = tuple(f"0000:{_FIRST_BUS + number * _BUS_STEP:02x}:00.0" for number in range(gpus))
        """PCI addresses of the GPUs."""
        self.uuids = tuple(f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{name}/{slot}')}" for slot in self.slots)
        self._directory = tempfile.TemporaryDirectory(prefix="nodeguard-sim-", dir=directory)
        self.root = Path(self._directory.name)
        self.kernel_log: KernelLogPipe | None = None
        self._driver: SimulatedDriver | None = None

    @property
    def log(self) -> KernelLogPipe:
        """The kernel log, once the node is up."""
        if self.kernel_log is None:
            raise RuntimeError("the simulated node is not up: enter its context first")
        return self.kernel_log

    @property
    def settings(self) -> Mapping[str, str]:
        """The agent's settings by name, so that it sees this node and nothing of the machine below."""
        return {"node_name": self.name, "kmsg": str(self.log.path), "proc_root": str(self.proc_root),
                "sys_root": str(self.sys_root), "state_dir": str(self.state_dir),
                "kubelet_root": str(self.root / "kubelet"), "pods_log_root": str(self.root / "pod-logs")}

    @property
    def sys_root(self) -> Path:
        """For ``--sys-root``."""
        return self.root / "sys"

    @property
    def proc_root(self) -> Path:
        """For ``--proc-root``."""
        return self.root / "proc"

    @property
    def state_dir(self) -> Path:
        """For ``--state-dir``."""
        return self.root / "state"

    def __enter__(self) -> Self:
        self._write_boot_id()
        for slot in self.slots:
            self._plug(slot)
        self.refresh()
        self.kernel_log = KernelLogPipe(self.root / "kmsg")
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()
        self._directory.cleanup()

    def reboot(self) -> None:
        """Go on under another boot ID, with an empty kernel log. Whoever follows the old one must have ended."""
        self.boot_id = str(uuid.uuid4())
        self._write_boot_id()
        self.log.close()
        self.kernel_log = KernelLogPipe(self.root / "kmsg")

    def _write_boot_id(self) -> None:
        random = self.proc_root / "sys/kernel/random"
        random.mkdir(parents=True, exist_ok=True)
        (random / "boot_id").write_text(f"{self.boot_id}\n")

    def attach(self, driver: "SimulatedDriver") -> None:
        """Let the bus in ``sys_root`` follow the GPUs of ``driver``: one that leaves its bus disappears.

        ``SimulatedDriver.at(node.slots, node.uuids)`` makes a driver with this node's GPUs.
        """
        self._driver = driver
        driver.on_bus_change(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Write the PCI tree anew from the driver's GPUs, for values that were changed in place (link, kernel driver).

        Before the node is up this does nothing.
        """
        if self._driver is None or not self._devices.exists():
            return
        present = {gpu.pci: gpu for gpu in self._driver.bus}
        for device in self._devices.iterdir():
            if device.name not in present:
                shutil.rmtree(device)
        for slot, gpu in present.items():
            self._plug(slot, gpu)

    @property
    def _devices(self) -> Path:
        return self.sys_root / "bus/pci/devices"

    def _plug(self, slot: str, gpu: "SimulatedGpu | None" = None) -> None:
        device = self._devices / slot
        device.mkdir(parents=True, exist_ok=True)
        files = {"vendor": "0x10de", "class": "0x030200", "device": "0x2330",
                 "numa_node": str(gpu.numa_node if gpu else 0)}
        if gpu is not None and gpu.pcie is not None:
            link = gpu.pcie
            files |= {
                "current_link_speed": f"{_SPEEDS[link.generation - 1]} GT/s PCIe",
                "max_link_speed": f"{_SPEEDS[link.generation_max - 1]} GT/s PCIe",
                "current_link_width": str(link.width), "max_link_width": str(link.width_max)}
        for name, text in files.items():
            (device / name).write_text(f"{text}\n")
        self._bind(device, gpu.driver_name if gpu else "nvidia")

    def _bind(self, device: Path, driver: str) -> None:
        """The link to the kernel driver that holds the device; none while it is bound to none."""
        link = device / "driver"
        link.unlink(missing_ok=True)
        if driver:
            (self.sys_root / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path("../../drivers") / driver)
