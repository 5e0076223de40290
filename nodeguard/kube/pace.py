"""How often one may speak to the API server: a back-off after failures and a token bucket. Time is an argument."""

import hashlib
import threading
from collections.abc import Callable

from nodeguard.model.clock import Clock


class Backoff:
    """Waits that double from ``first`` to ``limit`` seconds, scaled by ``spread`` so that a fleet does not march."""

    def __init__(self, first: float, limit: float, spread: float = 1.0) -> None:
        self._first = first
        self._limit = limit
        self._spread = spread
        self._next = first

    def next(self, asked: float | None = None) -> float:
        """Seconds to wait before the next try; at least what the server ``asked`` for, at most a minute of that."""
        wait = min(self._next, self._limit) * self._spread
        self._next = min(self._next * 2, self._limit)
        return max(wait, min(asked or 0.0, _MOST_ASKED))

    def reset(self) -> None:
        """Start again from ``first``: a try succeeded."""
        self._next = self._first


class TokenBucket:
    """At most ``burst`` deeds at once and ``per_second`` on average."""

    def __init__(self, burst: int, per_second: float) -> None:
        self._burst = burst
        self._per_second = per_second
        self._tokens = float(burst)
        self._filled_at: float | None = None

    def wait(self, now: float) -> float:
        """Seconds until a token is there; 0 when one is there now. ``now`` is engine time."""
        self._fill(now)
        return 0.0 if self._tokens >= 1.0 - _EPSILON else (1.0 - self._tokens) / self._per_second

    def take(self, now: float) -> None:
        """Use one token; call it only after :meth:`wait` said 0."""
        self._fill(now)
        self._tokens -= 1.0

    def _fill(self, now: float) -> None:
        if self._filled_at is not None:
            gained = max(0.0, now - self._filled_at) * self._per_second
            self._tokens = min(float(self._burst), self._tokens + gained)
        self._filled_at = now


def repeat(turn: Callable[[], float], wake: threading.Event, clock: Clock, stop: threading.Event) -> None:
    """Call ``turn`` until ``stop`` is set: again when ``wake`` is, or after as many seconds as it says.

    Returns within half a second after ``stop``, or when the request under way ends.
    """
    while not stop.is_set():
        wake.clear()
        clock.wait(wake, min(turn(), _STOP_CHECK))


def spread_of(name: str) -> float:
    """A number in [-1, 1) that is always the same for a node and differs between nodes."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**31 - 1.0


_MOST_ASKED = 60.0
_EPSILON = 1e-6
_STOP_CHECK = 0.5
