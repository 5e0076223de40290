"""Trackers of events: bare rules and counts, and the recognition of one occurrence told by several sources."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodeguard.engine.compile import Compiled
from nodeguard.engine.faults import Claims, Occurrence
from nodeguard.engine.predicates import as_text
from nodeguard.engine.trackers import Moment
from nodeguard.engine.windows import EventWindow, QuietClock
from nodeguard.model.device import Device, is_within
from nodeguard.model.rule import Count
from nodeguard.model.sample import Attribute, Event

SAME_OCCURRENCE_SECONDS = 5.0
"""Two sources that tell the same (device, code) within so long tell of one occurrence."""

_TELLINGS_REMEMBERED = 64


class EventTracker:
    """A bare or ``count`` rule on one device (and one group of ``same`` attributes)."""

    def __init__(self, compiled: Compiled, device: Device, group: str, faults: Claims, moment: Moment) -> None:
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

    def join(self, other: "EventTracker") -> None:
        """``other`` counted for the same device under another name."""
        self.firing = self.firing or other.firing
        self._windows = {**other._windows, **self._windows}  # noqa: SLF001 # of its own class
        if self.quiet.since is None or (other.quiet.since or 0.0) > self.quiet.since:
            self.quiet = other.quiet

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
        self.quiet = QuietClock.restored(state["quiet"])
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


@dataclass(slots=True)
class Telling:
    """One occurrence: when, who told it, and which rules counted it."""

    at: float
    sources: list[str]
    rules: list[str]


class SeenElsewhere:
    """Recognises an occurrence that another source told within the last seconds."""

    def __init__(self) -> None:
        self._recent: dict[tuple[str, Device, str], list[Telling]] = {}

    def telling(self, now: float, source: str, event: Event) -> "Telling":
        """The occurrence that ``source`` tells of: a new one, or one that another source told just before."""
        key = (event.signal, event.device, as_text(event.attributes.get("code", "")))
        at = now if event.at is None else event.at
        entries = [entry for entry in self._recent.get(key, ()) if abs(at - entry.at) <= SAME_OCCURRENCE_SECONDS]
        found = next((entry for entry in entries if source not in entry.sources), None)
        if found is None:
            found = Telling(at, [source], [])
            # equal sources are told apart by number, not kept: the newest few are enough to pair with
            entries = [*entries[-_TELLINGS_REMEMBERED:], found]
        else:
            found.sources.append(source)
        self._recent[key] = entries
        return found

    def rename(self, old: Device, new: Device) -> None:
        """A device's true name became known."""
        for key in [key for key in self._recent if is_within(key[1], old)]:
            entries = self._recent.pop(key)
            renamed = (key[0], Device(new + key[1].removeprefix(old)), key[2])
            self._recent[renamed] = [*self._recent.get(renamed, ()), *entries]

    def keep_bounded(self, now: float, limit: int) -> None:
        """Above ``limit`` devices and codes, drop what can no longer be a repeat."""
        if len(self._recent) <= limit:
            return
        horizon = now - 2 * SAME_OCCURRENCE_SECONDS
        self._recent = {key: entries for key, entries in self._recent.items() if entries and entries[-1].at >= horizon}

    def state(self) -> list[list[Any]]:
        """For the store."""
        return [[*key, [[one.at, one.sources, one.rules] for one in entries]] for key, entries in self._recent.items()]

    def restore(self, state: list[list[Any]]) -> None:
        """Take back what :meth:`state` gave."""
        self._recent = {(str(signal), Device(device), str(code)):
                        [Telling(float(at), list(sources), list(rules)) for at, sources, rules in entries]
                        for signal, device, code, entries in state}
