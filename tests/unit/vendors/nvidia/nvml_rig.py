"""One simulated GPU and the façade above it."""

from collections.abc import Callable
from typing import Any

from nodeguard.sim.driver import SimulatedDriver, SimulatedGpu
from nodeguard.vendors.nvidia.nvml import Nvml
from nodeguard.vendors.nvidia.nvml_device import Gpu, Reading


class Rig:
    """One simulated GPU and a façade that is open above it."""

    def __init__(self, driver: SimulatedDriver) -> None:
        self.driver = driver
        self.gpu: SimulatedGpu = driver.gpus[0]
        self.nvml = Nvml()
        self.nvml.open()
        self.listed: Gpu = self.nvml.gpus().gpus[0]

    def fast(self) -> Reading:
        return self.nvml.fast(self.listed)

    def slow(self) -> Reading:
        return self.nvml.slow(self.listed)

    def values(self) -> dict[str, Any]:
        """Every value of both tiers, by signal and label."""
        samples = (*self.slow().samples, *self.fast().samples)
        return {" ".join((one.signal, *(value for _, value in one.labels))): one.value for one in samples}

    def calls(self, read: Callable[[], Reading]) -> int:
        self.driver.calls.clear()
        read()
        return sum(self.driver.calls.values())
