"""The NVML source through real pynvml: each fault right by the shipped rules, each cleared by its own evidence.

The cases from the field are in test_nvml_cases.py and test_nvml_cases_states.py.
"""

import pynvml

from nodeguard.model.device import NODE
from nodeguard.model.sample import Present, SourceState

from .nvml_rig import rig


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


def test_every_call_hangs() -> None:
    """Each GPU is told, and threads stay as many: two a GPU and one for the driver."""
    with rig() as node:
        node.driver.hang()
        node.poll(3)
        assert {rule for rule, _ in node.open_rules()} == {"gpu-driver-stalled"}
        threads = node.threads()
        node.poll(3)
        assert node.threads() == threads <= 2 * len(node.driver.gpus) + 1


def test_a_fault_stands_while_nvml_is_blind() -> None:
    """Not to see is not to be healthy: what was open stays open."""
    with rig() as node:
        node.driver.gpus[1].lose()
        node.poll(2)
        node.driver.unload(force=True)
        node.poll(30)
        assert ("gpu-lost", node.device(1)) in node.open_rules()


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


