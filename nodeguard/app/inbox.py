"""The one queue between the agent's threads and its loop."""

import queue
import threading
from collections.abc import Callable, Sequence

from nodeguard.model.fault import Transition
from nodeguard.model.sample import Batch

Item = Batch | Callable[[], Sequence[Transition]]
"""A batch, or a call for the loop's own thread, which gives the transitions that it made."""

_LIMIT = 32
"""Batches that may wait, of at most some hundred KiB each. Then sources wait too: the kernel's ring counts what a flood
overwrites meanwhile."""

_PUT_CHECK = 0.2


class Inbox:
    """Bounded. Sources block while it is full; the loop takes many at once."""

    def __init__(self, stop: threading.Event) -> None:
        self._queue: queue.Queue[Item] = queue.Queue(_LIMIT)
        self._stop = stop

    def put(self, item: Item) -> None:
        """Hand over a batch, or a call for the loop's own thread. From any thread."""
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=_PUT_CHECK)
            except queue.Full:
                continue
            return

    def take(self, timeout: float, most: int) -> list[Item]:
        """What waits, at most ``most``; waits up to ``timeout`` seconds for the first."""
        items: list[Item] = []
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
            self._queue.put_nowait(tuple)
        except queue.Full:
            return
