"""Calls of the simulated driver that do not come back."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pynvml
import pytest

from nodeguard.sim.driver import SimulatedDriver


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    """Four GPUs, and pynvml opened above them."""
    with SimulatedDriver(4) as installed:
        pynvml.nvmlInit()
        yield installed


def handle(index: int) -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


class Caller:
    """Runs one call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.answer: Any = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.answer = self._call()
        except pynvml.NVMLError as error:
            self.answer = error

    def finished(self) -> Any:
        self._thread.join(5)
        assert not self._thread.is_alive()
        return self.answer


@pytest.mark.parametrize("function", [None, "nvmlDeviceGetTemperature"])
def test_a_hanging_gpu_blocks_until_it_is_released(driver: SimulatedDriver, function: str | None) -> None:
    """C24: the call stays out, other GPUs answer meanwhile, and the release lets it go on."""
    held = handle(2)
    with driver.gpus[2].hang(function) as hang:
        caller = Caller(lambda: pynvml.nvmlDeviceGetTemperature(held, 0))
        assert hang.wait_stuck()
        assert pynvml.nvmlDeviceGetTemperature(handle(1), 0) == 35
        assert caller.answer is None
    assert caller.finished() == 35
    assert hang.stuck == 0


def test_everything_can_hang_and_opening_with_it(driver: SimulatedDriver) -> None:
    """A hang of the driver blocks every call; healing releases it."""
    hang = driver.hang()
    callers = [Caller(pynvml.nvmlInit), Caller(pynvml.nvmlDeviceGetCount)]
    assert hang.wait_stuck(2)
    driver.heal()
    assert [caller.finished() for caller in callers] == [None, 4]


def test_what_happened_during_a_hang_counts(driver: SimulatedDriver) -> None:
    """A call that comes back after the driver was unloaded finds no driver; one on a lost GPU finds it lost."""
    first, second = handle(0), handle(1)
    with driver.gpus[0].hang() as hang, driver.gpus[1].hang() as other:
        callers = [Caller(lambda: pynvml.nvmlDeviceGetName(first)), Caller(lambda: pynvml.nvmlDeviceGetName(second))]
        assert hang.wait_stuck()
        assert other.wait_stuck()
        driver.gpus[1].lose()
        other.release()
        assert isinstance(callers[1].finished(), pynvml.NVMLError_GpuIsLost)
        driver.unload(force=True)
    assert isinstance(callers[0].finished(), pynvml.NVMLError_Uninitialized)
