"""A simulated NVIDIA driver below real pynvml, at NVML's C interface.

    with SimulatedDriver(8) as driver:
        driver.gpus[2].temperature = 96
        driver.gpus[5].fail("nvmlDeviceGetTemperature", pynvml.NVML_ERROR_GPU_IS_LOST)

pynvml's own code runs: its structs, its error classes, its cache of functions. Only the shared library is replaced,
by an object whose attributes have the C functions' names, fill the arguments as the C functions do and return NVML's
codes. The shapes are those of nvml.h as the bindings declare them.
"""

from nodeguard.sim.driver.driver import SimulatedDriver
from nodeguard.sim.driver.faults import Hang
from nodeguard.sim.driver.gpu import Link, MigInstance, SimulatedGpu

__all__ = ["Hang", "Link", "MigInstance", "SimulatedDriver", "SimulatedGpu"]
