"""Numbers of the loop's incidents, kept between snapshots of the metrics page."""

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping

from nodeguard.model.sample import Labels
from nodeguard.sinks.metrics import Histogram, Numbers

LIMITS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.6, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""Seconds: from an eviction's milliseconds (budget: 0.3 s at the median, 0.6 s at the 99th percentile) to a repair."""


class RemediationMetrics:
    """A :class:`nodeguard.remediation.outlets.Meter`. For several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: Counter[tuple[str, Labels]] = Counter({("remediation_begun_total", ()): 0})
        self._phases: dict[str, list[int]] = {}
        self._totals: defaultdict[str, float] = defaultdict(float)

    def begun(self) -> None:
        """A piece of work was begun."""
        self._count("remediation_begun_total")

    def closed(self, outcome: str) -> None:
        """It has ended."""
        self._count("remediation_closed_total", ("outcome", outcome))

    def restarted(self, kind: str) -> None:
        """A gang was suspended to be restarted."""
        self._count("remediation_restarts_total", ("kind", kind))

    def reached(self, phase: str, seconds: float) -> None:
        """An incident reached a phase, so long after its fault was detected."""
        with self._lock:
            counts = self._phases.setdefault(phase, [0] * (len(LIMITS) + 1))
            counts[bisect_left(LIMITS, seconds)] += 1
            self._totals[phase] += seconds

    def counters(self) -> Numbers:
        """For the snapshot of the page."""
        with self._lock:
            return {name: float(value) for name, value in self._counters.items()}

    def histograms(self) -> Mapping[tuple[str, Labels], Histogram]:
        """For the snapshot of the page."""
        with self._lock:
            told = {phase: Histogram(_added_up(counts), self._totals[phase]) for phase, counts in self._phases.items()}
        return {("remediation_phase_seconds", (("phase", phase),)): one for phase, one in told.items()}

    def _count(self, name: str, *labels: tuple[str, str]) -> None:
        with self._lock:
            self._counters[name, labels] += 1


def _added_up(counts: list[int]) -> tuple[tuple[str, float], ...]:
    limits = (*(str(limit) for limit in LIMITS), "+Inf")
    return tuple((limit, float(sum(counts[:number + 1]))) for number, limit in enumerate(limits))
