"""Event sets of the simulated driver, as real pynvml meets them."""

import threading
from collections.abc import Iterator
from typing import Any

import pynvml
import pytest

from nodeguard.sim.driver import SimulatedDriver

XID = pynvml.nvmlEventTypeXidCriticalError
DOUBLE_BIT = pynvml.nvmlEventTypeDoubleBitEccError


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    """Two GPUs, and pynvml opened above them."""
    with SimulatedDriver(2) as installed:
        pynvml.nvmlInit()
        yield installed


def registered(*indexes: int, kinds: int = XID) -> Any:
    events = pynvml.nvmlEventSetCreate()
    for index in indexes:
        pynvml.nvmlDeviceRegisterEvents(pynvml.nvmlDeviceGetHandleByIndex(index), kinds, events)
    return events


def test_an_event_reaches_who_registered_for_it(driver: SimulatedDriver) -> None:
    """Type, data, instances and the device arrive; other types and other GPUs do not."""
    events = registered(1)
    driver.emit(driver.gpus[0], XID, 13)
    driver.emit(driver.gpus[1], DOUBLE_BIT)
    driver.emit(driver.gpus[1], XID, 94, gpu_instance=5, compute_instance=0)
    data = pynvml.nvmlEventSetWait_v2(events, 1000)
    assert (data.eventType, data.eventData, data.gpuInstanceId, data.computeInstanceId) == (XID, 94, 5, 0)
    assert pynvml.nvmlDeviceGetUUID(data.device) == driver.gpus[1].uuid
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v2(events, 0)


def test_a_waiter_wakes_when_the_event_comes(driver: SimulatedDriver) -> None:
    """Waiting blocks; the event ends it."""
    events, told = registered(0), []
    waiter = threading.Thread(target=lambda: told.append(pynvml.nvmlEventSetWait_v2(events, 5000)))
    waiter.start()
    assert driver.event_sets()[0].wait_for_waiter()
    driver.emit(driver.gpus[0], XID, 79)
    waiter.join(5)
    assert told[0].eventData == 79


def test_events_come_late_or_never(driver: SimulatedDriver) -> None:
    """Held events arrive in order once released; dropped ones are gone."""
    events = registered(0)
    driver.hold_events()
    driver.emit(driver.gpus[0], XID, 62)
    driver.emit(driver.gpus[0], XID, 45)
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v2(events, 0)
    driver.drop_events()
    driver.emit(driver.gpus[0], XID, 1)
    driver.drop_events(dropping=False)
    driver.release_events()
    assert [pynvml.nvmlEventSetWait_v2(events, 0).eventData for _ in range(2)] == [62, 45]
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v2(events, 0)


def test_types_that_a_gpu_does_not_support_are_refused(driver: SimulatedDriver) -> None:
    """Registering more than the supported mask fails as a whole."""
    driver.gpus[0].event_types = XID
    with pytest.raises(pynvml.NVMLError_NotSupported):
        registered(0, kinds=XID | DOUBLE_BIT)


def test_a_freed_set_and_an_unloaded_driver_end_the_waiting(driver: SimulatedDriver) -> None:
    """A freed set is no set any more; an unloaded driver wakes its waiters."""
    freed = registered(0)
    pynvml.nvmlEventSetFree(freed)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlEventSetWait_v2(freed, 0)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlEventSetFree(freed)
    events, told = registered(0), []

    def wait() -> None:
        try:
            pynvml.nvmlEventSetWait_v2(events, 5000)
        except pynvml.NVMLError as error:
            told.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert driver.event_sets()[0].wait_for_waiter()
    driver.unload(force=True)
    waiter.join(5)
    assert isinstance(told[0], pynvml.NVMLError_Uninitialized)
