"""Trackers that time alone can move: of signals told only when they change, and of calls that do not come back."""

from collections.abc import Mapping
from typing import Any

from nodeguard.engine.compile import Compiled
from nodeguard.engine.faults import Claims, Occurrence
from nodeguard.engine.series import Series
from nodeguard.engine.trackers import LevelTracker, Moment
from nodeguard.model.rule import Level
from nodeguard.model.sample import Attribute  # noqa: TC001 # the other engine modules import it as this one does


class SteadyTracker(LevelTracker):
    """A level rule on a signal that is told only when it changes: time alone fills ``for`` and ``after``."""

    _asked = False
    """The timer came and the answer was unknown: only another batch can change it."""

    def due(self) -> float | None:
        """When the hold, or the time to clear, will be full if nothing changes."""
        since = self.run.since
        if since is None or self._asked:
            return None
        hold = self.compiled.rule.hold.seconds
        after = self.compiled.after
        return since + (hold if not self.run.firing or after is None else after)

    def fire(self, now: float) -> None:
        """The timer is due: the value still stands."""
        self.sample(now, None)
        self._asked = True

    def sample(self, now: float, grown: float | None) -> None:
        """See :class:`nodeguard.engine.trackers.Tracker`."""
        self._asked = False
        super().sample(now, grown)

    def look(self, now: float) -> None:
        """A batch was taken in: other signals that the rule looks at may have changed."""
        rule = self.compiled.rule
        if rule.require or rule.clear.while_ is not None:
            self.sample(now, None)


class StallTracker(LevelTracker):
    """A level rule on ``source_stalled_seconds``: its value grows by itself, so its limit is a timer."""

    def __init__(self, compiled: Compiled, series: Series, faults: Claims, moment: Moment) -> None:
        super().__init__(compiled, series, faults, moment)
        self.since = series.stalled_since
        """Since when the call is out; None: it is not, or its fault was ended by evidence or by a person."""
        self._asked = False

    def due(self) -> float | None:
        """When the call will have been out too long."""
        test = self.compiled.rule.test
        if self.since is None or self._asked or self.run.firing:
            return None
        if not isinstance(test, Level) or test.operator != "above" or not isinstance(test.operand, int | float):
            return None
        return self.since + test.operand + self.compiled.rule.hold.seconds

    def fire(self, now: float) -> None:
        """The timer is due."""
        if self.since is None or (self.compiled.rule.require and not self.compiled.holds(self.device)):
            self._asked = True
            return
        self.run.take_over()
        evidence: dict[str, Attribute] = {**dict(self._series.labels), "value": round(now - self.since, 3)}
        self._faults.claim(self.compiled, self.device, self.holder, now,
                           Occurrence(evidence, f"{self._series.source}@{self.since:.3f}"))

    def look(self, now: float) -> None:  # noqa: ARG002 # the same call as its sibling's
        """See :class:`SteadyTracker`."""
        self._asked = False

    def ended(self) -> None:
        """See :class:`nodeguard.engine.trackers.Tracker`."""
        super().ended()
        self.since = None

    def state(self) -> dict[str, Any]:
        """See :class:`nodeguard.engine.trackers.Tracker`."""
        return {**super().state(), "stalled_since": self.since}

    def restore(self, state: Mapping[str, Any], shift: float = 0.0) -> None:
        """See :class:`nodeguard.engine.trackers.Tracker`."""
        super().restore(state, shift)
        self.since = state.get("stalled_since")
