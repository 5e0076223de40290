"""Event sets: what the driver tells by itself, on time, late or never."""

import threading
from collections import deque
from typing import Any, NamedTuple

import pynvml

from nodeguard.sim.driver.abi import set_struct
from nodeguard.sim.driver.gpu import NO_INSTANCE, SimulatedGpu


class Told(NamedTuple):
    """One event of one GPU."""

    gpu: SimulatedGpu
    kind: int
    data: int
    gpu_instance: int = NO_INSTANCE
    compute_instance: int = NO_INSTANCE


class EventSet:
    """What one client registered, and what waits for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._registered: dict[SimulatedGpu, int] = {}
        self._queue: deque[Told] = deque()
        self._closed = False
        self._waiting = 0

    def register(self, gpu: SimulatedGpu, kinds: int) -> int:
        """Add event types of a GPU; what it does not support is refused as a whole."""
        if kinds & ~gpu.event_types:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        with self._changed:
            self._registered[gpu] = self._registered.get(gpu, 0) | kinds
        return int(pynvml.NVML_SUCCESS)

    def offer(self, event: Told) -> bool:
        """Take an event that was registered; False: nobody asked for it."""
        with self._changed:
            wanted = bool(self._registered.get(event.gpu, 0) & event.kind)
            if wanted:
                self._queue.append(event)
                self._changed.notify_all()
            return wanted

    def wait(self, seconds: float) -> Told | int:
        """The next event, or the code to return."""
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._queue or self._closed, seconds)
            self._waiting -= 1
            if self._closed:
                return int(pynvml.NVML_ERROR_UNINITIALIZED)
            return self._queue.popleft() if self._queue else int(pynvml.NVML_ERROR_TIMEOUT)

    def wait_for_waiter(self, timeout: float = 5.0) -> bool:
        """Wait until somebody waits on this set; False: not within ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting > 0, timeout)

    def close(self) -> None:
        """Freed, or the driver below it went away: waiters come back."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def fill(struct: Any, event: Told, device: Any) -> int:
    """Write an event into nvmlEventData_t."""
    return set_struct(struct, device=device, eventType=event.kind, eventData=event.data,
                      gpuInstanceId=event.gpu_instance, computeInstanceId=event.compute_instance)
