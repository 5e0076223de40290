"""Everything that listens to the loop, behind one ``tell`` that never blocks: incidents, Events, numbers."""

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from nodeguard.kube.api import Api
from nodeguard.kube.events import EventQueue
from nodeguard.model.clock import Clock
from nodeguard.remediation.announce import events_of
from nodeguard.remediation.happenings import Happening
from nodeguard.remediation.incidents import Incidents

_BURST = 25
_PERIOD = 1.0
"""A whole cluster's loop tells more than one node's agent; the budget and the storm brake bound it before this does."""

_STOP_CHECK = 0.5


class Meter(Protocol):
    """Numbers for the metrics page. Called from one thread."""

    def begun(self) -> None:
        """A piece of work was begun."""
        ...

    def closed(self, outcome: str) -> None:
        """It has ended."""
        ...

    def reached(self, phase: str, seconds: float) -> None:
        """An incident reached a phase, so long after its fault was detected."""
        ...

    def restarted(self, kind: str) -> None:
        """A gang was suspended to be restarted."""
        ...


class Outlets:
    """Takes each happening at once and tells it on its own threads, which :attr:`runs` names for the caller to start.

    ``identity``: which replica tells. ``report`` is told of each new kind of failure of the API and of its end.
    """

    def __init__(self, api: Api, clock: Clock, namespace: str, identity: str, meter: Meter, *,  # noqa: PLR0913
                 report: Callable[[str, str], None] = lambda _what, _text: None) -> None:
        self._namespace, self._identity, self._meter = namespace, identity, meter
        self._queue: queue.SimpleQueue[Happening] = queue.SimpleQueue()
        self._suspended: set[str] = set()
        """UIDs of owners whose restart is under way: who joins one does not begin one."""
        self._lock = threading.Lock()
        self.incidents = Incidents(api, clock, namespace, report=report)
        self.events = EventQueue(api, clock, identity, burst=_BURST, period=_PERIOD)

    @property
    def runs(self) -> Mapping[str, Callable[[threading.Event], None]]:
        """Name → what a thread of this name is to run until the event is set."""
        return {"happenings": self.run, "events": self.events.run, "incidents": self.incidents.run}

    @property
    def waiting(self) -> int:
        """Happenings not taken yet."""
        return self._queue.qsize()

    def tell(self, told: Happening) -> None:
        """Take a happening. Returns at once, from any thread."""
        self._queue.put(told)

    def run(self, stop: threading.Event) -> None:
        """Pass on until ``stop`` is set; returns within half a second after."""
        while not stop.is_set():
            self.drain(_STOP_CHECK)

    def close(self) -> None:
        """After the loop and the threads of :attr:`runs` have ended: pass on and write what is left, once."""
        self.drain()
        self.incidents.close()
        self.events.turn()

    def drain(self, timeout: float = 0.0) -> None:
        """Pass on everything that waits; wait at most ``timeout`` seconds for the first."""
        try:
            self._pass_on(self._queue.get(timeout=timeout) if timeout > 0 else self._queue.get_nowait())
            while True:
                self._pass_on(self._queue.get_nowait())
        except queue.Empty:
            return

    def _pass_on(self, told: Happening) -> None:
        with self._lock:
            taken = self.incidents.take(told)
            self.events.enqueue(events_of(told, namespace=self._namespace, identity=self._identity))
            for phase, seconds in ({} if taken is None else taken.reached).items():
                self._meter.reached(phase, seconds)
            self._count(told)

    def _count(self, told: Happening) -> None:
        owner = "" if told.owner is None else told.owner.uid
        if told.what == "begun":
            self._meter.begun()
        elif told.what == "closed":
            self._meter.closed(told.text)
        elif told.what == "resumed":
            self._suspended.discard(owner)
        elif told.what == "suspended" and told.owner is not None and owner not in self._suspended:
            self._suspended.add(owner)
            self._meter.restarted(told.owner.kind)
