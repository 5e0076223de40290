"""NVML's event set behind its typed door: real pynvml above the simulated driver."""

import threading
from collections.abc import Iterator

import pynvml
import pytest

from nodeguard.sim.driver import SimulatedDriver
from nodeguard.vendors.nvidia.nvml import Nvml
from nodeguard.vendors.nvidia.nvml_errors import NvmlError
from nodeguard.vendors.nvidia.nvml_events import DOUBLE_BIT, NO_INSTANCE, RECOVERY_ACTION, UNAVAILABLE, XID
from nodeguard.vendors.nvidia.nvml_watch import NvmlEvent


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    """Three GPUs."""
    with SimulatedDriver(3) as installed:
        yield installed


@pytest.fixture
def nvml(driver: SimulatedDriver) -> Nvml:
    """NVML, open."""
    opened = Nvml()
    opened.open()
    return opened


@pytest.mark.parametrize("kind", [XID, DOUBLE_BIT, UNAVAILABLE, RECOVERY_ACTION])
def test_an_event_names_its_gpu(driver: SimulatedDriver, nvml: Nvml, kind: int) -> None:
    """UUID, type, data and instances; None when nothing comes in time."""
    watch = nvml.watch(nvml.gpus().gpus)
    driver.emit(driver.gpus[2], kind, 94, gpu_instance=5)
    assert watch.wait(1.0) == NvmlEvent(driver.gpus[2].uuid, kind, 94, 5, NO_INSTANCE)
    assert watch.wait(0.0) is None


def test_each_gpu_is_registered_for_what_it_supports(driver: SimulatedDriver, nvml: Nvml) -> None:
    """A GPU that supports less, nothing, or refuses costs only itself."""
    driver.gpus[0].event_types = XID | pynvml.nvmlEventTypeClock
    driver.gpus[1].event_types = pynvml.nvmlEventTypeClock
    gpus = nvml.gpus().gpus
    driver.gpus[2].fail("nvmlDeviceRegisterEvents", pynvml.NVML_ERROR_UNKNOWN)
    assert nvml.watch(gpus).registered == {driver.gpus[0].uuid: XID}


def test_waiting_ends_with_the_event(driver: SimulatedDriver, nvml: Nvml) -> None:
    """A late event wakes the thread that waits."""
    watch = nvml.watch(nvml.gpus().gpus)
    told: list[NvmlEvent | None] = []
    waiter = threading.Thread(target=lambda: told.append(watch.wait(5.0)))
    waiter.start()
    assert driver.event_sets()[0].wait_for_waiter()
    driver.emit(driver.gpus[0], XID, 79)
    waiter.join(5)
    assert told[0] is not None
    assert told[0].data == 79


@pytest.mark.parametrize(("code", "word"), [
    (pynvml.NVML_ERROR_GPU_IS_LOST, "GPU_IS_LOST"), (pynvml.NVML_ERROR_UNKNOWN, "UNKNOWN"),
    (pynvml.NVML_ERROR_UNINITIALIZED, "UNINITIALIZED")])
def test_a_set_of_no_more_use_says_so(driver: SimulatedDriver, nvml: Nvml, code: int, word: str) -> None:
    """The word tells whether GPUs must be read or NVML opened again."""
    watch = nvml.watch(nvml.gpus().gpus)
    driver.fail("nvmlEventSetWait", code)
    with pytest.raises(NvmlError, match="waiting for NVML's events") as caught:
        watch.wait(1.0)
    assert caught.value.word == word


def test_a_driver_without_event_sets_says_so(driver: SimulatedDriver, nvml: Nvml) -> None:
    """Creating the set fails: the source cannot see."""
    gpus = nvml.gpus().gpus
    driver.fail("nvmlEventSetCreate", pynvml.NVML_ERROR_NOT_SUPPORTED)
    with pytest.raises(NvmlError, match="no event set"):
        nvml.watch(gpus)


def test_a_closed_set_is_given_back(driver: SimulatedDriver, nvml: Nvml) -> None:
    """Closing frees it below, and closing again or after an unload raises nothing."""
    watch = nvml.watch(nvml.gpus().gpus)
    watch.close()
    assert driver.event_sets() == []
    watch.close()


def test_an_event_of_a_gpu_that_came_later_is_asked_for_its_name(driver: SimulatedDriver, nvml: Nvml) -> None:
    """A handle that was not registered here is named by NVML, or by nothing where that fails."""
    gpus = nvml.gpus().gpus
    watch = nvml.watch(gpus[:1])
    other = pynvml.nvmlDeviceGetHandleByIndex(1)
    driver.event_sets()[0].register(driver.gpus[1], XID)
    assert other
    driver.emit(driver.gpus[1], XID, 62)
    event = watch.wait(1.0)
    assert event is not None
    assert event.uuid == driver.gpus[1].uuid
    driver.emit(driver.gpus[1], XID, 62)
    driver.gpus[1].lose()
    nameless = watch.wait(1.0)
    assert nameless is not None
    assert nameless.uuid == ""
