"""NVML's own events through the simulated driver: told at once, let go before NVML is closed."""

import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from nodeguard.model.clock import SystemClock
from nodeguard.model.sample import Batch
from nodeguard.sim.driver import SimulatedDriver
from nodeguard.sources.nvml_events import NvmlEventSource
from nodeguard.vendors.nvidia import nvml_events
from nodeguard.vendors.nvidia.nvml import Nvml

DEADLINE = 5.0


class Rig:
    """The event source in a thread above one simulated driver."""

    def __init__(self, driver: SimulatedDriver) -> None:
        self.driver = driver
        self.told: SimpleQueue[Batch] = SimpleQueue()
        self.polls = threading.Event()
        self.nvml = Nvml()
        self.nvml.open()
        self.source = NvmlEventSource(self.nvml.watch, SystemClock(), self.polls.set)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.source.run, args=(self.told.put, self.stop))

    def next(self) -> Batch:
        return self.told.get(timeout=DEADLINE)


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Registered and waiting."""
    with SimulatedDriver(2) as driver:
        made = Rig(driver)
        made.thread.start()
        assert made.next().facts
        made.source.opened(made.nvml.gpus().gpus)
        assert made.next().facts
        yield made
        made.stop.set()
        made.source.wake()
        made.thread.join(DEADLINE)
        assert not made.thread.is_alive()


def test_an_xid_is_told_at_once(rig: Rig) -> None:
    """An Xid event names the GPU and the number."""
    rig.driver.emit(rig.driver.gpus[1], nvml_events.XID, 95)
    (event,) = rig.next().events
    assert (event.signal, event.device, event.attributes["code"]) == (
        "gpu_xid", f"gpu/{rig.driver.gpus[1].uuid}", 95)


def test_an_xid_79_is_also_a_lost_gpu(rig: Rig) -> None:
    """79 tells the loss, as the kernel log's 79 does."""
    rig.driver.emit(rig.driver.gpus[0], nvml_events.XID, 79)
    assert [event.signal for event in rig.next().events] == ["gpu_xid", "gpu_lost"]


def test_a_changed_recovery_action_asks_for_a_poll(rig: Rig) -> None:
    """The event's data is not defined, so the value itself is read."""
    rig.driver.emit(rig.driver.gpus[0], nvml_events.RECOVERY_ACTION, 0)
    assert rig.polls.wait(DEADLINE)
    assert rig.told.empty()


def test_the_set_is_given_back_before_nvml_is_closed(rig: Rig) -> None:
    """After ``closing`` no event set is left; it registers again when NVML is open again."""
    rig.source.closing()
    assert rig.driver.event_sets() == []
    rig.source.opened(rig.nvml.gpus().gpus)
    assert rig.next().facts
    rig.driver.emit(rig.driver.gpus[0], nvml_events.DOUBLE_BIT)
    assert [event.signal for event in rig.next().events] == ["gpu_ecc_double_bit_event"]
