"""What the demo can break on a simulated node, and what mends it."""

from collections.abc import Callable
from dataclasses import dataclass

from nodeguard.sim.driver import SimulatedDriver
from nodeguard.sim.node import SimulatedNode

GPU = 3
"""Which of the node's GPUs breaks."""

Deed = Callable[[SimulatedNode, SimulatedDriver], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing that breaks. ``mend`` None: what mends it (a reboot, half an hour of cooling) is not simulated."""

    title: str
    breaks: Deed
    condition: str
    """The condition type that becomes True."""
    taint: bool
    mend_title: str = ""
    mend: Deed | None = None


def _slot(node: SimulatedNode) -> str:
    return node.slots[GPU]


def _ecc(node: SimulatedNode, _driver: SimulatedDriver) -> None:
    node.log.xid(_slot(node), 95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No", 7062, "python3")


def _reset(node: SimulatedNode, _driver: SimulatedDriver) -> None:
    change = "GPU recovery action changed from"
    node.log.xid(_slot(node), 154, f"{change} 0x0 (None) to 0x1 (GPU Reset Required)")
    node.log.xid(_slot(node), 154, f"{change} 0x1 (GPU Reset Required) to 0x0 (None)")


def _lost(node: SimulatedNode, driver: SimulatedDriver) -> None:
    driver.gpus[GPU].lose()
    node.log.xid(_slot(node), 79, "GPU has fallen off the bus.", 7062, "python3")


def _hang(_node: SimulatedNode, driver: SimulatedDriver) -> None:
    driver.gpus[GPU].hang()


def _answer(_node: SimulatedNode, driver: SimulatedDriver) -> None:
    driver.gpus[GPU].heal()


def _hot(_node: SimulatedNode, driver: SimulatedDriver) -> None:
    driver.gpus[GPU].temperature = max(driver.gpus[GPU].thresholds.values()) - 1


SCENARIOS = {
    "ecc": Scenario("an uncontained memory error: Xid 95 in the kernel log", _ecc, "GpuMemoryFault", taint=True,
                    mend_title="the GPU is reset: Xid 154, recovery action back to None", mend=_reset),
    "xid79": Scenario("the GPU falls off the bus: Xid 79, and NVML says that it is lost", _lost, "GpuLost", taint=True),
    "hang": Scenario("every driver call on the GPU hangs", _hang, "GpuDriverFault", taint=True,
                     mend_title="the driver answers again", mend=_answer),
    "hot": Scenario("the GPU is hotter than its own shutdown limit allows", _hot, "GpuThermal", taint=True),
}
"""By the name that ``--scenario`` takes."""
