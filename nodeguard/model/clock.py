"""Time as an argument: the one Protocol that loops take, the real clock, and the shipped fake."""

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What a loop may ask of time. Pure code takes ``now`` as a number instead."""

    def boot(self) -> float:
        """Seconds since boot, suspend included. Never steps. The engine's clock."""
        ...

    def wall(self) -> float:
        """Unix time in seconds. May step; only sinks turn engine time into it."""
        ...

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Block until ``event`` is set (True) or ``timeout`` seconds passed (False)."""
        ...


class SystemClock:
    """The machine's clocks. CLOCK_BOOTTIME counts suspend, unlike CLOCK_MONOTONIC (clock_gettime(2))."""

    def boot(self) -> float:
        """See :class:`Clock`."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        """See :class:`Clock`."""
        return time.time()

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """See :class:`Clock`."""
        return event.wait(timeout)


class FakeClock:
    """A clock that moves only when told, or when somebody waits on it. Shipped for tests and drills."""

    def __init__(self, boot: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self._boot = boot
        self._wall = wall

    def boot(self) -> float:
        """See :class:`Clock`."""
        return self._boot

    def wall(self) -> float:
        """See :class:`Clock`."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        self._boot += seconds
        self._wall += seconds

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock alone, as NTP does."""
        self._wall += seconds

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Return at once: time passes by ``timeout`` if the event is not set."""
        if event.is_set() or timeout is None:
            return event.is_set()
        self.advance(timeout)
        return event.is_set()
