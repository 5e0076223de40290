"""Companions that are counters: whether something moves beside what a rule judges."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nodeguard.engine.predicates import Truth
from nodeguard.engine.windows import SumWindow
from nodeguard.model.device import Device, kind_of
from nodeguard.model.rule import Slow

if TYPE_CHECKING:
    from nodeguard.engine.compile import Compiled
    from nodeguard.engine.series import Series

SeriesOf = Callable[[str], Iterable["Series"]]
"""Every series of a signal."""


class PaceTracker:
    """How fast one counter grew lately. It opens nothing: a rule about another signal asks it."""

    def __init__(self, compiled: "Compiled", slow: Slow, series: "Series") -> None:
        self.compiled = compiled
        self.device = series.device
        self.slow = slow
        self._series = series
        self._window = SumWindow(slow.over)
        self._since: float | None = None
        self._last = 0.0

    @property
    def holder(self) -> str:
        """See :class:`nodeguard.engine.trackers.Tracker`."""
        return f"{self.device}[pace]"

    @property
    def truth(self) -> Truth:
        """Whether it grew as slowly as the rule says; None while it was not watched for the whole time."""
        if self._since is None or self._series.value is None or self._last - self._since < self.slow.over:
            return None
        return self._window.total / self.slow.over < self.slow.below

    def sample(self, now: float, grown: float | None) -> None:
        """See :class:`nodeguard.engine.trackers.Tracker`."""
        if grown is None or self._since is None:
            self.ended()
            self._since = now
        self._last = now
        self._window.add(now, grown or 0.0)

    def aged_out(self) -> None:
        """See :class:`nodeguard.engine.trackers.Tracker`: what it did meanwhile is not known."""
        self.ended()

    def ended(self) -> None:
        """See :class:`nodeguard.engine.trackers.Tracker`."""
        self._since = None
        self._window = SumWindow(self.slow.over)

    def take_over(self, now: float) -> None:
        """See :class:`nodeguard.engine.trackers.Tracker`."""

    def state(self) -> dict[str, Any]:
        """See :class:`nodeguard.engine.trackers.Tracker`: a minute of watching is not worth keeping."""
        return {}

    def restore(self, state: Mapping[str, Any], shift: float = 0.0) -> None:
        """See :class:`nodeguard.engine.trackers.Tracker`."""


def pace_trackers(rules: Iterable["Compiled"], series: "Series") -> Iterator[PaceTracker]:
    """Trackers of a counter for the rules that have it as a companion."""
    for one in rules:
        yield from (PaceTracker(one, slow, series) for slow in one.rule.require
                    if isinstance(slow, Slow) and slow.signal == series.signal
                    and slow.kind in {None, kind_of(series.device)})


def compile_slow(slow: Slow, series_of: SeriesOf) -> Callable[[Device], Truth]:
    """Whether the companion holds for a device now: on all that it is about, and on one at least."""

    def hold(device: Device) -> Truth:
        truth: Truth = None
        for series in series_of(slow.signal):
            if slow.kind is None and series.device != device:
                continue
            for tracker in series.trackers:
                if isinstance(tracker, PaceTracker) and tracker.slow == slow:
                    if not tracker.truth:
                        return tracker.truth
                    truth = True
        return truth

    return hold
