"""Threads that carry out what waits for the API server."""

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

Call = Callable[[], None]


class Pool:
    """A fixed number of threads and one queue. Daemons: a request without an answer does not keep the process."""

    def __init__(self, size: int, broken: Callable[[str], None]) -> None:
        """``broken`` is told the name of a thread that a defect ended."""
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._stopped = False
        self._broken = broken
        self._threads = [threading.Thread(target=self._work, name=f"hand-{number}", daemon=True)
                         for number in range(size)]

    def start(self) -> None:
        """Begin to work."""
        for thread in self._threads:
            thread.start()

    def submit(self, call: Call) -> None:
        """Have it done. Returns at once; after :meth:`stop` nothing is done any more."""
        self._calls.put(call)

    def stop(self, seconds: float) -> None:
        """Let what is under way end, for at most so long; what waits is dropped."""
        self._stopped = True
        deadline = time.monotonic() + seconds
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        sound = False
        try:
            while (call := self._calls.get()) is not None:
                if not self._stopped:
                    call()
            sound = True
        finally:
            if not sound:
                self._broken(threading.current_thread().name)
