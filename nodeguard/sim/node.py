"""A simulated node: its kernel log, its /proc and its /sys, in a temporary directory."""

import tempfile
import uuid
from pathlib import Path
from typing import Self

from nodeguard.sim.kernel_log import KernelLogPipe

_FIRST_BUS = 0x1B
_BUS_STEP = 0x11


class SimulatedNode:
    """A node with ``gpus`` GPUs that an agent can be pointed at. A context manager: leaving it removes everything."""

    def __init__(self, name: str, gpus: int = 8) -> None:
        self.name = name
        self.boot_id = str(uuid.uuid4())
        self.slots = tuple(f"0000:{_FIRST_BUS + number * _BUS_STEP:02x}:00.0" for number in range(gpus))
        """PCI addresses of the GPUs."""
        self.uuids = tuple(f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{name}/{slot}')}" for slot in self.slots)
        self._directory = tempfile.TemporaryDirectory(prefix="nodeguard-sim-")
        self.root = Path(self._directory.name)
        self.kernel_log: KernelLogPipe | None = None

    @property
    def log(self) -> KernelLogPipe:
        """The kernel log, once the node is up."""
        if self.kernel_log is None:
            raise RuntimeError("the simulated node is not up: enter its context first")
        return self.kernel_log

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
        random = self.proc_root / "sys/kernel/random"
        random.mkdir(parents=True)
        (random / "boot_id").write_text(f"{self.boot_id}\n")
        for slot in self.slots:
            device = self.sys_root / "bus/pci/devices" / slot
            device.mkdir(parents=True)
            (device / "vendor").write_text("0x10de\n")
            (device / "class").write_text("0x030200\n")
        self.kernel_log = KernelLogPipe(self.root / "kmsg")
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()
        self._directory.cleanup()
