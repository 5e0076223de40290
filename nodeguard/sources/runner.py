"""Runs one source in a thread of its own, so that whatever happens to it stays with it."""

import threading
from collections.abc import Callable
from typing import Protocol

from nodeguard.model.clock import Clock
from nodeguard.model.sample import Batch, SourceState

_FIRST_DELAY = 0.1  # seconds until the first restart; doubles
_LONGEST_DELAY = 30.0
_HEALTHY_AFTER = 60.0  # a run this long starts the delays anew


class Source(Protocol):
    """A part that reads the world until it is told to stop."""

    @property
    def name(self) -> str:
        """The ``source`` of its Batches."""
        ...

    def run(self, emit: Callable[[Batch], None], stop: threading.Event) -> None:
        """Read and emit until ``stop`` is set."""
        ...

    def wake(self) -> None:
        """End any wait of :meth:`run`, so that it sees ``stop``. From any thread."""
        ...


class SourceThread:
    """Keeps a source running: a run that fails or ends is reported, told as down, and started again with back-off."""

    def __init__(self, source: Source, emit: Callable[[Batch], None], clock: Clock,
                 report: Callable[[str, Exception | None], None]) -> None:
        self._source = source
        self._emit = emit
        self._clock = clock
        self._report = report
        """Told the source's name and its error; None: it ended although nobody asked it to."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_running, name=f"source-{source.name}", daemon=True)

    @property
    def name(self) -> str:
        """The source's name."""
        return self._source.name

    def start(self) -> None:
        """Start the thread. Once only."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the source to end; :meth:`join` waits for it."""
        self._stop.set()
        self._source.wake()

    def alive(self) -> bool:
        """Whether the thread runs. It does until stopped: a dead one is a defect."""
        return self._thread.is_alive()

    def join(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds; whether it has ended. A hung one is left to the process's end."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _keep_running(self) -> None:
        delay = _FIRST_DELAY
        while not self._stop.is_set():
            started = self._clock.boot()
            error = self._run_once()
            if self._stop.is_set():
                return
            if self._clock.boot() - started >= _HEALTHY_AFTER:
                delay = _FIRST_DELAY
            reason = "it ended" if error is None else f"{type(error).__name__}: {error}"
            self._emit(Batch(source=self.name, facts=(SourceState(up=False, caught_up=False, reason=reason),)))
            self._clock.wait(self._stop, delay)
            delay = min(delay * 2, _LONGEST_DELAY)

    def _run_once(self) -> Exception | None:
        try:
            self._source.run(self._emit, self._stop)
        except Exception as error:  # noqa: BLE001 - the one place that isolates sources: a defect of one stops no other
            self._report(self.name, error)
            return error
        if not self._stop.is_set():
            self._report(self.name, None)
        return None
