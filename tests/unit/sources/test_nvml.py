"""The NVML source through real pynvml: each fault right by the shipped rules, each cleared by its own evidence.

Covered here: healthy, values, lost and missing GPUs, calls that hang, a driver that is missing, mismatched, late or
reloaded, quiesce.
"""

from collections.abc import Iterator

import pynvml
import pytest

from nodeguard.model.device import NODE, gpu
from nodeguard.model.sample import Present, SourceState
from nodeguard.sim.driver import SimulatedDriver

from .nvml_rig import Rig, rig


def test_a_healthy_node_is_silent() -> None:
    """Two minutes of a healthy node open no fault and leave no signal of a GPU unread."""
    with rig() as node:
        node.poll(120)
        assert node.open_rules() == set()
        assert node.engine.series.value("gpu_temperature_celsius", node.device(0)) == 35
        assert node.engine.series.value("gpu_count", NODE) == 4
        assert node.engine.intent().effect == "none"


def test_hot_against_its_own_limit_and_cool_again() -> None:
    """The limit is the device's own, and coolness clears it."""
    with rig() as node:
        node.driver.gpus[1].temperature = node.driver.gpus[1].thresholds[pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN] - 2
        node.poll(12)
        assert node.open_rules() == {("gpu-hot", node.device(1))}
        node.driver.gpus[1].temperature = 40
        node.poll(63)
        assert node.open_rules() == set()


def test_uncorrectable_ecc_until_the_reset() -> None:
    """One more uncorrectable error opens; the recovery action's way back to 0 is the evidence of the reset."""
    with rig() as node:
        bad = node.driver.gpus[0]
        assert bad.ecc is not None
        bad.ecc.uncorrected_volatile += 1
        bad.recovery_action = 1
        node.poll(31)
        assert ("gpu-ecc-uncorrected", node.device(0)) in node.open_rules()
        bad.reset()
        node.poll(31)
        assert node.open_rules() == set()


def test_remap_pending_and_failed() -> None:
    """A pending remap ends with the reset; a failed one with another GPU only."""
    with rig() as node:
        first, second = node.driver.gpus[0].remap, node.driver.gpus[1].remap
        assert first is not None
        assert second is not None
        first.pending, second.failed = 1, 1
        node.poll(31)
        assert node.open_rules() == {
            ("gpu-row-remap-pending", node.device(0)), ("gpu-row-remap-failed", node.device(1))}
        node.driver.gpus[0].reset()
        second.failed = 0
        node.poll(61)
        assert node.open_rules() == {("gpu-row-remap-failed", node.device(1))}


def test_c19_one_of_eight_is_lost_and_the_others_are_read() -> None:
    """GPU_IS_LOST on every call of one GPU is one fault on it; the taint holds the node; the others are polled."""
    with rig(8) as node:
        node.driver.gpus[3].lose()
        node.poll(3)
        assert node.open_rules() == {("gpu-lost", node.device(3))}
        assert node.engine.intent().taint == "GpuLost"
        node.driver.gpus[5].temperature = 51
        node.poll()
        assert node.engine.series.value("gpu_temperature_celsius", node.device(5)) == 51


def test_c19_the_handle_itself_cannot_be_had() -> None:
    """A listing in which one handle fails names the GPU that is missing from it."""
    with rig(8) as node:
        node.driver.gpus[3].fail("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_UNKNOWN)
        node.source.poll_all()
        node.poll(2)
        assert ("gpu-lost", node.device(3)) in node.open_rules()
        assert len(node.open_rules()) == 1


def test_every_gpu_is_lost() -> None:
    """Eight lost GPUs are eight faults, and the source still answers."""
    with rig(8) as node:
        for one in node.driver.gpus:
            one.lose()
        node.poll(3)
        assert node.open_rules() == {("gpu-lost", node.device(index)) for index in range(8)}


def test_gone_from_the_bus_without_a_line() -> None:
    """A GPU that leaves the PCI bus is lost, although nobody printed anything and NVML still lists it."""
    with rig() as node:
        node.driver.remove(node.driver.gpus[2])
        node.poll(2)
        assert ("gpu-lost", node.device(2)) in node.open_rules()


def test_c20_on_the_bus_but_not_in_the_driver() -> None:
    """sysfs shows four GPUs, NVML three: the fourth is named by its address; one passed to a guest is no fault."""
    def hide(driver: SimulatedDriver) -> None:
        driver.gpus[2].fail("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_UNKNOWN)
        driver.gpus[3].fail("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_UNKNOWN)
        driver.gpus[3].driver_name = "vfio-pci"

    with rig(prepare=hide) as node:
        node.source.poll_all()
        node.poll(2)
        assert node.open_rules() == {("gpu-lost", f"gpu/{node.driver.gpus[2].pci}")}


def test_c21_the_index_of_a_lost_gpu_is_reused() -> None:
    """Readings follow the UUID: the GPU that moved to index 1 inherits nothing from the one that was there."""
    with rig(3) as node:
        lost, moved = node.driver.gpus[1], node.driver.gpus[2]
        assert lost.ecc is not None
        lost.ecc.corrected_volatile = 5_000_000
        node.poll(31)
        node.driver.remove(lost, at_once=True)
        node.driver.reload()
        node.poll(5)
        assert {rule for rule, _ in node.open_rules()} == {"gpu-lost"}
        assert node.engine.series.value("gpu_ecc_corrected_volatile_total", gpu(moved.uuid)) == 0


@pytest.mark.parametrize("function", [None, "nvmlDeviceGetTemperatureV"])
def test_c24_a_call_hangs(function: str | None) -> None:
    """The GPU is told as stalled within two seconds; the others go on; one thread stays out and no more."""
    with rig() as node:
        hang = node.driver.gpus[2].hang(function)
        node.poll(2)
        assert node.open_rules() == {("gpu-driver-stalled", node.device(2))}
        threads = node.threads()
        node.driver.gpus[0].temperature = 60
        node.poll(3)
        assert node.engine.series.value("gpu_temperature_celsius", node.device(0)) == 60
        assert node.engine.series.value("gpu_temperature_celsius", node.device(2)) is None
        assert (node.threads(), hang.stuck) == (threads, 1)
        node.driver.gpus[2].heal()
        node.poll(6)
        assert node.open_rules() == set()


def test_c24_a_gpu_that_hangs_while_it_is_listed_is_not_lost() -> None:
    """Its identity does not come back either: it is stalled, it stays in the list, and it recovers."""
    with rig() as node:
        node.driver.gpus[2].hang()
        for _ in range(3):
            node.source.poll_all()
            node.poll(2)
        assert node.open_rules() == {("gpu-driver-stalled", node.device(2))}
        node.driver.gpus[2].heal()
        node.poll(8)
        assert node.open_rules() == set()
        assert node.engine.series.value("gpu_count", NODE) == 4


def test_c24_a_gpu_that_hangs_when_the_agent_starts() -> None:
    """The others are read; the one that hangs is not called lost, however often it is asked for."""
    with rig(prepare=lambda driver: (driver.gpus[1].hang(), None)[1]) as node:
        for _ in range(3):
            node.source.poll_all()
            node.poll(2)
        assert {rule for rule, _ in node.open_rules()} <= {"gpu-driver-stalled"}
        assert node.engine.series.value("gpu_temperature_celsius", node.device(0)) == 35


def test_every_call_hangs() -> None:
    """Each GPU is told, and threads stay as many: two a GPU and one for the driver."""
    with rig() as node:
        node.driver.hang()
        node.poll(3)
        assert {rule for rule, _ in node.open_rules()} == {"gpu-driver-stalled"}
        threads = node.threads()
        node.poll(3)
        assert node.threads() == threads <= 2 * len(node.driver.gpus) + 1


@pytest.mark.parametrize("code", [
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_UNKNOWN])
def test_c25_the_driver_does_not_open(code: int) -> None:
    """Blindness is a condition of nodeguard's own, never a fault of a GPU, and it ends by itself."""
    with rig() as node:
        node.driver.fail("nvmlInitWithFlags", code)
        node.driver.reload()
        node.poll(15)
        assert {rule for rule, _ in node.open_rules()} == {"nodeguard-source-down"}
        assert node.engine.intent().taint is None
        assert node.engine.series.value("gpu_temperature_celsius", node.device(0)) is None
        node.driver.heal("nvmlInitWithFlags")
        node.poll(60)
        assert node.open_rules() == set()
        assert node.engine.series.value("gpu_temperature_celsius", node.device(0)) == 35


def test_c25_a_driver_that_comes_late_after_boot_is_nothing() -> None:
    """For five minutes after boot a driver is still being installed: no condition, and then it is read."""
    with rig(boot=20.0) as node:
        node.driver.unload(force=True)
        node.poll(200)
        assert node.open_rules() == set()
        node.driver.load()
        node.poll(35)
        assert node.open_rules() == set()
        assert node.engine.series.value("gpu_temperature_celsius", node.device(0)) == 35


def test_a_fault_stands_while_nvml_is_blind() -> None:
    """Not to see is not to be healthy: what was open stays open."""
    with rig() as node:
        node.driver.gpus[1].lose()
        node.poll(2)
        node.driver.unload(force=True)
        node.poll(30)
        assert ("gpu-lost", node.device(1)) in node.open_rules()


def test_c27_reset_required_without_an_event() -> None:
    """A recovery action that stands when the agent starts, or a query that asks for a reset, is the fault."""
    with rig() as node:
        node.driver.gpus[0].recovery_action = 1
        node.driver.gpus[1].fail("nvmlDeviceGetTemperatureV", pynvml.NVML_ERROR_RESET_REQUIRED)
        node.driver.gpus[2].recovery_action = None
        node.poll(2)
        assert node.open_rules() == {("gpu-recovery-reset", node.device(0)), ("gpu-recovery-reset", node.device(1))}


def test_c29_clock_events() -> None:
    """Idle, power cap and settings are normal; a brake of three samples is told and evicts nobody."""
    with rig() as node:
        node.driver.gpus[0].clock_events = 0x1 | 0x2 | 0x4 | 0x100
        node.driver.gpus[1].clock_events = 0x80
        node.poll(4)
        assert node.open_rules() == {("gpu-power-brake", node.device(1))}
        assert node.engine.intent().taint is None


def test_c30_a_link_that_was_up_is_down() -> None:
    """A link that goes down is a fault; links that never were up are none."""
    with rig() as node:
        node.driver.gpus[0].links[4].active = False
        node.poll(31)
        assert node.open_rules() == {("gpu-nvlink-down", node.device(0))}
        node.driver.gpus[0].links[4].active = True
        node.poll(121)
        assert node.open_rules() == set()


def test_pcie_generation_two_under_load() -> None:
    """Generation 2 counts under load only."""
    with rig() as node:
        slow = node.driver.gpus[0]
        assert slow.pcie is not None
        slow.pcie.generation, slow.utilization_percent = 2, 90
        node.poll(61)
        assert node.open_rules() == {("gpu-pcie-slow", node.device(0))}


def test_quiesce_closes_nvml_and_nobody_is_blamed() -> None:
    """While quiesced no client holds the driver, signals are unknown, nothing opens; then reading goes on."""
    with rig() as node:
        node.source.quiesce(on=True)
        node.poll(30)
        assert node.driver.clients == 0
        assert node.source.idle
        assert node.open_rules() == set()
        assert node.engine.series.value("gpu_temperature_celsius", node.device(0)) is None
        node.source.quiesce(on=False)
        node.poll(5)
        assert node.engine.series.value("gpu_temperature_celsius", node.device(0)) == 35
        assert node.open_rules() == set()


def test_the_source_says_when_it_sees() -> None:
    """The first words are that the source is up, and who is here."""
    with rig() as node:
        facts = [fact for batch in node.batches if batch.source == "nvml" for fact in batch.facts]
        assert any(isinstance(fact, SourceState) and fact.up for fact in facts)
        assert any(isinstance(fact, Present) and len(fact.devices) == 4 for fact in facts)


def test_what_a_card_does_not_support_is_asked_once(node_of_cards: Rig) -> None:
    """C22: not supported is unknown, quiet, and not asked again."""
    node_of_cards.driver.calls.clear()
    node_of_cards.poll(40)
    assert node_of_cards.open_rules() == set()
    assert node_of_cards.driver.calls["nvmlDeviceGetSramEccErrorStatus"] == 0


@pytest.fixture
def node_of_cards() -> Iterator[Rig]:
    """A desktop card instead of a data centre's GPU."""
    with rig(1) as node:
        card = node.driver.gpus[0]
        card.ecc = card.ecc_mode = card.remap = card.sram_threshold = card.fabric = card.recovery_action = None
        card.links = []
        node.driver.reload()
        node.poll(8)
        yield node
