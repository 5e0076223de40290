"""Sources that read the whole of something once a period: what a poll is, and the thread that does it.

A poll runs in a worker that can be left behind: reading sysfs may hang with the firmware of a card, and a file system
with its server.
"""

import dataclasses
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from nodeguard.model.clock import Clock
from nodeguard.model.device import NODE
from nodeguard.model.sample import Batch, Fact, Missed, SourceState, Stalled
from nodeguard.sources.workers import Crew, Outcome

_DEADLINE = 0.9
_WORKER = "poll"


class Poll(Protocol):
    """What is read. Not for several threads."""

    @property
    def name(self) -> str:
        """The ``source`` of its Batches."""
        ...

    @property
    def period(self) -> float:
        """Seconds between the beginnings of two polls."""
        ...

    def poll(self, now: float) -> Batch:
        """Read all of it at engine time ``now``. A poll that cannot see says so with a SourceState and Missed."""
        ...


class Sight:
    """Adds to a source's batches that it can see, where that is new and the batch does not say itself."""

    def __init__(self) -> None:
        self._up: bool | None = None

    def of(self, batch: Batch) -> Batch:
        """The batch, with the source's state."""
        own = [fact.up for fact in batch.facts if isinstance(fact, SourceState)]
        if own:
            self._up = own[-1]
            return batch
        if self._up:
            return batch
        self._up = True
        return dataclasses.replace(batch, facts=(SourceState(up=True), *batch.facts))


class PolledSource:
    """Runs a :class:`Poll` as a :class:`nodeguard.sources.runner.Source`.

    A poll that hangs is told as stalled and waited for; no second one is begun meanwhile. One that raises costs itself.
    """

    def __init__(self, poll: Poll, clock: Clock, *, deadline: float = _DEADLINE) -> None:
        """``deadline`` in seconds: a poll that is out longer is told as stalled."""
        self._poll, self._clock, self._deadline = poll, clock, deadline
        self._crew = Crew()
        self._sight = Sight()
        self._stalled = False
        self._due = float("-inf")

    @property
    def name(self) -> str:
        """See :class:`Poll`."""
        return self._poll.name

    def wake(self) -> None:
        """Make :meth:`run` look at its ``stop``."""
        self._crew.hurry()

    def run(self, emit: Callable[[Batch], None], stop: threading.Event) -> None:
        """Poll until ``stop`` is set."""
        while not stop.is_set():
            for batch in self.turn():
                emit(batch)
            self._clock.wait(stop, max(0.0, self._due - self._clock.boot()))
        self._crew.dismiss()

    def turn(self) -> tuple[Batch, ...]:
        """One poll, or the report that the last one is still out."""
        now = self._clock.boot()
        self._due = max(self._due + self._poll.period, now)
        if self._crew.idle(_WORKER):
            self._crew.give(_WORKER, partial(self._poll.poll, now), now)
        outcomes = self._crew.collect(self._deadline)
        if outcomes:
            return tuple(self._answered(outcome) for outcome in outcomes)
        return (self._out(),) if self._crew.out() else ()

    def _out(self) -> Batch:
        since = self._crew.out()[_WORKER]
        facts: tuple[Fact, ...] = (Missed(),) if self._stalled else (Stalled(NODE, since), Missed())
        self._stalled = True
        return Batch(source=self.name, facts=facts)

    def _answered(self, outcome: Outcome) -> Batch:
        answered: tuple[Fact, ...] = (Stalled(NODE, None),) if self._stalled else ()
        self._stalled = False
        if isinstance(outcome.value, Batch):
            batch = self._sight.of(outcome.value)
            return dataclasses.replace(batch, facts=(*answered, *batch.facts))
        reason = f"{type(outcome.error).__name__}: {outcome.error}"
        down = SourceState(up=False, reason=reason)
        return self._sight.of(Batch(source=self.name, facts=(*answered, down, Missed())))
