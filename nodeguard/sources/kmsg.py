"""Follows the kernel log live: reads, resumes, reconnects, and says whether it can see."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from nodeguard.model.clock import Clock
from nodeguard.model.errors import SourceError
from nodeguard.model.sample import Batch, SourceState
from nodeguard.sources.kmsg_device import KmsgDevice
from nodeguard.sources.kmsg_records import SOURCE, KernelLog, LineParser

_RECORDS_PER_BATCH = 512
_FIRST_DELAY = 0.1  # seconds until the first reopening; doubles
_LONGEST_DELAY = 30.0
_COUNTS_EVERY = 1.0  # seconds between Batches that carry only counts
_UNSETTLED = 256  # Batches whose state is kept for when the engine has taken them; older ones are passed over

_Emit = Callable[[Batch], None]


def suspended() -> float:
    """Seconds that this machine has spent suspended: what printk's clock lacks against engine time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class KmsgSource:
    """The source ``kmsg``. One thread calls :meth:`run`; every other method may be called from any.

    After each opening it reads from the oldest record and skips what the cursor says was taken, so nothing between
    two openings is missed while the ring still holds it. ``caught_up`` is told once nothing more waits.
    """

    name = SOURCE

    def __init__(  # noqa: PLR0913 - three are needed, three have defaults
        self, device: KmsgDevice, parsers: Sequence[LineParser], clock: Clock, *, any_facility: bool = False,
        warn: Callable[[str], None] = lambda _: None, suspended: Callable[[], float] = suspended,
    ) -> None:
        self._device = device
        self._clock = clock
        self._any_facility = any_facility
        self._warn = warn
        self._suspended = suspended
        self._log = KernelLog(parsers, any_facility=any_facility, engine_time=self._engine_time)
        self._offset = 0.0
        self._fresh = False
        self._delay = _FIRST_DELAY
        self._counted_at = -math.inf
        self._lock = threading.Lock()
        self._unsettled: deque[tuple[Batch, dict[str, object]]] = deque(maxlen=_UNSETTLED)
        self._settled = self._log.state()

    def restore(self, state: Mapping[str, object]) -> None:
        """Go on where :meth:`state` stood. Before :meth:`run` only, and only under the same boot ID."""
        self._log.restore(state)
        self._settled = self._log.state()

    def state(self) -> dict[str, object]:
        """JSON-able memory as of the last Batch that was settled: it never runs ahead of the engine's."""
        with self._lock:
            return self._settled

    def settle(self, batch: Batch) -> None:
        """The engine has taken ``batch``, and with it every earlier one of this source."""
        with self._lock:
            if not any(batch is waiting for waiting, _ in self._unsettled):
                return
            while self._unsettled:
                waiting, self._settled = self._unsettled.popleft()
                if waiting is batch:
                    return

    def wake(self) -> None:
        """Make :meth:`run` look at its ``stop``."""
        self._device.wake()

    def run(self, emit: Callable[[Batch], None], stop: threading.Event) -> None:
        """Follow the log until ``stop`` is set, however often the device fails meanwhile."""
        if self._any_facility:
            self._warn("kernel log records of every facility are believed: any program on this node can forge a fault")
        while not stop.is_set():
            try:
                self._device.open()
                try:
                    self._follow(emit, stop)
                finally:
                    self._device.close()
            except SourceError as error:
                self._emit(emit, _told(SourceState(up=False, caught_up=False, reason=str(error))))
                self._clock.wait(stop, self._delay)
                self._delay = min(self._delay * 2, _LONGEST_DELAY)

    def _follow(self, emit: _Emit, stop: threading.Event) -> None:
        self._log.reopened()
        self._offset, self._fresh = self._suspended(), False
        self._emit(emit, _told(SourceState(up=True, caught_up=False)))
        caught_up = False
        while not stop.is_set():
            more = self._read_some(emit)
            timeout = self._emit_counts(emit)
            if more:
                continue
            if not caught_up:
                if not self._log.caught_up():
                    self._warn("the kernel log ends before the stored cursor: it is another one, and is read anew")
                    return
                caught_up = True
                self._emit(emit, _told(SourceState(up=True, caught_up=True)))
            self._device.wait(timeout)
            self._fresh = True
        self._counted_at = -math.inf
        self._emit_counts(emit)

    def _read_some(self, emit: _Emit) -> bool:
        """Take what waits, up to a Batch's worth; whether more may wait."""
        raws: list[bytes] = []
        before = self._log.cursor
        try:
            return self._gather(raws)
        finally:
            # also what was read before the device went
            batch = self._log.feed(raws)
            if self._log.cursor != before:
                self._delay = _FIRST_DELAY
            if batch is not None:
                self._emit(emit, batch)

    def _gather(self, raws: list[bytes]) -> bool:
        while len(raws) < _RECORDS_PER_BATCH:
            try:
                raws += self._device.read()
            except BlockingIOError:
                return False
            except BrokenPipeError:
                self._log.overrun()
                return True
        return True

    def _emit_counts(self, emit: _Emit) -> float | None:
        """Emit counts that are due; the seconds until they are, or None when none can be waiting."""
        now = self._clock.boot()
        due = self._counted_at + _COUNTS_EVERY - now
        if due > 0:
            return due
        batch = self._log.drain()
        if batch is not None:
            self._counted_at = now
            self._emit(emit, batch)
        return None

    def _emit(self, emit: _Emit, batch: Batch) -> None:
        state = self._log.state()
        with self._lock:
            self._unsettled.append((batch, state))
        emit(batch)

    def _engine_time(self, stamp: float) -> float:
        """When a record was printed. Never later than now.

        printk's clock is not disciplined and drifts from the others by seconds a day (sched_clock), so the first
        event after a wait, which has just happened, sets the offset anew.
        """
        now = self._clock.boot()
        if self._fresh:
            self._offset, self._fresh = now - stamp, False
        return min(now, stamp + self._offset)


def _told(state: SourceState) -> Batch:
    return Batch(source=SOURCE, facts=(state,))
