"""What the demo can break on a simulated node, and what mends it."""

from collections.abc import Callable
from dataclasses import dataclass

from nodeguard.sim import rdma
from nodeguard.sim.driver import SimulatedDriver
from nodeguard.sim.node import SimulatedNode

Deed = Callable[[SimulatedNode, SimulatedDriver, int], None]
"""Done to the GPU at an index. A function of a module, so that it can be sent to the node's process by name."""


_POWER_BRAKE = 0x80
"""nvmlClocksEventReasonHwPowerBrakeSlowdown (nvml.h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One thing that breaks. ``mend`` None: what mends it (a new cable, a minute of cooling) is not simulated."""

    title: str
    breaks: Deed
    condition: str
    """The condition type that becomes True."""
    effect: str
    """The strongest effect of the faults that it opens: ``condition``, ``noschedule`` or ``evict``."""
    part: str = "GPU"
    """What breaks, for people; its number follows."""
    prepare: Deed | None = None
    """Done on every node before its agent starts."""
    overrides: str = ""
    """Overrides of the shipped rules (YAML), where one would take longer than a demo."""
    note: str = ""
    """What is to be known about it, said at the end."""
    mend_title: str = ""
    mend: Deed | None = None
    reboot: bool = False
    """The node reboots while it is mended."""

    @property
    def taint(self) -> bool:
        """Whether the agent's taint keeps new pods away."""
        return self.effect in ("noschedule", "evict")


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


def _found(_node: SimulatedNode, driver: SimulatedDriver, gpu: int) -> None:
    driver.gpus[gpu].heal()


def _gone(_node: SimulatedNode, driver: SimulatedDriver, gpu: int) -> None:
    driver.remove(driver.gpus[gpu])


def _back(_node: SimulatedNode, driver: SimulatedDriver, gpu: int) -> None:
    driver.insert(driver.gpus[gpu])


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


def _cable(node: SimulatedNode, _driver: SimulatedDriver, _gpu: int) -> None:
    rdma.apply(node.sys_root, rdma.healthy_node())


def _flap(node: SimulatedNode, _driver: SimulatedDriver, gpu: int) -> None:
    rdma.apply(node.sys_root, rdma.counter(rdma.COMPUTE[gpu], "link_downed", 2))


_HUNG_SOON = """
apiVersion: nodeguard.io/v1
kind: Overrides
overrides:
- {rule: gpu-driver-hung, above: 2, message: "the NVIDIA driver has not answered for {device} for more than 2 s"}
"""

SCENARIOS = {
    "ecc": Scenario(
        title="an uncontained memory error: Xid 95 in the kernel log", breaks=_ecc, condition="GpuMemoryFault",
        effect="evict", mend=_reset, mend_title="the GPU is reset: Xid 154, recovery action back to None"),
    "xid79": Scenario(
        title="the GPU falls off the bus: Xid 79, and NVML says that it is lost", breaks=_lost, condition="GpuLost",
        effect="evict", mend=_found, reboot=True,
        mend_title="the node reboots (imitated): its agent ends and starts again under a new boot ID"),
    "gone": Scenario(
        title="the GPU leaves the PCI bus, and nothing says a word", breaks=_gone, condition="GpuLost",
        effect="evict", mend=_back, reboot=True,
        mend_title="the node reboots (imitated), and the GPU is on its bus again"),
    "hang": Scenario(
        title="every driver call on the GPU hangs", breaks=_hang, condition="GpuDriverFault", effect="noschedule",
        overrides=_HUNG_SOON, mend=_answer, mend_title="the driver answers again",
        note="an override makes the rule gpu-driver-hung wait 2 s here; as shipped it waits 10 s before it taints"),
    "reset": Scenario(
        title="the driver's recovery action is GPU reset, and no event told it", breaks=_needs_reset,
        condition="GpuRecoveryRequired", effect="noschedule", mend=_was_reset,
        mend_title="the GPU is reset: recovery action back to None"),
    "hot": Scenario(
        title="the GPU is hotter than its own shutdown limit allows", breaks=_hot, condition="GpuThermal",
        effect="noschedule"),
    "brake": Scenario(
        title="the power supply holds the GPU's clocks down", breaks=_brake, condition="GpuPowerBrake",
        effect="condition"),
    "rdma-flap": Scenario(
        title="the InfiniBand link drops twice between two polls: link_downed grows by 2", breaks=_flap,
        condition="RdmaLinkFlapping", effect="condition", part="the adapter beside GPU", prepare=_cable,
        note="the condition goes after 15 minutes without another drop"),
}
"""By the name that ``--scenario`` takes."""
