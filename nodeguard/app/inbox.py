"""The one queue between the agent's threads and its loop."""

import queue
import threading
from collections.abc import Callable

from nodeguard.model.sample import Batch

_LIMIT = 1024
"""Batches that may wait. Then sources wait too: the kernel's ring counts what a flood overwrites meanwhile."""

_PUT_CHECK = 0.2


class Inbox:
    """Bounded. Sources block while it is full; the loop takes many at once."""

    def __init__(self, stop: threading.Event) -> None:
        self._queue: queue.Queue[Batch | Callable[[], None]] = queue.Queue(_LIMIT)
        self._stop = stop

    def put(self, item: Batch | Callable[[], None]) -> None:
        """Hand over a batch, or a call for the loop's own thread. From any thread."""
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=_PUT_CHECK)
            except queue.Full:
                continue
            return

    def take(self, timeout: float, most: int) -> list[Batch | Callable[[], None]]:
        """What waits, at most ``most``; waits up to ``timeout`` seconds for the first."""
        items: list[Batch | Callable[[], None]] = []
        try:
            items.append(self._queue.get(timeout=max(timeout, 0.0)) if timeout > 0 else self._queue.get_nowait())
            while len(items) < most:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return items

    def wake(self) -> None:
        """End the loop's wait."""
        try:
            self._queue.put_nowait(lambda: None)
        except queue.Full:
            return
