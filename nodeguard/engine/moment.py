"""The engine's notion of now: which boot, which sources can see and have been read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nodeguard.engine.trackers import BOOT_GRACE_SECONDS

AGENT = "agent"
FOLLOWED = frozenset({"kmsg", "nvml_events"})
"""Sources that follow and do not poll: they have been read whole when nothing more waits."""


@dataclass(slots=True)
class Source:
    """A source, as far as the engine knows it."""

    up: bool = True
    caught_up: bool = True
    polled: bool = False
    """Whether it has brought readings that were not left over from before."""
    followed: bool = False
    """Whether it was up and had read what waited, once. Neither this nor ``polled`` ends with a later blindness."""
    stalled: bool = False
    """Whether it has said, once, that nothing behind it answers."""


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
        return source == AGENT if known is None else known.up

    def told(self, source: str, *, readings: bool) -> None:
        """A batch came from this source."""
        known = self.known.get(source)
        if known is None:
            known = self.known[source] = Source()
        # readings among what waited at the start do not make it read whole
        known.polled = known.polled or (readings and known.caught_up)

    def set_state(self, source: str, *, up: bool, caught_up: bool) -> None:
        """The source said whether it can see."""
        known = self.known.setdefault(source, Source())
        known.up = up
        # what was caught up once stays so: a later re-opening is a gap, not a beginning
        known.caught_up = known.followed or caught_up
        known.followed = known.followed or (up and caught_up)

    def stalled(self, source: str) -> None:
        """The source said that nothing behind it answers: its first reading is not worth waiting for."""
        self.known.setdefault(source, Source()).stalled = True

    def judged(self, sources: Iterable[str], *, events: bool) -> bool:
        """Whether a rule that reads one of ``sources`` has judged once: one of those that are here was read whole."""
        here = [name for name in (*self.known, *(self._configured or ())) if name.partition("/")[0] in sources]
        if not here or AGENT in sources:
            return True  # what the agent does not say of itself has not changed
        return any(self._is_judged(name, events=events) for name in here)

    def _is_judged(self, name: str, *, events: bool) -> bool:
        known = self.known.get(name)
        if known is None:
            return False
        return known.followed if events or name in FOLLOWED else known.polled

    def readable(self, sources: Iterable[str]) -> bool:
        """Whether this agent has one of these sources at all; a replay takes what comes."""
        here = {AGENT, *(name.partition("/")[0] for name in self._configured or ())}
        return self._configured is None or not here.isdisjoint(sources)

    @property
    def ready(self) -> bool:
        """Whether every configured source has been read whole once, or has said that it cannot see or hangs."""
        return all(self._is_ready(name) for name in self._configured or ())

    def _is_ready(self, name: str) -> bool:
        known = self.known.get(name)
        return known is not None and (not known.up or known.stalled or self._is_judged(name, events=False))

    def reboot(self) -> None:
        """Every source starts anew."""
        self.known.clear()

    def state(self) -> dict[str, Any]:
        """For the store."""
        return {"boot_at": None if self.boot_at == float("-inf") else self.boot_at,
                "known": {name: [one.up, one.caught_up, one.polled, one.followed, one.stalled]
                          for name, one in self.known.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self.boot_at = float("-inf") if state["boot_at"] is None else float(state["boot_at"])
        self.known = {str(name): Source(*map(bool, values)) for name, values in state["known"].items()}
