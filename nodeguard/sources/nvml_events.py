"""Waits for what NVML tells by itself: Xids, double bit errors, an unavailable GPU, a changed recovery action."""

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from nodeguard.model.clock import Clock
from nodeguard.model.sample import Batch, SourceState
from nodeguard.vendors.nvidia.nvml_device import Gpu
from nodeguard.vendors.nvidia.nvml_errors import NvmlError
from nodeguard.vendors.nvidia.nvml_events import RECOVERY_ACTION, told_of
from nodeguard.vendors.nvidia.nvml_watch import NvmlEvent

SOURCE = "nvml_events"

_WAIT = 0.5
"""Seconds of one wait inside the driver: how soon the set can be given back."""
_CLOSE_PATIENCE = 1.5
_AFTER_FAILURE = 1.0

Emit = Callable[[Batch], None]


class Watch(Protocol):
    """What is asked of :class:`nodeguard.vendors.nvidia.nvml_watch.EventWatch`."""

    def wait(self, timeout: float) -> NvmlEvent | None:
        """The next event; None: none came in time."""
        ...

    def close(self) -> None:
        """Give the set back."""
        ...


class NvmlEventSource:
    """The source ``nvml_events``: registers when the poller opened NVML, and lets go before it is closed.

    A driver that hangs here hangs this thread and no other. Without support for events there is nothing to say: the
    kernel log tells the same Xids.
    """

    name = SOURCE

    def __init__(self, watch: Callable[[Iterable[Gpu]], Watch], clock: Clock, poll_now: Callable[[], None]) -> None:
        """``watch`` makes an event set; ``poll_now`` asks for a full poll when an event does not say which GPU."""
        self._watch, self._clock, self._poll_now = watch, clock, poll_now
        self._changed = threading.Condition()
        self._gpus: tuple[Gpu, ...] | None = None
        self._registered = False

    def opened(self, gpus: tuple[Gpu, ...]) -> None:
        """NVML is open and lists these GPUs."""
        with self._changed:
            self._gpus = gpus
            self._changed.notify_all()

    def closing(self) -> None:
        """NVML is about to be closed: let go of the set, and wait a moment until that is done."""
        with self._changed:
            self._gpus = None
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._registered, _CLOSE_PATIENCE)

    def wake(self) -> None:
        """End a wait for NVML."""
        with self._changed:
            self._changed.notify_all()

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Follow until ``stop`` is set."""
        emit(_down("NVML was not opened yet"))
        while not stop.is_set():
            gpus = self._next(stop)
            if gpus:
                self._follow(gpus, emit, stop)

    def _next(self, stop: threading.Event) -> tuple[Gpu, ...] | None:
        with self._changed:
            self._changed.wait_for(lambda: stop.is_set() or self._gpus is not None)
            if self._gpus is not None:
                self._registered = True
            return self._gpus

    def _follow(self, gpus: tuple[Gpu, ...], emit: Emit, stop: threading.Event) -> None:
        watch = None
        try:
            watch = self._watch(gpus)
            emit(Batch(source=SOURCE, facts=(SourceState(up=True),)))
            while not stop.is_set() and self._gpus is gpus:
                self._pass_on(watch.wait(_WAIT), emit)
        except NvmlError as error:
            emit(_down(str(error)))
            self._poll_now()
            self._clock.wait(stop, _AFTER_FAILURE)
        finally:
            if watch is not None:
                watch.close()
            with self._changed:
                self._registered = False
                self._changed.notify_all()

    def _pass_on(self, event: NvmlEvent | None, emit: Emit) -> None:
        if event is None:
            return
        if not event.uuid or event.kind == RECOVERY_ACTION:
            self._poll_now()
            return
        told = told_of(event.uuid, event.kind, event.data, event.gpu_instance, event.compute_instance)
        if told.events or told.samples:
            emit(Batch(source=SOURCE, samples=told.samples, events=told.events))


def _down(reason: str) -> Batch:
    """Never a blindness of its own: the poller says whether NVML answers, and the kernel log tells the same Xids."""
    return Batch(source=SOURCE, facts=(SourceState(up=False, caught_up=False, reason=reason, deliberate=True),))
