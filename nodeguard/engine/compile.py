"""Rules, compiled once into closures."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodeguard.engine.pace import SeriesOf, compile_slow
from nodeguard.engine.predicates import (
    Compare,
    Holds,
    Lookup,
    Matches,
    Truth,
    compile_companion,
    compile_level,
    compile_match,
    every,
)
from nodeguard.model.device import Device, kind_of
from nodeguard.model.rule import Absent, Bare, Clear, Companion, Count, Increase, Left, Level, Rate, Rule, Slow
from nodeguard.model.sample import Attribute, Value
from nodeguard.model.signals import SIGNALS, Signal

POLLS_TO_CLEAR = 3
"""A level fault without its own ``clear.after`` needs at least so many known samples that say it is over."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A rule with its closures."""

    rule: Rule
    signal: Signal
    matches: Matches
    holds: Holds
    """Every ``require`` companion."""
    may_clear: Holds
    """``clear.while``."""
    compare: Compare | None
    """The test, for a level rule."""
    clears: Compare | None
    """``clear.above/below/is``; None: the opposite of the test."""
    after: float | None
    """Quiet seconds (window tests) or cleared seconds (level tests) that end a fault; None: see ``by_time``."""
    by_time: bool
    """Whether the fault can end without evidence."""

    @property
    def name(self) -> str:
        """The rule's name."""
        return self.rule.name

    @property
    def is_event_rule(self) -> bool:
        """Whether it judges occurrences and not readings."""
        return isinstance(self.rule.test, Bare | Count)

    def looks_at(self, device: Device, labels: Mapping[str, Attribute]) -> bool:
        """Whether it judges the readings of this series one by one."""
        if isinstance(self.rule.test, Absent) or self.rule.kind not in {None, kind_of(device)}:
            return False
        return self.matches(labels)

    def truth(self, value: Value, device: Device) -> Truth:
        """Test and companions together, for a known value."""
        verdict = None if self.compare is None else self.compare(value, device)
        if verdict is False or not self.rule.require:
            return verdict
        others = self.holds(device)
        return False if others is False else (None if others is None else verdict)


def compile_rule(rule: Rule, lookup: Lookup, series_of: SeriesOf) -> Compiled:
    """Compile one rule; ``lookup`` gives the newest known value of another signal."""

    def companion(one: Companion | Slow) -> Holds:
        return compile_slow(one, series_of) if isinstance(one, Slow) else compile_companion(one, lookup)

    while_ = rule.clear.while_
    return Compiled(
        rule=rule,
        signal=SIGNALS[rule.signal],
        matches=compile_match(rule.match),
        holds=every(tuple(map(companion, rule.require))),
        may_clear=every(() if while_ is None else (companion(while_),)),
        compare=compile_level(rule.test, lookup) if isinstance(rule.test, Level) else None,
        clears=None if rule.clear.level is None else compile_level(rule.clear.level, lookup),
        after=_after(rule),
        by_time=_by_time(rule),
    )


def _after(rule: Rule) -> float | None:
    if rule.clear.after is not None:
        return rule.clear.after
    if rule.clear.level is not None:
        return 0.0  # a test of its own is proof enough at the first sample
    if rule.clear == Clear():
        match rule.test:
            case Count(within=span):
                return span
            case Increase(within=span) | Rate(over=span) if rule.across is None:
                return span  # across devices the windows run empty by themselves, which is polled as a level is
    return None


def _by_time(rule: Rule) -> bool:
    if rule.clear == Clear():
        return not isinstance(rule.test, Bare)
    if isinstance(rule.test, Level | Left | Absent):
        return rule.clear.after is not None or rule.clear.level is not None
    return rule.clear.after is not None
