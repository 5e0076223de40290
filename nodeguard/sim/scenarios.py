"""What the demo can break on a simulated node, and what mends it."""

from collections.abc import Callable
from dataclasses import dataclass

from nodeguard.sim.driver import SimulatedDriver
from nodeguard.sim.node import SimulatedNode

Deed = Callable[[SimulatedNode, SimulatedDriver, int], None]
"""Done to the GPU at an index. A function of a module, so that it can be sent to the node's process by name."""


_POWER_BRAKE = 0x80
"""nvmlClocksEventReasonHwPowerBrakeSlowdown (nvml.h)."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing that breaks. ``mend`` None: what mends it (a reboot, a minute of cooling) is not simulated."""

    title: str
    breaks: Deed
    condition: str
    """The condition type that becomes True."""
    taint: bool
    mend_title: str = ""
    mend: Deed | None = None


def print_inventory(node: SimulatedNode, _driver: SimulatedDriver, gpu: int) -> None:
    """The driver prints a GPU's slot and UUID, as before its first Xid (open-gpu-kernel-modules, kernel_rc.c)."""
    node.log.write(f"NVRM: GPU at PCI:{node.slots[gpu].removesuffix('.0')}: {node.uuids[gpu]}")


def _ecc(node: SimulatedNode, _driver: SimulatedDriver, gpu: int) -> None:
    node.log.xid(node.slots[gpu], 95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No", 7062, "python3")


def _reset(node: SimulatedNode, _driver: SimulatedDriver, gpu: int) -> None:
    change = "GPU recovery action changed from"
    node.log.xid(node.slots[gpu], 154, f"{change} 0x0 (None) to 0x1 (GPU Reset Required)")
    node.log.xid(node.slots[gpu], 154, f"{change} 0x1 (GPU Reset Required) to 0x0 (None)")


def _lost(node: SimulatedNode, driver: SimulatedDriver, gpu: int) -> None:
    driver.gpus[gpu].lose()
    node.log.xid(node.slots[gpu], 79, "GPU has fallen off the bus.", 7062, "python3")


def _gone(_node: SimulatedNode, driver: SimulatedDriver, gpu: int) -> None:
    driver.remove(driver.gpus[gpu])


def _hang(_node: SimulatedNode, driver: SimulatedDriver, gpu: int) -> None:
    driver.gpus[gpu].hang()


def _answer(_node: SimulatedNode, driver: SimulatedDriver, gpu: int) -> None:
    driver.gpus[gpu].heal()


def _hot(_node: SimulatedNode, driver: SimulatedDriver, gpu: int) -> None:
    driver.gpus[gpu].temperature = max(driver.gpus[gpu].thresholds.values()) - 1


def _needs_reset(_node: SimulatedNode, driver: SimulatedDriver, gpu: int) -> None:
    driver.gpus[gpu].recovery_action = 1


def _was_reset(_node: SimulatedNode, driver: SimulatedDriver, gpu: int) -> None:
    driver.gpus[gpu].reset()


def _brake(_node: SimulatedNode, driver: SimulatedDriver, gpu: int) -> None:
    driver.gpus[gpu].clock_events = _POWER_BRAKE

SCENARIOS = {
    "ecc": Scenario("an uncontained memory error: Xid 95 in the kernel log", _ecc, "GpuMemoryFault", taint=True,
                    mend_title="the GPU is reset: Xid 154, recovery action back to None", mend=_reset),
    "xid79": Scenario("the GPU falls off the bus: Xid 79, and NVML says that it is lost", _lost, "GpuLost", taint=True),
    "gone": Scenario("the GPU leaves the PCI bus, and nothing says a word", _gone, "GpuLost", taint=True),
    "hang": Scenario("every driver call on the GPU hangs", _hang, "GpuDriverFault", taint=False,
                     mend_title="the driver answers again", mend=_answer),
    "reset": Scenario("the driver's recovery action is GPU reset, and no event told it", _needs_reset,
                      "GpuRecoveryRequired", taint=True,
                      mend_title="the GPU is reset: recovery action back to None", mend=_was_reset),
    "hot": Scenario("the GPU is hotter than its own shutdown limit allows", _hot, "GpuThermal", taint=True),
    "brake": Scenario("the power supply holds the GPU's clocks down", _brake, "GpuPowerBrake", taint=False),
}
"""By the name that ``--scenario`` takes."""
