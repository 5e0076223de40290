"""Checks of a recording's values: each names what is wrong, and where, and lets the rest go on."""

import math
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from nodeguard.model.sample import Value
from nodeguard.model.signals import Signal

Report = Callable[[str], None]
"""Takes one sentence about the entry at hand."""


def suggestion(word: str, valid: Iterable[str]) -> str:
    """`` (did you mean …?)`` with the nearest valid word, or nothing."""
    close = get_close_matches(word, list(valid), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def mapping(value: Any, what: str, report: Report) -> Mapping[Any, Any]:
    """``value`` if it is a mapping, else an empty one."""
    if isinstance(value, Mapping):
        return value
    report(f"{what} must be a mapping, not {name_of(value)}")
    return {}


def unknown_keys(value: Mapping[Any, Any], valid: Iterable[str], what: str, report: Report) -> None:
    """Report every key of ``value`` that is none of ``valid``."""
    valid = tuple(valid)
    for key in value:
        if key not in valid:
            report(f"unknown key {key!r} in {what}{suggestion(str(key), valid)}")


def text(value: Any, what: str, report: Report) -> str:
    """``value`` if it is text (a number is taken as it reads), else ``""``."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    report(f"{what} must be text, not {name_of(value)}")
    return ""


def whole(value: Any, what: str, report: Report) -> int:
    """``value`` if it is a whole number of 0 or more, else 0."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    report(f"{what} must be a whole number of 0 or more, not {value!r}")
    return 0


def seconds(value: Any, what: str, report: Report) -> float:
    """``value`` if it is a number, else 0."""
    if isinstance(value, int | float) and not isinstance(value, bool) and finite(value):
        return value
    report(f"{what} must be in seconds, not {value!r}")
    return 0.0


def counts(value: Any, report: Report) -> Mapping[str, int]:
    """Increments of a source's own counters, by name."""
    return {text(name, "counts", report): whole(count, f"counts {name}", report)
            for name, count in mapping(value, "counts", report).items()}


def reading(signal: Signal, value: Any, report: Report) -> Value | None:
    """A signal's value: a number, one of its words, or None for unknown."""
    if value is None:
        return None
    if signal.states:
        if isinstance(value, str) and value in signal.states:
            return value
        words = ", ".join(signal.states)
        report(f"{signal.name} must be one of {words}, not {value!r}{suggestion(str(value), signal.states)}")
        return None
    if isinstance(value, int | float) and finite(value):
        return float(value) if isinstance(value, float) else int(value)
    report(f"{signal.name} must be a number, not {value!r}")
    return None


def name_of(value: Any) -> str:
    """A value's type in the words of YAML."""
    names = {dict: "a mapping", list: "a list", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), "something else")


def finite(value: float) -> bool:
    """Whether it is a number that a float can hold: not infinite, not not-a-number, not a whole number too long."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
