"""When a client that follows Nodes, pods and Jobs first sees what is waited for: the demo's stop-watch."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from nodeguard.kube.api import Api, Object
from nodeguard.kube.informer import Informer
from nodeguard.model.clock import SystemClock
from nodeguard.model.errors import NodeguardError
from nodeguard.sim.cluster import JOBS, NODES, PODS


@dataclass(slots=True)
class Seen:
    """Everything as it was last told. Objects are not changed in place."""

    nodes: dict[str, Object] = field(default_factory=dict)
    """By name."""
    pods: dict[str, Object] = field(default_factory=dict)
    """By ``namespace/name``, so the others."""
    jobs: dict[str, Object] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Expected:
    """Something that is waited for."""

    what: str
    """For people; made by :attr:`words` when it has come, if that is given."""
    holds: Callable[[Seen], Any]
    words: Callable[[Seen], str] | None = None
    after: "Expected | None" = None
    """What must have come before this counts."""
    at: float | None = None
    """Monotonic time (``time.monotonic``) at which it was first seen."""


class ClusterView:
    """Follows the collections, and stamps what is expected. A context manager.

    What is expected before something is done is seen however short it lasts, because it is looked for at every change.
    """

    def __init__(self, api: Api) -> None:
        self._seen = Seen()
        self._changed = threading.Condition()
        self._open: list[Expected] = []
        self._stop = threading.Event()
        clock = SystemClock()
        self._informers: list[Informer[Object]] = []
        self._threads = []
        for path, store in ((NODES, self._seen.nodes), (PODS, self._seen.pods), (JOBS, self._seen.jobs)):
            informer: Informer[Object] = Informer(api, path, clock, reduce=lambda item: item)
            self._informers.append(informer)
            self._threads.append(threading.Thread(target=informer.run, args=(self._noting(store), self._stop),
                                                  name="view", daemon=True))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2.0)

    def _noting(self, store: dict[str, Object]) -> Callable[[str, Object | None, Object | None], None]:
        def note(key: str, _old: Object | None, new: Object | None) -> None:
            at = time.monotonic()
            with self._changed:
                if new is None:
                    store.pop(key, None)
                else:
                    store[key] = new
                self._look(at)
        return note

    def _look(self, at: float) -> None:
        come = [one for one in self._open if (one.after is None or one.after.at is not None) and one.holds(self._seen)]
        for one in come:
            one.at = at
            if one.words is not None:
                one.what = one.words(self._seen)
        if come:
            self._open = [one for one in self._open if one.at is None]
            self._changed.notify_all()

    def expect(self, *wanted: Expected) -> None:
        """Look for these from now on."""
        with self._changed:
            self._open += wanted
            self._look(time.monotonic())

    def come(self, wanted: Sequence[Expected], seconds: float) -> Iterator[Expected]:
        """Each of them once it has come, in the order in which they came. NodeguardError: not all did in time."""
        deadline, left = time.monotonic() + seconds, list(wanted)
        while left:
            for one in self._next(left, deadline):
                left.remove(one)
                yield one

    def _next(self, left: Sequence[Expected], deadline: float) -> list[Expected]:
        with self._changed:
            while not any(one.at is not None for one in left):
                rest = deadline - time.monotonic()
                if rest <= 0 or not self._changed.wait(rest):
                    raise NodeguardError(f"not seen in time: {left[0].what}{self._trouble()}")
            return sorted((one for one in left if one.at is not None), key=lambda one: one.at or 0.0)

    def _trouble(self) -> str:
        failures = {informer.failure for informer in self._informers if informer.failure}
        return "".join(f"; {failure}" for failure in sorted(failures))

    def now(self, look: Callable[[Seen], Any]) -> Any:
        """What ``look`` makes of everything as it is now."""
        with self._changed:
            return look(self._seen)

    def stays(self, holds: Callable[[Seen], Any], seconds: float) -> bool:
        """Whether something holds now and at every change for so long."""
        broken = Expected("", lambda seen: not holds(seen))
        self.expect(broken)
        with self._changed:
            return not self._changed.wait_for(lambda: broken.at is not None, seconds)
