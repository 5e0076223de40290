"""Handles: the opaque pointers under which a client knows GPUs, MIG instances and event sets."""

import ctypes
import threading
from typing import Any, NamedTuple

import pynvml

from nodeguard.sim.driver.abi import address
from nodeguard.sim.driver.events import EventSet
from nodeguard.sim.driver.gpu import MigInstance, SimulatedGpu

_FIRST = 0x10000
_STEP = 0x100


class DeviceRef(NamedTuple):
    """What a device handle stands for."""

    gpu: SimulatedGpu
    mig: MigInstance | None = None


class Handles:
    """One table per loaded driver: a handle of an earlier one means nothing to it."""

    _next = _FIRST

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._devices: dict[int, DeviceRef] = {}
        self._sets: dict[int, EventSet] = {}

    def of_device(self, ref: DeviceRef) -> int:
        """The handle of a device; always the same one."""
        with self._lock:
            for found, known in self._devices.items():
                if known == ref:
                    return found
            return self._new(self._devices, ref)

    def of_set(self, events: EventSet) -> int:
        """A handle for a new event set."""
        with self._lock:
            return self._new(self._sets, events)

    def device(self, handle: Any) -> DeviceRef | None:
        """What a device handle stands for."""
        return self._devices.get(address(handle) or 0)

    def event_set(self, handle: Any) -> EventSet | None:
        """What an event set's handle stands for."""
        return self._sets.get(address(handle) or 0)

    def forget_set(self, handle: Any) -> EventSet | None:
        """Take an event set out."""
        with self._lock:
            return self._sets.pop(address(handle) or 0, None)

    def event_sets(self) -> list[EventSet]:
        """Every event set that is not freed."""
        with self._lock:
            return list(self._sets.values())

    @classmethod
    def _new(cls, table: dict[int, Any], what: Any) -> int:
        Handles._next += _STEP
        table[Handles._next] = what
        return Handles._next


def pointer(where: int) -> Any:
    """A device handle as ctypes holds it."""
    return ctypes.cast(ctypes.c_void_p(where), pynvml.c_nvmlDevice_t)
