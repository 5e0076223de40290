"""Sliding windows over counter increments and events, and the quiet clock that ends what they opened."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any


class SumWindow:
    """Increments of one counter as told by one source, over the last ``span`` seconds (both ends included)."""

    __slots__ = ("_items", "span", "total")

    def __init__(self, span: float, items: Iterable[tuple[float, float]] = ()) -> None:
        self.span = span
        self._items: deque[tuple[float, float]] = deque(items)
        self.total = sum(amount for _, amount in self._items)

    def add(self, at: float, amount: float) -> None:
        """Take in ``amount`` at time ``at``; older increments fall out."""
        self.prune(at)
        if amount:
            self._items.append((at, amount))
            self.total += amount

    def prune(self, now: float) -> None:
        """Drop what is older than the span."""
        items = self._items
        while items and items[0][0] < now - self.span:
            self.total -= items.popleft()[1]
        if not items:
            self.total = 0.0

    def state(self) -> list[list[float]]:
        """For the store."""
        return [list(item) for item in self._items]


class EventWindow:
    """Stamps of events, with the value that must be distinct, over ``span`` seconds; memory bounded by ``limit``."""

    __slots__ = ("_distinct", "_items", "span")

    def __init__(self, span: float, limit: int, *, distinct: bool, items: Iterable[tuple[float, str]] = ()) -> None:
        self.span = span
        self._distinct = distinct
        # the newest `limit` (distinct ones) decide whether `limit` happened within the span
        self._items: deque[tuple[float, str]] = deque(items, maxlen=limit)

    def add(self, stamp: float, value: str) -> int:
        """Take in one event; the number that counts now."""
        items = self._items
        if self._distinct:
            kept = [item for item in items if item[1] != value]
            items.clear()
            items.extend(kept)
        items.append((stamp, value))
        newest = max(item[0] for item in items)
        while items and items[0][0] < newest - self.span:
            items.popleft()
        return len(items)

    def state(self) -> list[list[Any]]:
        """For the store."""
        return [list(item) for item in self._items]


class QuietClock:
    """Counts the time in which nothing new came although it could have been seen.

    It runs only while told that it may (the source is up, the rule's ``while`` holds).
    """

    __slots__ = ("elapsed", "since")

    def __init__(self, elapsed: float = 0.0, since: float | None = None) -> None:
        self.elapsed = elapsed
        self.since = since

    def restart(self, now: float, *, running: bool) -> None:
        """Something new came."""
        self.elapsed = 0.0
        self.since = now if running else None

    def run(self, now: float, *, running: bool) -> None:
        """From ``now`` on the clock runs, or stands."""
        if running and self.since is None:
            self.since = now
        elif not running and self.since is not None:
            self.elapsed += now - self.since
            self.since = None

    def due(self, after: float) -> float | None:
        """When ``after`` seconds of quiet will be full if nothing changes; None while it stands."""
        return None if self.since is None else self.since + max(0.0, after - self.elapsed)

    def state(self) -> Mapping[str, float | None]:
        """For the store."""
        return {"elapsed": self.elapsed, "since": self.since}

    @classmethod
    def restored(cls, state: Mapping[str, Any], shift: float = 0.0) -> "QuietClock":
        """The clock that :meth:`state` told of; ``shift`` turns times of an earlier boot into this one's."""
        since = state["since"]
        return cls(float(state["elapsed"]), None if since is None else float(since) + shift)
