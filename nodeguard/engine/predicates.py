"""Comparisons with a third answer: True, False, or None for unknown."""

import re
from collections.abc import Callable, Mapping

from nodeguard.model.device import Device
from nodeguard.model.rule import Companion, Level, Matcher, Reference
from nodeguard.model.sample import Attribute, Value

Truth = bool | None

Lookup = Callable[[str, Device], Value | None]
"""Newest known value of a signal on a device; None while unknown."""

Compare = Callable[[Value, Device], Truth]
"""A compiled comparison of one known value on one device."""

Holds = Callable[[Device], Truth]
"""A compiled companion of a test, asked about one device."""

Matches = Callable[[Mapping[str, Attribute]], bool]


def conjunction(*truths: Truth) -> Truth:
    """False if any is False, else unknown if any is unknown, else True."""
    if False in truths:
        return False
    return None if None in truths else True


def compile_level(level: Level, lookup: Lookup) -> Compare:
    """A closure for ``level``; ``lookup`` serves the other signal that it may refer to."""
    operand = level.operand
    if isinstance(operand, tuple):
        return _membership(operand, wanted=level.operator == "is")
    if isinstance(operand, Reference):
        return _against_reference(operand, lookup, above=level.operator == "above")
    return _against_number(operand, above=level.operator == "above")


def _membership(values: tuple[Value, ...], *, wanted: bool) -> Compare:
    allowed = frozenset(values)

    def compare(value: Value, _device: Device) -> Truth:
        return (value in allowed) is wanted

    return compare


def _against_number(limit: float, *, above: bool) -> Compare:
    def is_above(value: Value, _device: Device) -> Truth:
        return None if isinstance(value, str) else value > limit

    def is_below(value: Value, _device: Device) -> Truth:
        return None if isinstance(value, str) else value < limit

    return is_above if above else is_below


def _against_reference(reference: Reference, lookup: Lookup, *, above: bool) -> Compare:
    signal, plus, times = reference.signal, reference.plus, reference.times

    def compare(value: Value, device: Device) -> Truth:
        other = lookup(signal, device)
        if other is None or isinstance(other, str) or isinstance(value, str):
            return None
        limit = other * times + plus
        return value > limit if above else value < limit

    return compare


def compile_companion(companion: Companion, lookup: Lookup) -> Holds:
    """Whether a companion holds on a device now."""
    signal, compare = companion.signal, compile_level(companion.level, lookup)

    def hold(device: Device) -> Truth:
        value = lookup(signal, device)
        return None if value is None else compare(value, device)

    return hold


def every(companions: tuple[Holds, ...]) -> Holds:
    """Whether all of them hold on a device now. The first that does not ends the asking."""

    def hold(device: Device) -> Truth:
        truth: Truth = True
        for one in companions:
            verdict = one(device)
            if verdict is False:
                return False
            truth = truth if verdict else None
        return truth

    return hold


def compile_match(matchers: tuple[Matcher, ...]) -> Matches:
    """Whether an event's attributes or a series' labels satisfy every matcher."""
    compiled = tuple(_compile_matcher(matcher) for matcher in matchers)

    def matches(attributes: Mapping[str, Attribute]) -> bool:
        return all(one(attributes) for one in compiled)

    return matches


def _compile_matcher(matcher: Matcher) -> Matches:
    name, wanted = matcher.name, not matcher.negated
    if matcher.regex is not None:
        pattern = re.compile(matcher.regex)
        return lambda attributes: name in attributes and (
            (pattern.fullmatch(as_text(attributes[name])) is not None) is wanted)
    # compared as text, so that a label (always text) and an attribute (a number) match the same rule
    allowed = frozenset(as_text(value) for value in matcher.any_of)

    def matches(attributes: Mapping[str, Attribute]) -> bool:
        value = attributes.get(name)
        return (value is not None and as_text(value) in allowed) is wanted

    return matches


def as_text(value: Attribute) -> str:
    """How an attribute reads in a rule: ``true``/``false`` for booleans, no trailing ``.0``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
