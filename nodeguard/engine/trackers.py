"""Trackers of readings: one per rule and series. They turn samples into openings and closings of faults."""

from collections.abc import Mapping
from typing import Any, Protocol

from nodeguard.engine.compile import Compiled
from nodeguard.engine.faults import Claims, Occurrence
from nodeguard.engine.predicates import Truth, as_text, conjunction
from nodeguard.engine.run import Run, Step
from nodeguard.engine.series import Series
from nodeguard.engine.windows import QuietClock, SumWindow
from nodeguard.model.device import Device
from nodeguard.model.rule import Increase, Left, Rate
from nodeguard.model.sample import Attribute  # noqa: TC001 # the other engine modules import it as this one does

BOOT_GRACE_SECONDS = 300.0
"""After a boot, memory of the boot before is not judged for so long: links train, drivers load."""


class Moment(Protocol):
    """What trackers may ask of the engine besides the sample."""

    boot_id: str

    def in_boot_grace(self, now: float) -> bool:
        """Whether the node booted less than the grace period ago."""
        ...

    def sees(self, source: str) -> bool:
        """Whether the source is up."""
        ...


class Tracker(Protocol):
    """One rule on one series."""

    compiled: Compiled
    device: Device

    @property
    def holder(self) -> str:
        """Its name among those who hold a fault open."""
        ...

    def sample(self, now: float, grown: float | None) -> None:
        """The series has a new known value; counters also say by how much they grew (None: first sight)."""
        ...

    def aged_out(self) -> None:
        """The series' value became unknown."""
        ...

    def ended(self) -> None:
        """The fault was closed by evidence, by a person, or by a change of the rules."""
        ...

    def take_over(self, now: float) -> None:
        """A fault of this rule is open already, from before a restart or a reload: judge its end."""
        ...

    def state(self) -> dict[str, Any]:
        """For the store."""
        ...

    def restore(self, state: Mapping[str, Any], shift: float = 0.0) -> None:
        """Take back what ``state`` gave; ``shift`` turns times of an earlier boot into this one's."""
        ...


def holder_of(series: Series) -> str:
    """A series' name among those who hold a fault open."""
    labels = ",".join(f"{name}={value}" for name, value in series.labels)
    return f"{series.device}{{{labels}}}"


def occurrence(series: Series, now: float) -> Occurrence:
    """A reading, as what opened a fault."""
    evidence: dict[str, Attribute] = dict(series.labels)
    if series.value is not None:
        evidence["value"] = series.value
    return Occurrence(evidence, f"{series.source}@{now:.3f}")


class LevelTracker:
    """A level or ``left`` rule on one series."""

    def __init__(self, compiled: Compiled, series: Series, faults: Claims, moment: Moment) -> None:
        self.compiled = compiled
        self.device = series.device
        self._series = series
        self._faults = faults
        self._moment = moment
        self.run = Run(compiled)
        test = compiled.rule.test
        self._left = frozenset(as_text(state) for state in test.states) if isinstance(test, Left) else None

    @property
    def holder(self) -> str:
        """See :class:`Tracker`."""
        return holder_of(self._series)

    def sample(self, now: float, grown: float | None) -> None:  # noqa: ARG002 # counters have trackers of their own
        """See :class:`Tracker`."""
        truth = self.truth(now)
        if truth is False and self.run.idle:
            return
        step = self.run.feed(now, truth, self._over(truth))
        if step is Step.OPENED:
            self._faults.claim(self.compiled, self.device, self.holder, now, occurrence(self._series, now))
        elif step is Step.AGAIN:
            self._faults.still(self.compiled, self.device, now)
        elif step is Step.CLOSED:
            detail = f"{self._series.signal} is {self._series.value}"
            self._faults.release(self.compiled, self.device, self.holder, now, detail)

    def truth(self, now: float) -> Truth:
        """Whether the test holds on the newest known value."""
        value = self._series.value
        if value is None:
            return None
        if self._left is None:
            return self.compiled.truth(value, self.device)
        verdict = self._has_left(as_text(value), now)
        return conjunction(verdict, self.compiled.holds(self.device)) if verdict else verdict

    def _has_left(self, word: str, now: float) -> Truth:
        assert self._left is not None  # noqa: S101 # narrows the type: only called for `left` rules
        if word in self._left:
            return False
        boots = [self._series.memory[state] for state in self._left if state in self._series.memory]
        if not boots:
            return False
        if self._moment.boot_id in boots:
            return True
        return None if self._moment.in_boot_grace(now) else True

    def _over(self, truth: Truth) -> Truth:
        value = self._series.value
        if self.compiled.clears is not None and value is not None:
            over = self.compiled.clears(value, self.device)
        else:
            over = None if truth is None else not truth
        if over and self.compiled.rule.clear.while_ is not None:
            return self.compiled.may_clear(self.device)
        return over

    def aged_out(self) -> None:
        """See :class:`Tracker`."""
        self.run.reset()

    def ended(self) -> None:
        """See :class:`Tracker`."""
        self.run.end()

    def take_over(self, now: float) -> None:  # noqa: ARG002 # only windows count from now on
        """See :class:`Tracker`."""
        self.run.take_over()

    def state(self) -> dict[str, Any]:
        """See :class:`Tracker`."""
        return self.run.state()

    def restore(self, state: Mapping[str, Any], shift: float = 0.0) -> None:  # noqa: ARG002 # ends with the boot
        """See :class:`Tracker`."""
        self.run.restore(state)


class CounterTracker:
    """An ``increase`` or ``rate`` rule on one counter."""

    def __init__(self, compiled: Compiled, series: Series, faults: Claims, moment: Moment) -> None:
        self.compiled = compiled
        self.device = series.device
        self._series = series
        self._faults = faults
        self._moment = moment
        test = compiled.rule.test
        assert isinstance(test, Increase | Rate)  # noqa: S101 # narrows the type: the factory chose this class
        self._test = test
        self._windows: dict[str, SumWindow] = {}
        self.firing = False
        self.quiet = QuietClock()

    @property
    def holder(self) -> str:
        """See :class:`Tracker`."""
        return holder_of(self._series)

    @property
    def _span(self) -> float:
        return self._test.within if isinstance(self._test, Increase) else self._test.over

    def truth(self, now: float) -> Truth:
        """Whether the counter grew too much in the window that ends now."""
        for window in self._windows.values():
            window.prune(now)
        total = max((window.total for window in self._windows.values()), default=0.0)
        if isinstance(self._test, Increase):
            return total >= self._test.at_least
        return total / self._test.over > self._test.above

    def sample(self, now: float, grown: float | None) -> None:
        """See :class:`Tracker`."""
        if not grown:
            return
        source = self._series.source
        if source not in self._windows:
            self._windows[source] = SumWindow(self._span)
        self._windows[source].add(now, grown)
        too_much = self.truth(now)
        if too_much and (self.firing or not self.compiled.rule.require or self.compiled.holds(self.device)):
            self.firing = True
            self._faults.claim(self.compiled, self.device, self.holder, now, occurrence(self._series, now))
        if self.firing and (too_much or isinstance(self._test, Increase)):
            self.quiet.restart(now, running=self.may_run())

    def may_run(self) -> bool:
        """Whether quiet counts now: the source is up and ``clear.while`` holds."""
        return self._moment.sees(self._series.source) and bool(self.compiled.may_clear(self.device))

    def quieted(self, now: float) -> None:
        """Quiet for long enough."""
        self.firing = False
        self._faults.release(self.compiled, self.device, self.holder, now, f"no increase for {self.compiled.after:g} s")

    def aged_out(self) -> None:
        """See :class:`Tracker`."""

    def ended(self) -> None:
        """See :class:`Tracker`."""
        self.firing = False
        self._windows.clear()

    def take_over(self, now: float) -> None:
        """See :class:`Tracker`."""
        self.firing = True
        self.quiet.restart(now, running=self.may_run())

    def state(self) -> dict[str, Any]:
        """See :class:`Tracker`."""
        return {"firing": self.firing, "quiet": self.quiet.state(),
                "windows": {source: window.state() for source, window in self._windows.items()}}

    def restore(self, state: Mapping[str, Any], shift: float = 0.0) -> None:
        """See :class:`Tracker`."""
        self.firing = bool(state["firing"])
        self.quiet = QuietClock.restored(state["quiet"], shift)
        self._windows = {
            str(source): SumWindow(self._span, [(float(at) + shift, float(amount)) for at, amount in items])
            for source, items in state["windows"].items()}
