"""Every fault that NVML alone tells, from the driver's C interface to what the Node says, over agent restarts.

Each: right by the shipped rules through real pynvml, still there after the agent was restarted, not ended by what is
no evidence, and ended by its own evidence.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pynvml
import pytest

from nodeguard.model.fault import EFFECTS
from nodeguard.sim.driver import SimulatedGpu
from nodeguard.sim.driver.gpu import Ecc, Pcie, Remap

from .machine import Machine, machine

BAD = 3
Deed = Callable[[Machine], None]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One fault. Seconds are simulated, so that the fast tier (1 s) and the slow one (30 s) show."""

    rule: str
    condition: str
    action: str
    effect: str
    breaks: Deed
    shows: int
    """Seconds until it is open."""
    not_enough: Deed = lambda _machine: None
    """What ends the symptom, or a part of it, and proves no cure."""
    waits: int = 61
    """Seconds for which that is watched."""
    evidence: Deed
    clears: int
    """Seconds until it is closed."""
    gpus: tuple[int, ...] = (BAD,)
    beside: tuple[str, ...] = ()
    """Rules that tell of the same fault."""


def bad(node: Machine) -> SimulatedGpu:
    return node.driver.gpus[BAD]


def ecc(node: Machine) -> Ecc:
    found = bad(node).ecc
    assert found is not None
    return found


def remap(node: Machine) -> Remap:
    found = bad(node).remap
    assert found is not None
    return found


def pcie(node: Machine) -> Pcie:
    found = bad(node).pcie
    assert found is not None
    return found


def heat(celsius: int) -> Deed:
    """The die at this temperature; it slows itself down at 89 and shuts down at 94."""
    return lambda node: setattr(bad(node), "temperature", celsius)


def clocks(mask: int) -> Deed:
    return lambda node: setattr(bad(node), "clock_events", mask)


def link(*, active: bool) -> Deed:
    return lambda node: setattr(bad(node).links[4], "active", active)


def reset(node: Machine) -> None:
    node.reset(bad(node))


def uncorrectable(node: Machine) -> None:
    ecc(node).uncorrected_volatile += 1
    ecc(node).uncorrected_aggregate += 1
    bad(node).recovery_action = 1


def pend(node: Machine) -> None:
    remap(node).pending = 1


def fail_remap(node: Machine) -> None:
    remap(node).failed = 1


def forget_failure(node: Machine) -> None:
    """The flag is gone, and so is the boot in which it was seen; it is still the same GPU."""
    remap(node).failed = 0
    node.reboot()


def swap(node: Machine) -> None:
    """Another GPU is put into the slot, for which the machine is switched off."""
    bad(node).uuid, bad(node).remap = "GPU-another", Remap()
    node.reboot()


def lose(node: Machine) -> None:
    bad(node).lose()


def find(node: Machine) -> None:
    bad(node).heal()


def lose_all(node: Machine) -> None:
    for one in node.driver.gpus:
        one.lose()


def find_all(node: Machine) -> None:
    for one in node.driver.gpus:
        one.heal()


def leave_bus(node: Machine) -> None:
    node.driver.remove(bad(node))


def return_to_bus(node: Machine) -> None:
    node.driver.insert(bad(node))


def hang(node: Machine) -> None:
    bad(node).hang()


def ask_for_reset(node: Machine) -> None:
    bad(node).recovery_action = 1


def answer_reset_required(node: Machine) -> None:
    """An older driver, without the field: a query says it (NVML_ERROR_RESET_REQUIRED)."""
    bad(node).recovery_action = None
    bad(node).fail("nvmlDeviceGetTemperatureV", pynvml.NVML_ERROR_RESET_REQUIRED)


def work_at_gen2(node: Machine) -> None:
    bad(node).utilization_percent, pcie(node).generation = 90, 2


def rest_at_gen1(node: Machine) -> None:
    bad(node).utilization_percent, pcie(node).generation = 0, 1


def work_at_gen5(node: Machine) -> None:
    bad(node).utilization_percent, pcie(node).generation = 90, 5


CASES = {
    "too hot": Case(
        rule="gpu-hot", condition="GpuThermal", action="none", effect="condition",
        breaks=heat(88), shows=12, not_enough=heat(83), evidence=heat(70), clears=62),
    "about to shut down": Case(
        rule="gpu-hot-shutdown", condition="GpuThermal", action="none", effect="noschedule", beside=("gpu-hot",),
        breaks=heat(93), shows=12, not_enough=heat(86), evidence=heat(70), clears=62),
    "uncorrectable ECC": Case(
        rule="gpu-ecc-uncorrected", condition="GpuMemoryFault", action="reset_gpu", effect="noschedule",
        beside=("gpu-recovery-reset",), breaks=uncorrectable, shows=31, waits=660, evidence=reset, clears=31),
    "remap pending": Case(
        rule="gpu-row-remap-pending", condition="GpuMemoryFault", action="reset_gpu", effect="noschedule",
        breaks=pend, shows=31, evidence=reset, clears=31),
    "remap failed": Case(
        rule="gpu-row-remap-failed", condition="GpuMemoryFault", action="replace_hw", effect="evict",
        breaks=fail_remap, shows=31, not_enough=forget_failure, evidence=swap, clears=31),
    "one lost": Case(
        rule="gpu-lost", condition="GpuLost", action="reboot_node", effect="evict",
        breaks=lose, shows=2, not_enough=find, evidence=Machine.reboot, clears=2),
    "all lost": Case(
        rule="gpu-lost", condition="GpuLost", action="reboot_node", effect="evict", gpus=tuple(range(8)),
        breaks=lose_all, shows=2, not_enough=find_all, evidence=Machine.reboot, clears=2),
    "a call hangs": Case(
        rule="gpu-driver-hung", condition="GpuDriverFault", action="reboot_node", effect="noschedule",
        breaks=hang, shows=12, beside=("gpu-driver-stalled",), waits=5, evidence=find, clears=8),
    "gone from the bus": Case(
        rule="gpu-lost", condition="GpuLost", action="reboot_node", effect="evict",
        breaks=leave_bus, shows=2, not_enough=return_to_bus, evidence=Machine.reboot, clears=2),
    "reset required": Case(
        rule="gpu-recovery-reset", condition="GpuRecoveryRequired", action="reset_gpu", effect="noschedule",
        breaks=ask_for_reset, shows=2, evidence=reset, clears=3),
    "reset required by a query": Case(
        rule="gpu-recovery-reset", condition="GpuRecoveryRequired", action="reset_gpu", effect="noschedule",
        breaks=answer_reset_required, shows=2, evidence=reset, clears=31),
    "power brake": Case(
        rule="gpu-power-brake", condition="GpuPowerBrake", action="none", effect="condition",
        breaks=clocks(0x80), shows=4, not_enough=clocks(0x4), waits=30, evidence=clocks(0x4), clears=32),
    "NVLink down": Case(
        rule="gpu-nvlink-down", condition="NvlinkFault", action="reset_gpu", effect="noschedule",
        breaks=link(active=False), shows=31, not_enough=link(active=True), waits=59, evidence=link(active=True),
        clears=62),
    "Gen2 under load": Case(
        rule="gpu-pcie-slow", condition="PcieFault", action="reset_gpu", effect="condition",
        breaks=work_at_gen2, shows=61, not_enough=rest_at_gen1, waits=121, evidence=work_at_gen5, clears=92),
}


def assert_open(node: Machine, case: Case) -> None:
    """The fault and nothing else, on its GPUs and no other, as the Node would say it."""
    devices = [node.device(index) for index in case.gpus]
    faults = node.faults()
    assert faults.keys() == {(rule, device) for rule in (case.rule, *case.beside) for device in devices}
    for device in devices:
        fault = faults[case.rule, device]
        assert (fault.action, fault.effect, fault.condition) == (case.action, case.effect, case.condition)
        assert fault.pci in node.node.slots
    assert node.condition(case.condition).status == "True"
    tainted = EFFECTS.index(case.effect) >= EFFECTS.index("noschedule")
    assert (node.taint is not None) == tainted


@pytest.mark.parametrize("name", CASES)
def test_a_fault_from_beginning_to_end(name: str, tmp_path: Path) -> None:
    """It opens in time, outlives agent restarts and what is no evidence, and its evidence ends it."""
    case = CASES[name]
    with machine(tmp_path) as node:
        case.breaks(node)
        node.poll(case.shows)
        assert_open(node, case)
        node.restart_agent()
        assert_open(node, case)
        node.poll(35)
        assert_open(node, case)
        case.not_enough(node)
        node.poll(case.waits)
        assert_open(node, case)
        opened = [change for change in node.told if change.transition == "opened" and change.fault.rule == case.rule]
        assert len(opened) == len(case.gpus)
        case.evidence(node)
        node.poll(case.clears)
        assert node.faults() == {}
        assert node.condition(case.condition).status == "False"
        assert node.taint is None
