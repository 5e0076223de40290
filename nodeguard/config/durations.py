"""Lengths of time as people write them: ``500ms``, ``10s``, ``1h30m``, ``7d``."""

import re

PATTERN = r"^(?=\d)(?:\d{1,9}d)?(?:\d{1,9}h)?(?:\d{1,9}m(?!s))?(?:\d{1,9}s)?(?:\d{1,9}ms)?$"
_PART = re.compile(r"(\d+)(ms|[dhms])")
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}

MAX_DURATION = 30 * 86400.0
"""Seconds. Windows are kept in memory and in the store; a longer one is a mistake of units."""


def parse_duration(value: object) -> float:
    """Seconds in ``value``, which may be zero; ValueError with a sentence for people."""
    if not isinstance(value, str) or re.fullmatch(PATTERN, value, re.ASCII) is None:
        raise ValueError("must be a length of time with its unit, for instance 500ms, 10s, 5m or 1h30m")
    return sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(value))


def parse_positive_duration(value: object) -> float:
    """Seconds in ``value``, more than zero and at most :data:`MAX_DURATION`; ValueError otherwise."""
    seconds = parse_duration(value)
    if not 0 < seconds <= MAX_DURATION:
        raise ValueError("must be more than zero and at most 30d")
    return seconds
