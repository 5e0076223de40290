"""The engine's notion of now: which boot, which sources can see and have been read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nodeguard.engine.trackers import BOOT_GRACE_SECONDS


@dataclass(slots=True)
class Source:
    """A source, as far as the engine knows it."""

    up: bool = True
    caught_up: bool = True
    polled: bool = False
    """Whether it has brought readings since it came up."""


class Sources:
    """Boot and sources. Implements :class:`nodeguard.engine.trackers.Moment`."""

    def __init__(self, configured: Iterable[str] | None) -> None:
        self.boot_id = ""
        self.boot_at = float("-inf")
        self._configured = None if configured is None else frozenset(configured)
        """Sources that this agent reads; None: whichever tell something (a replay)."""
        self.known: dict[str, Source] = {}

    def in_boot_grace(self, now: float) -> bool:
        """See :class:`nodeguard.engine.trackers.Moment`."""
        return now - self.boot_at < BOOT_GRACE_SECONDS

    def sees(self, source: str) -> bool:
        """See :class:`nodeguard.engine.trackers.Moment`. The agent itself always sees."""
        known = self.known.get(source)
        return source == "agent" if known is None else known.up

    def told(self, source: str, *, readings: bool) -> None:
        """A batch came from this source."""
        known = self.known.get(source)
        if known is None:
            known = self.known[source] = Source()
        known.polled = known.polled or readings

    def set_state(self, source: str, *, up: bool, caught_up: bool) -> None:
        """The source said whether it can see."""
        known = self.known.setdefault(source, Source())
        known.up = up
        # what was caught up once stays judged: a later re-opening is a gap, not a beginning
        known.caught_up = known.caught_up if known.polled else caught_up
        known.polled = known.polled or (up and caught_up)

    def judged(self, sources: Iterable[str], *, events: bool) -> bool:
        """Whether a rule that reads one of ``sources`` has judged once: one of those that are here was read whole."""
        here = [name for name in (*self.known, *(self._configured or ())) if name.partition("/")[0] in sources]
        if not here:
            return True
        states = [self.known.get(name) for name in here]
        return any(state is not None and (state.up and state.caught_up if events else state.polled)
                   for state in states)

    @property
    def ready(self) -> bool:
        """Whether every configured source has been read whole once, or has said that it cannot see."""
        return all(name in self.known and (self.known[name].polled or not self.known[name].up)
                   for name in self._configured or ())

    def reboot(self) -> None:
        """Every source starts anew."""
        self.known.clear()

    def state(self) -> dict[str, Any]:
        """For the store."""
        return {"boot_at": None if self.boot_at == float("-inf") else self.boot_at,
                "known": {name: [one.up, one.caught_up, one.polled] for name, one in self.known.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self.boot_at = float("-inf") if state["boot_at"] is None else float(state["boot_at"])
        self.known = {str(name): Source(*map(bool, values)) for name, values in state["known"].items()}
