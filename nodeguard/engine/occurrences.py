"""Trackers of events: bare rules and counts, and the recognition of one occurrence told by several sources."""

from collections.abc import Mapping
from typing import Any

from nodeguard.engine.compile import Compiled
from nodeguard.engine.faults import FaultTable, Occurrence
from nodeguard.engine.predicates import as_text
from nodeguard.engine.trackers import Moment
from nodeguard.engine.windows import EventWindow, QuietClock
from nodeguard.model.device import Device
from nodeguard.model.rule import Count
from nodeguard.model.sample import Attribute, Event

SAME_OCCURRENCE_SECONDS = 5.0
"""Two sources that tell the same (device, code) within so long tell of one occurrence."""

_SOURCES_REMEMBERED = 64


class EventTracker:
    """A bare or ``count`` rule on one device (and one group of ``same`` attributes)."""

    def __init__(self, compiled: Compiled, device: Device, group: str, faults: FaultTable, moment: Moment) -> None:
        self.compiled = compiled
        self.device = device
        self.group = group
        self._faults = faults
        self._moment = moment
        test = compiled.rule.test
        self._count = test if isinstance(test, Count) else None
        self._windows: dict[str, EventWindow] = {}
        self._source = ""
        self.firing = False
        self.quiet = QuietClock()

    @property
    def holder(self) -> str:
        """See :class:`nodeguard.engine.trackers.Tracker`."""
        return f"{self.device}[{self.group}]"

    def event(self, now: float, source: str, event: Event, pod: str | None) -> None:
        """One matching occurrence."""
        self._source = source
        enough = self._enough(now, source, event, pod)
        if enough and not self.firing:
            self.firing = not self.compiled.rule.require or bool(self.compiled.holds(self.device))
        if self.firing:
            self._faults.claim(self.compiled, self.device, self.holder, now, _occurrence(source, event, now))
            self.quiet.restart(now, running=self.may_run())

    def _enough(self, now: float, source: str, event: Event, pod: str | None) -> bool:
        if self._count is None:
            return True
        value = ""
        if self._count.distinct is not None:
            told = event.attributes.get(self._count.distinct)
            value = as_text(told) if told is not None else (pod or "") if self._count.distinct == "pod" else ""
            if not value:
                return False
        window = self._windows.get(source)
        if window is None:
            window = self._windows[source] = self._new_window(self._count)
        stamp = now if event.stamp is None else event.stamp
        return window.add(stamp, value) >= self._count.at_least

    @staticmethod
    def _new_window(count: Count) -> EventWindow:
        return EventWindow(count.within, count.at_least, distinct=count.distinct is not None)

    def may_run(self) -> bool:
        """Whether quiet counts now: the source is up and ``clear.while`` holds."""
        return self._moment.sees(self._source) and bool(self.compiled.may_clear(self.device))

    def quieted(self, now: float) -> None:
        """Quiet for long enough."""
        self.firing = False
        self._faults.release(self.compiled, self.device, self.holder, now,
                             f"no occurrence for {self.compiled.after:g} s")

    def ended(self) -> None:
        """See :class:`nodeguard.engine.trackers.Tracker`."""
        self.firing = False
        self._windows.clear()

    def take_over(self, now: float) -> None:
        """See :class:`nodeguard.engine.trackers.Tracker`."""
        self.firing = True
        self._source = self._source or self.compiled.signal.sources[0]
        self.quiet.restart(now, running=self.may_run())

    def state(self) -> dict[str, Any]:
        """For the store."""
        return {"firing": self.firing, "quiet": self.quiet.state(), "source": self._source,
                "windows": {source: window.state() for source, window in self._windows.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self.firing = bool(state["firing"])
        self.quiet = QuietClock(**state["quiet"])
        self._source = str(state["source"])
        if self._count is None:
            return
        for source, items in state["windows"].items():
            window = self._windows[str(source)] = self._new_window(self._count)
            for stamp, value in items:
                window.add(float(stamp), str(value))


def group_of(compiled: Compiled, event: Event) -> str | None:
    """The group in which a rule counts this event; None when an attribute it counts apart by is unknown."""
    test = compiled.rule.test
    if not isinstance(test, Count) or not test.same:
        return ""
    values = [event.attributes.get(name) for name in test.same]
    return None if None in values else ",".join(as_text(value) for value in values if value is not None)


def _occurrence(source: str, event: Event, now: float) -> Occurrence:
    evidence: dict[str, Attribute] = dict(event.attributes)
    if event.text:
        evidence["text"] = event.text
    key = f"{source}/{event.key}" if event.key else f"{source}@{now:.3f}"
    return Occurrence(evidence, key, event.at)


class SeenElsewhere:
    """Recognises an occurrence that another source told within the last seconds."""

    def __init__(self) -> None:
        self._recent: dict[tuple[str, Device, str], list[tuple[float, list[str]]]] = {}

    def is_repeat(self, now: float, source: str, event: Event) -> bool:
        """Whether this is the same occurrence as another source's; remembers it either way."""
        key = (event.signal, event.device, as_text(event.attributes.get("code", "")))
        at = now if event.at is None else event.at
        entries = [entry for entry in self._recent.get(key, ()) if abs(at - entry[0]) <= SAME_OCCURRENCE_SECONDS]
        for _, sources in entries:
            if source not in sources:
                sources.append(source)
                self._recent[key] = entries
                return True
        # equal sources are told apart by number, not kept: the newest few are enough to pair with
        self._recent[key] = [*entries[-_SOURCES_REMEMBERED:], (at, [source])]
        return False

    def keep_bounded(self, now: float, limit: int) -> None:
        """Above ``limit`` devices and codes, drop what can no longer be a repeat."""
        if len(self._recent) <= limit:
            return
        horizon = now - 2 * SAME_OCCURRENCE_SECONDS
        self._recent = {key: entries for key, entries in self._recent.items() if entries and entries[-1][0] >= horizon}

    def state(self) -> list[list[Any]]:
        """For the store."""
        return [[*key, [[at, sources] for at, sources in entries]] for key, entries in self._recent.items()]

    def restore(self, state: list[list[Any]]) -> None:
        """Take back what :meth:`state` gave."""
        self._recent = {(str(signal), Device(device), str(code)):
                        [(float(at), list(sources)) for at, sources in entries]
                        for signal, device, code, entries in state}
