"""Cases from the field that NVML tells, by their numbers: states and masks that are a fault, or only look like one.

Real pynvml, the source, the shipped rules; the masks bit by bit are in the vendor's tests under the same numbers.
"""

import pynvml
import pytest

from nodeguard.sim.driver import Link, SimulatedDriver

from .nvml_rig import rig

BRAKE, THERMAL, SLOWDOWN = 0x80, 0x40, 0x8


def test_c27_reset_required_without_an_event() -> None:
    """A recovery action that stands when the agent starts, or a query that asks for a reset; an older driver's none."""
    def before(driver: SimulatedDriver) -> None:
        driver.gpus[0].recovery_action = 1
        driver.gpus[1].fail("nvmlDeviceGetTemperatureV", pynvml.NVML_ERROR_RESET_REQUIRED)
        driver.gpus[2].recovery_action = None

    with rig(prepare=before) as node:
        assert node.open_rules() == {("gpu-recovery-reset", node.device(0)), ("gpu-recovery-reset", node.device(1))}
        assert {(fault.severity, fault.action, fault.effect) for fault in node.engine.intent().faults} == {
            ("critical", "reset_gpu", "noschedule")}
        assert node.engine.series.value("gpu_recovery_action", node.device(2)) is None


@pytest.mark.parametrize("mask", [0x1, 0x4, 0x2 | 0x100, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF])
def test_c29abcg_what_is_normal_or_unknown(mask: int) -> None:
    """Idle, the power cap at full load, an operator's settings, and blanks."""
    with rig() as node:
        node.driver.gpus[0].clock_events, node.driver.gpus[0].utilization_percent = mask, 100
        node.poll(10)
        assert node.told == []


def test_c29d_a_power_brake_of_three_samples() -> None:
    """One sample says nothing; three are a warning, which neither taints nor evicts."""
    with rig() as node:
        card = node.driver.gpus[1]
        card.clock_events = BRAKE
        node.poll()
        card.clock_events = 0
        node.poll(3)
        assert node.told == []
        card.clock_events = BRAKE
        node.poll(3)
        (fault,) = node.engine.intent().faults
        assert (fault.rule, fault.device, fault.severity) == ("gpu-power-brake", node.device(1), "warning")
        assert node.engine.intent().taint is None


def test_c29e_hardware_slowdown_by_heat() -> None:
    """The thermal bit beside the union of all hardware slowdowns, close to the limit."""
    with rig() as node:
        card = node.driver.gpus[1]
        card.clock_events, card.temperature = SLOWDOWN | THERMAL, 88
        node.poll(4)
        assert node.open_rules() == {("gpu-thermal-slowdown", node.device(1))}
        card.clock_events, card.temperature = SLOWDOWN, 60
        node.poll(62)
        assert node.open_rules() == set()


def test_c29f_a_gap_neither_counts_nor_resets() -> None:
    """Two brakes with an unanswered poll between them are two; the third known one opens."""
    with rig() as node:
        card = node.driver.gpus[1]
        card.clock_events = BRAKE
        node.poll()
        card.fail("nvmlDeviceGetCurrentClocksEventReasons", pynvml.NVML_ERROR_TIMEOUT)
        node.poll()
        card.heal()
        node.poll()
        assert node.open_rules() == set()
        node.poll()
        assert node.open_rules() == {("gpu-power-brake", node.device(1))}


def test_c30a_links_that_never_were_up() -> None:
    """A PCIe card without a bridge has twelve, all inactive since first sight."""
    def bridgeless(driver: SimulatedDriver) -> None:
        driver.gpus[0].links = [Link(active=False) for _ in range(12)]

    with rig(prepare=bridgeless) as node:
        node.poll(65)
        assert node.open_rules() == set()


def test_c30b_a_link_that_was_up_is_down() -> None:
    """Critical; it ends when the link is back."""
    with rig() as node:
        node.driver.gpus[0].links[4].active = False
        node.poll(31)
        (fault,) = node.engine.intent().faults
        assert (fault.rule, fault.device, fault.severity) == ("gpu-nvlink-down", node.device(0), "critical")
        node.driver.gpus[0].links[4].active = True
        node.poll(121)
        assert node.open_rules() == set()


def test_c30c_links_that_never_were_up_where_they_should_be() -> None:
    """All down from first sight is a condition where the operator says how many should be up."""
    def unplugged(driver: SimulatedDriver) -> None:
        driver.gpus[0].links = [Link(active=False) for _ in range(18)]

    with rig(prepare=unplugged, nvlinks=18) as node:
        node.poll(65)
        assert node.open_rules() == {("gpu-nvlinks-missing", node.device(0))}
        (fault,) = node.engine.intent().faults
        assert (fault.effect, fault.condition) == ("condition", "NvlinkFault")


@pytest.mark.parametrize(("status", "mask", "rules"), [
    (0, 0x80, set()), (0, 0x1 << 2, {"gpu-fabric-unhealthy", "gpu-fabric-part-at-fault"}),
    (pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES, 0x1AA, {"gpu-fabric-unhealthy"})])
def test_c30def_the_fabrics_health(status: int, mask: int, rules: set[str]) -> None:
    """A mask of "explicitly healthy" is no fault, a part at fault is one, and so is a registration that failed."""
    with rig() as node:
        fabric = node.driver.gpus[0].fabric
        assert fabric is not None
        fabric.status, fabric.health_mask = status, mask
        node.poll(65)
        assert node.open_rules() == {(rule, node.device(0)) for rule in rules}


def test_c30g_a_single_node_without_imex() -> None:
    """Eight GPUs with a fabric that does not start, because nothing beyond the node is meant to be joined."""
    def single(driver: SimulatedDriver) -> None:
        for one in driver.gpus:
            assert one.fabric is not None
            one.fabric.state, one.fabric.health_mask = pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED, 0

    with rig(8, prepare=single) as node:
        node.poll(65)
        assert node.open_rules() == set()
