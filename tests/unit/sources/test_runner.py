"""The thread around one source: its failures stay its own."""

import itertools
import threading
from collections.abc import Callable

from nodeguard.model.clock import FakeClock
from nodeguard.model.sample import Batch, SourceState
from nodeguard.sources.runner import SourceThread

DEADLINE = 10.0  # seconds; reached only by a failure


class Scripted:
    """Fails or ends as told, one step a run, then reads until stopped."""

    name = "scripted"

    def __init__(self, *steps: Exception | None) -> None:
        self._steps = list(steps)
        self._woken = threading.Event()
        self.reading = threading.Event()

    def run(self, emit: Callable[[Batch], None], stop: threading.Event) -> None:
        if self._steps:
            step = self._steps.pop(0)
            if step is not None:
                raise step
            return
        self.reading.set()
        while not stop.is_set():
            self._woken.wait(DEADLINE)

    def wake(self) -> None:
        self._woken.set()


def test_a_failing_source_is_reported_and_started_again() -> None:
    """Errors and an end that nobody asked for: told as down, restarted with growing delays."""
    clock, source = FakeClock(boot=0.0), Scripted(ValueError("odd"), None)
    emitted, reported = list[Batch](), list[tuple[str, str]]()
    thread = SourceThread(source, emitted.append, clock, lambda name, error: reported.append((name, repr(error))))
    thread.start()
    assert source.reading.wait(DEADLINE)
    assert thread.alive()
    thread.stop()
    assert thread.join(DEADLINE)
    assert reported == [("scripted", "ValueError('odd')"), ("scripted", "None")]
    assert [(batch.source, batch.facts) for batch in emitted] == [
        ("scripted", (SourceState(up=False, caught_up=False, reason="ValueError: odd"),)),
        ("scripted", (SourceState(up=False, caught_up=False, reason="it ended"),)),
    ]
    assert round(clock.boot(), 6) == 0.3


def test_a_long_run_starts_the_delays_anew() -> None:
    """A source that failed an hour after its last failure is started at once again."""
    clock, waits = FakeClock(boot=0.0), list[float]()
    ended = threading.Event()

    class LongRuns(Scripted):
        def run(self, emit: Callable[[Batch], None], stop: threading.Event) -> None:
            waits.append(clock.boot())
            if len(waits) == 4:
                stop.set()
                ended.set()
                return
            clock.advance(3600.0 if len(waits) == 3 else 0.0)
            raise OSError("gone")

    thread = SourceThread(LongRuns(), lambda _: None, clock, lambda *_: None)
    thread.start()
    assert ended.wait(DEADLINE)
    assert thread.join(DEADLINE)
    assert [round(later - earlier, 6) for earlier, later in itertools.pairwise(waits)] == [0.1, 0.2, 3600.1]


def test_a_hung_source_does_not_hold_the_end() -> None:
    """Join gives up after its time and says so; the thread is a daemon."""
    release = threading.Event()

    class Hung(Scripted):
        def run(self, emit: Callable[[Batch], None], stop: threading.Event) -> None:
            self.reading.set()
            release.wait(DEADLINE)

    source = Hung()
    thread = SourceThread(source, lambda _: None, FakeClock(), lambda *_: None)
    thread.start()
    assert source.reading.wait(DEADLINE)
    thread.stop()
    assert not thread.join(0.01)
    release.set()
    assert thread.join(DEADLINE)
