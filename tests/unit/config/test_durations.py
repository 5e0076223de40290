"""Lengths of time as people write them."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.config.durations import parse_duration, parse_positive_duration


@pytest.mark.parametrize(("text", "seconds"), [
    ("500ms", 0.5), ("10s", 10), ("1m", 60), ("2h", 7200), ("7d", 604800), ("1h30m", 5400), ("1d2h3m4s5ms", 93784.005),
    ("0s", 0), ("90m", 5400),
])
def test_valid(text: str, seconds: float) -> None:
    """Units from large to small, each at most once."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [
    "", "10", 10, "1.5h", "-1s", "s", "30m1h", "1s1s", "10 s", "10s\n", "\u0661s", None, "1w",
])
def test_refused(value: object) -> None:
    """Everything without a unit, out of order or not plain."""
    with pytest.raises(ValueError, match="length of time"):
        parse_duration(value)


@pytest.mark.parametrize("text", ["0s", "31d"])
def test_limits_of_a_rule(text: str) -> None:
    """A rule's durations are more than nothing and at most 30 days."""
    with pytest.raises(ValueError, match="at most 30d"):
        parse_positive_duration(text)


@settings(deadline=None)
@given(st.text(alphabet="0123456789dhms ") | st.text())
def test_any_text(text: str) -> None:
    """A number of seconds or a ValueError."""
    with contextlib.suppress(ValueError):
        assert parse_duration(text) >= 0
