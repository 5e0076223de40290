"""nvmlDeviceGetFieldValues above the simulated driver."""

from collections.abc import Iterator
from typing import Any

import pynvml
import pytest

from nodeguard.sim.driver import SimulatedDriver, SimulatedGpu


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    """One GPU, and pynvml opened above it."""
    with SimulatedDriver(1) as installed:
        pynvml.nvmlInit()
        yield installed


def ask(*fields: Any) -> Any:
    return pynvml.nvmlDeviceGetFieldValues(pynvml.nvmlDeviceGetHandleByIndex(0), list(fields))


def test_each_field_has_its_own_code_and_type(driver: SimulatedDriver) -> None:
    """A known field has a value of its type; one that this GPU lacks and one that nobody knows fail alone."""
    driver.gpus[0].recovery_action = 1
    driver.gpus[0].ecc.uncorrected_aggregate = 1 << 40  # type: ignore[union-attr]
    recovery, ecc, retired, nobody = ask(230, 6, 29, 9999)
    assert (recovery.nvmlReturn, recovery.valueType, recovery.value.uiVal) == (0, 1, 1)
    assert (ecc.nvmlReturn, ecc.valueType, ecc.value.ullVal) == (0, 3, 1 << 40)
    assert retired.nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert nobody.nvmlReturn == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_links_are_told_apart_by_scope(driver: SimulatedDriver) -> None:
    """The scope is the link's number; a link that is not there is not supported."""
    driver.gpus[0].links[4].active = False
    found = ask((165, 3), (165, 4), (165, 18), 91)
    assert [one.value.uiVal for one in found[:2]] == [1, 0]
    assert found[2].nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert found[3].value.uiVal == 18


def test_an_older_driver_does_not_know_newer_fields(driver: SimulatedDriver) -> None:
    """C27b: the recovery action is an invalid argument to a driver from before it."""
    driver.newest_field = 200
    recovery, power = ask(230, 186)
    assert recovery.nvmlReturn == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert power.value.uiVal == 70_000


def test_a_field_can_be_broken_alone(driver: SimulatedDriver) -> None:
    """A code, an odd type, or both, for one scope or for all; healed, it has its value again."""
    gpu: SimulatedGpu = driver.gpus[0]
    gpu.fail_field(82, pynvml.NVML_ERROR_TIMEOUT)
    gpu.fail_field(230, value=2.5, value_type=pynvml.NVML_VALUE_TYPE_DOUBLE)
    gpu.fail_field(165, value=7, scope=1)
    gpu.fail_field(186, value_type=99)
    memory, recovery, other, link, power = ask(82, 230, (165, 0), (165, 1), 186)
    assert memory.nvmlReturn == pynvml.NVML_ERROR_TIMEOUT
    assert (recovery.valueType, recovery.value.dVal) == (0, 2.5)
    assert (other.value.uiVal, link.value.uiVal) == (1, 7)
    assert power.valueType == 99
    gpu.heal_field(82)
    assert ask(82)[0].value.uiVal == 42
