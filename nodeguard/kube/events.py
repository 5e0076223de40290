"""Events (core/v1): how one looks, and a queue that has them told soon, once and never as a flood."""

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodeguard.kube.api import Api, Object
from nodeguard.kube.pace import Backoff, TokenBucket, repeat, spread_of
from nodeguard.kube.patches import rfc3339
from nodeguard.kube.text import cut
from nodeguard.model.clock import Clock
from nodeguard.model.errors import ApiConflict, ApiError, ApiUnavailable

CLUSTER_NAMESPACE = "default"
"""Events about objects without a namespace live here (core/v1 Event validation)."""

_WAITING = 100
_IDLE = 60.0


@dataclass(frozen=True, slots=True)
class EventsStatus:
    """How the queue fares, for metrics."""

    written_total: int
    """Events that the API server took, or had already."""
    folded_total: int
    """Events told only as a number in an "and n more" Event."""
    refused_total: int
    """Events that the API server refused for good."""
    waiting: int


def about_node(name: str) -> Object:
    """A Node as an Event's object. The kubelet gives its own the node's *name* as UID, and kubectl asks for that."""
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}


def event_of(about: Object, *, name: str, at: float, reason: str, message: str, warning: bool,  # noqa: PLR0913
             reporter: str, instance: str) -> Object:
    """An Event. ``name`` should be a hash of what happened: told again, it is answered with "already exists".

    ``about`` is the involvedObject, ``at`` in Unix seconds, ``reporter`` the component and ``instance`` which one.
    """
    time = rfc3339(at)
    return {
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": about.get("namespace") or CLUSTER_NAMESPACE},
        "involvedObject": about, "type": "Warning" if warning else "Normal", "reason": reason, "message": cut(message),
        "firstTimestamp": time, "lastTimestamp": time, "count": 1, "source": {"component": reporter, "host": instance},
        "reportingComponent": reporter, "reportingInstance": instance,
    }


class EventQueue:
    """Tells each Event once.

    Its guarantees, and the periods that follow from them:

    1. **Once, and not lost.** Telling an Event again after a crash is answered with "already exists", which counts as
       told. What waits is in :meth:`state`, for the caller to keep on disk.
    2. **Never a flood.** ``burst`` at once, then one each ``period`` seconds. When that is used up, all but the newest
       ``burst`` that wait are folded into one Event that says how many and of which reasons.
    3. **It outlives an outage** with the newest 100, and their original times.
    """

    def __init__(self, api: Api, clock: Clock, name: str, *, burst: int = 10, period: float = 10.0) -> None:
        """``name``: whose queue it is, so that a fleet's tries do not march together."""
        self._api = api
        self._clock = clock
        self._burst = burst
        self._bucket = TokenBucket(burst, 1.0 / period)
        self._backoff = Backoff(0.2, 15.0, 1.0 + 0.25 * spread_of(name))
        self._not_before = clock.boot()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._queue: deque[Object] = deque()
        self._folded: Counter[str] = Counter()
        self._folded_from: Object | None = None
        self._telling: Object | None = None
        self._written = self._folded_total = self._refused = 0

    def enqueue(self, events: Sequence[Object]) -> None:
        """Take Events to tell. Returns at once, from any thread."""
        if not events:
            return
        with self._lock:
            self._queue.extend(events)
            self._fold(_WAITING)
        self._wake.set()

    def state(self, coming: Sequence[Object] = ()) -> Object:
        """JSON-able: what has not been told yet, the one under way included, and what is ``coming``."""
        with self._lock:
            telling = [] if self._telling is None else [self._telling]
            return {"waiting": [*telling, *self._queue, *coming][-_WAITING:], "folded": dict(self._folded),
                    "folded_from": self._folded_from}

    def restore(self, state: Mapping[str, object]) -> None:
        """Take up what :meth:`state` gave another process. Before :meth:`run` only."""
        waiting, folded, first = (state.get(key) for key in ("waiting", "folded", "folded_from"))
        if isinstance(folded, dict) and isinstance(first, dict):
            self._folded.update({str(reason): int(number) for reason, number in folded.items()})
            self._folded_from = first
        self.enqueue([event for event in waiting if isinstance(event, dict)] if isinstance(waiting, list) else [])

    def run(self, stop: threading.Event) -> None:
        """Write until ``stop`` is set; returns within half a second after, or when the request under way ends."""
        repeat(self.turn, self._wake, self._clock, stop)

    def turn(self) -> float:
        """Tell what may be told now; seconds until something else may be. Never raises."""
        now = self._clock.boot()
        if now < self._not_before:
            return self._not_before - now
        while (event := self._next(now)) is not None:
            try:
                self._tell(event)
            except ApiUnavailable as error:
                self._put_back(event)
                wait = self._backoff.next(error.retry_after)
                self._not_before = now + wait
                return wait
            self._telling = None
            self._bucket.take(now)
            self._backoff.reset()
        return self._bucket.wait(now) if self._queue or self._folded else _IDLE

    @property
    def status(self) -> EventsStatus:
        """How it fares now; from any thread."""
        return EventsStatus(self._written, self._folded_total, self._refused, len(self._queue))

    def _next(self, now: float) -> Object | None:
        with self._lock:
            if self._bucket.wait(now) > 0.0:
                self._fold(self._burst)
                return None
            if self._folded_from is not None:
                self._telling = self._and_more()
            else:
                self._telling = self._queue.popleft() if self._queue else None
            return self._telling

    def _tell(self, event: Object) -> None:
        try:
            self._api.post(f"/api/v1/namespaces/{event['metadata']['namespace']}/events", event)
        except ApiConflict:
            self._written += 1
        except ApiUnavailable:
            raise
        except ApiError:
            self._refused += 1
        else:
            self._written += 1

    def _put_back(self, event: Object) -> None:
        with self._lock:
            self._telling = None
            self._queue.appendleft(event)
            self._fold(_WAITING)

    def _fold(self, kept: int) -> None:
        """Fold the oldest that wait, so that ``kept`` stay. The caller holds the lock."""
        while len(self._queue) > kept:
            event = self._queue.popleft()
            self._folded[event["reason"]] += 1
            self._folded_total += 1
            self._folded_from = self._folded_from or event

    def _and_more(self) -> Object:
        first, counts = self._folded_from or {}, self._folded
        self._folded_from, self._folded = None, Counter()
        told = ", ".join(f"{number} {reason}" for reason, number in counts.most_common())
        name = f"{first['metadata']['name']}-more"
        return {**first, "metadata": {**first["metadata"], "name": name}, "type": "Warning",
                "reason": "NodeguardMoreEvents", "lastTimestamp": rfc3339(self._clock.wall()),
                "count": counts.total(), "message": cut(f"{counts.total()} more were not told one by one: {told}")}
