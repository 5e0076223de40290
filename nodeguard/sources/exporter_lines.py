"""Lines of the Prometheus text format. The only module that imports its parser.

A page of 8 GPUs and 60 metrics costs that parser 19 ms, nearly all of it for labels, which are the same in every
scrape. So lines of metrics that nobody asked for are dropped before it, and it sees each series once: what comes
before the value is remembered as it is written.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

T = TypeVar("T")

MAX_LINES = 20_000
"""Lines of wanted metrics read from one page; 16 devices have a few thousand."""




class Lines(Generic[T]):
    """Reads page after page of one exporter."""

    def __init__(self, wanted: frozenset[str], plan: Callable[[str, Mapping[str, str]], T]) -> None:
        """``plan`` makes of a metric's name and labels what :meth:`read` gives back with every value of it."""
        self._wanted, self._plan = wanted, plan
        self._known: dict[str, T] = {}
        self.malformed = 0
        """Lines of the last page that are none."""
        self.dropped = 0
        """Lines of the last page beyond :data:`MAX_LINES`."""

    def forget(self) -> None:
        """Make every plan anew."""
        self._known = {}

    def read(self, text: str) -> Iterator[tuple[T, float, str]]:
        """Plan, value and time stamp (as written, often empty) of every line of a wanted metric.

        A line that cannot be read costs itself.
        """
        self.malformed = self.dropped = 0
        seen: dict[str, T] = {}
        left = MAX_LINES
        for raw in text.split("\n"):
            line = raw.strip()
            if not self._is_wanted(line):
                continue
            left -= 1
            if left < 0:
                self.dropped += 1
                continue
            found = self._line(line, seen)
            if found is None:
                self.malformed += 1
            else:
                yield found
        self._known = seen

    def _is_wanted(self, line: str) -> bool:
        end = line.find("{")
        return (line[:end] if end >= 0 else line.split(None, 1)[0] if line else "").rstrip() in self._wanted

    def _line(self, line: str, seen: dict[str, T]) -> tuple[T, float, str] | None:
        end = line.rfind("}") + 1 or len(line.split(None, 1)[0])
        head = line[:end]
        value, stamp = _value(line[end:])
        if head in self._known and value is not None:
            plan = seen[head] = self._known[head]
            return plan, value, stamp
        sample = _parsed(line)
        if sample is None:
            return None
        plan, told = self._plan(sample.name, sample.labels), _number(sample.value)
        if value is not None and _same(value, told):
            seen[head] = plan
        return plan, told, stamp


def _value(tail: str) -> tuple[float | None, str]:
    """The value and the time stamp after a series; None when the parser must look at it."""
    words = tail.split()
    if not words or len(words) > 2 or "_" in words[0]:
        return None, ""
    try:
        return float(words[0]), words[1] if len(words) > 1 else ""
    except ValueError:
        return None, ""


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return float("inf")


def _same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)  # noqa: PLR0124 # neither is a number


def _parsed(line: str) -> Sample | None:
    try:
        samples = [sample for family in text_string_to_metric_families(line) for sample in family.samples]
    except (ValueError, IndexError, KeyError, TypeError, OverflowError):  # the last: a time stamp of 400 digits
        return None
    return samples[0] if len(samples) == 1 else None
