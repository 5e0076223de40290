"""The hold of a test that must stay true: ``for`` before it opens, and the same care before it closes."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from nodeguard.engine.compile import POLLS_TO_CLEAR, Compiled
from nodeguard.engine.predicates import Truth

_ROUNDING = 1e-6
"""Seconds. A timer set for the end of a hold must find it full, however the sum of the two was rounded."""


class Step(Enum):
    """What a sample did to a run."""

    NOTHING = 0
    OPENED = 1
    AGAIN = 2
    CLOSED = 3


class Run:
    """Counts known samples that agree, and the time from the first to the last of them.

    An unknown truth neither counts nor resets; a gap in which the value aged out resets.
    """

    __slots__ = ("_compiled", "_count", "_since", "firing")

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._since: float | None = None
        self._count = 0
        self.firing = False

    def feed(self, now: float, truth: Truth, over: Truth) -> Step:
        """One known sample: ``truth`` of the test, and whether it says the fault is ``over``.

        A test that holds is not over, whatever an override made of its limit and left of its ``clear``.
        """
        if not self.firing:
            if truth:
                return self._towards_open(now)
            if truth is False:
                self.reset()
            return Step.NOTHING
        if over and not truth and self._compiled.by_time:
            return self._towards_close(now)
        if over is False or truth:
            self.reset()
        return Step.AGAIN if truth else Step.NOTHING

    def _agree(self, now: float) -> float:
        if self._since is None:
            self._since = now
        self._count += 1
        return now - self._since + _ROUNDING

    def _towards_open(self, now: float) -> Step:
        held = self._agree(now)
        hold = self._compiled.rule.hold
        samples = 1 if self._compiled.signal.steady else hold.samples
        if held < hold.seconds or self._count < samples:
            return Step.NOTHING
        self.firing = True
        self.reset()
        return Step.OPENED

    def _towards_close(self, now: float) -> Step:
        held = self._agree(now)
        hold, after = self._compiled.rule.hold, self._compiled.after
        if after is None:
            polls = 1 if self._compiled.signal.steady else max(POLLS_TO_CLEAR, hold.samples)
            enough = held >= hold.seconds and self._count >= polls
        else:
            enough = held >= after
        if not enough:
            return Step.NOTHING
        self.firing = False
        self.reset()
        return Step.CLOSED

    def reset(self) -> None:
        """Start counting anew; an open fault stays open."""
        self._since = None
        self._count = 0

    def end(self) -> None:
        """The fault was closed by evidence or by a person."""
        self.firing = False
        self.reset()

    def take_over(self) -> None:
        """A fault of this rule is open already: only its end is to be judged."""
        self.firing = True
        self.reset()

    @property
    def since(self) -> float | None:
        """When the samples began to agree."""
        return self._since

    @property
    def idle(self) -> bool:
        """Nothing is counted and nothing is open."""
        return self._count == 0 and not self.firing

    def state(self) -> dict[str, Any]:
        """For the store."""
        return {"since": self._since, "count": self._count, "firing": self.firing}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self._since = state["since"]
        self._count = int(state["count"])
        self.firing = bool(state["firing"])
