"""Announces transitions as Events on the Node, where ``kubectl describe node`` and event pipelines show them."""

import hashlib
import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nodeguard.kube.api import Api, Object
from nodeguard.kube.pace import Backoff, TokenBucket, spread_of
from nodeguard.kube.patches import rfc3339
from nodeguard.model.clock import Clock
from nodeguard.model.errors import ApiConflict, ApiError, ApiUnavailable
from nodeguard.model.fault import Transition
from nodeguard.model.text import camel_case
from nodeguard.sinks.text import cut

COLLECTION = "/api/v1/namespaces/default/events"
"""Events about objects without a namespace live in ``default`` (core/v1 Event validation)."""

_WAITING = 100
_BURST = 10
_PERIOD = 10.0
_IDLE = 60.0
_STOP_CHECK = 0.5


@dataclass(frozen=True, slots=True)
class EventsStatus:
    """How the writer fares, for metrics."""

    written_total: int
    """Events that the API server took, or had already."""
    folded_total: int
    """Transitions told only as a number in an "and n more" Event."""
    refused_total: int
    """Events that the API server refused for good."""
    waiting: int


class EventWriter:
    """Tells each transition once.

    Its guarantees, and the periods that follow from them:

    1. **Once, and not lost.** An Event's name is a hash of what happened, so telling it again after a crash is answered
       with "already exists", which counts as told. What waits is in :meth:`state`, for the caller to keep on disk.
    2. **Never a flood.** Ten at once, then one each 10 s. When that is used up, all but the newest ten that wait are
       folded into one Event that says how many and of which rules.
    3. **It outlives an outage** with the newest 100, and their original times.

    Faults with effect ``none`` are not told.
    """

    def __init__(self, api: Api, node_name: str, clock: Clock) -> None:
        self._api = api
        self._node = node_name
        self._clock = clock
        self._bucket = TokenBucket(_BURST, 1.0 / _PERIOD)
        self._backoff = Backoff(0.2, 15.0, 1.0 + 0.25 * spread_of(node_name))
        self._not_before = clock.boot()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._queue: deque[Object] = deque()
        self._folded: Counter[str] = Counter()
        self._folded_from: Object | None = None
        self._telling: Object | None = None
        self._written = self._folded_total = self._refused = 0

    def announce(self, transitions: Iterable[Transition], boot_id: str) -> None:
        """Take transitions to tell. Returns at once, from any thread."""
        self.enqueue(self.compose(transitions, boot_id))

    def compose(self, transitions: Iterable[Transition], boot_id: str) -> list[Object]:
        """The Events that tell these transitions, for :meth:`enqueue`."""
        shift = self._clock.wall() - self._clock.boot()
        told = [one for one in transitions if one.fault.effect != "none"]
        events = [_event(self._node, boot_id, one, one.at + shift) for one in told]
        names: Counter[str] = Counter()
        for one, event in zip(told, events, strict=True):
            name = event["metadata"]["name"]
            names[name] += one.transition != "updated"
            if names[name] > 1:
                # a level that came, went and came again while nobody looked did so at one moment, and yet twice
                event["metadata"]["name"] = f"{name}-{names[name]}"
        return events

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
        while not stop.is_set():
            self._wake.clear()
            self._clock.wait(self._wake, min(self.turn(), _STOP_CHECK))

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
                self._fold(_BURST)
                return None
            if self._folded_from is not None:
                self._telling = self._and_more()
            else:
                self._telling = self._queue.popleft() if self._queue else None
            return self._telling

    def _tell(self, event: Object) -> None:
        try:
            self._api.post(COLLECTION, event)
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


def _event(node: str, boot_id: str, transition: Transition, at: float) -> Object:
    """A core/v1 Event. The kubelet gives its own about the Node the node's *name* as UID, and kubectl asks for that."""
    fault, time = transition.fault, rfc3339(at)
    closed = transition.transition == "closed"
    return {
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": _name(node, boot_id, transition), "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "type": "Normal" if closed or fault.severity == "info" else "Warning",
        "reason": camel_case(fault.rule) + ("Cleared" if closed else ""),
        "message": cut(_message(transition)),
        "firstTimestamp": time, "lastTimestamp": time, "count": 1,
        "source": {"component": "nodeguard", "host": node},
        "reportingComponent": "nodeguard", "reportingInstance": node,
    }


def _name(node: str, boot_id: str, transition: Transition) -> str:
    fault = transition.fault
    key = fault.key or f"{fault.since:.3f}"
    if "@" in key and transition.transition == "closed":
        # not a record but a moment: another life of the same level may have begun at it too
        key += f"/{transition.at:.3f}"
    deed = (node, boot_id, fault.rule, fault.device, transition.transition, key,
            fault.severity, fault.action, fault.effect, fault.would or "")
    return "nodeguard." + hashlib.sha256("\0".join(deed).encode()).hexdigest()[:32]


def _message(transition: Transition) -> str:
    fault = transition.fault
    told = fault.message if fault.device in fault.message else f"{fault.device}: {fault.message}"
    if transition.transition == "closed":
        return f"cleared: {told} ({transition.detail})"
    cure = "" if fault.action == "none" else f"; needs {fault.action}"
    held = "" if fault.would is None else f"; only observed, its effect would be {fault.would}"
    more = "" if fault.runbook is None else f"; see {fault.runbook}"
    return f"{told} ({transition.detail}){cure}{held}{more}"
