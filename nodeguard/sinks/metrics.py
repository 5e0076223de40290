"""The Prometheus page: a collector over the last snapshot that the agent published.

Nothing is kept between snapshots, so a GPU that is gone leaves no stale series (facts: 1.03 ms for 240 series,
less than updating one Gauge object a series). Names and help come from the catalogue of signals.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from nodeguard import __version__
from nodeguard.model.device import Device
from nodeguard.model.fault import Fault
from nodeguard.model.intent import Condition
from nodeguard.model.sample import Labels, Value
from nodeguard.model.signals import SIGNALS, Signal

PREFIX = "nodeguard_"
STATUSES = ("True", "False", "Unknown")

_OWN_HELP = {
    "fault": "An open fault: always 1 while it is open.",
    "condition": "1 for the status that the node condition has now.",
    "rules_info": "The rules in force, by content hash: always 1.",
    "rules_invalid": "1 while the newest rule files are refused and the last good ones stay in force.",
    "build_info": "The version that is running: always 1.",
    "remediation_phase_seconds": "Seconds from a fault's beginning until its incident reached this phase.",
    "remediation_begun_total": "Pieces of work that were begun on a node.",
    "remediation_closed_total": "Pieces of work that ended, by how.",
    "remediation_restarts_total": "Gangs that were suspended to be restarted, by the kind of their owner.",
    "kmsg_records_total": "Kernel log records read.",
    "kmsg_lost_total": "Kernel log records overwritten before they could be read.",
    "kmsg_malformed_total": "Kernel log records that could not be parsed.",
    "kmsg_duplicate_total": "Kernel log records that had been read before, and were skipped.",
    "kmsg_overruns_total": "Times the kernel log was overwritten faster than it was read.",
    "kmsg_untrusted_total": "Kernel log records that claim to be the kernel's but were written by a process.",
}

Series = tuple[str, Device, Labels, Value]
"""One signal of one device: name, device, labels, newest known value."""

Numbers = Mapping[tuple[str, Labels], float]
"""Values by (name without the prefix, labels)."""

_Kind = Literal["counter", "gauge"]


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often values were at most so large; each count holds those of the smaller limits too, the last holds all."""

    counts: tuple[tuple[str, float], ...]
    """Limit (the last is ``+Inf``) and count."""
    total: float
    """Sum of the values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSnapshot:
    """Everything the page says, as of one moment. Unknown values are left out by whoever builds it."""

    series: tuple[Series, ...] = ()
    faults: tuple[Fault, ...] = ()
    conditions: tuple[Condition, ...] = ()
    counters: Numbers = field(default_factory=dict)
    """Event signals belong here: ``("gpu_xid_total", (("code", "79"), ("device", "gpu/GPU-…")))``."""
    gauges: Numbers = field(default_factory=dict)
    histograms: Mapping[tuple[str, Labels], Histogram] = field(default_factory=dict)
    rules_hash: str = ""
    """Empty: this process has no rules."""
    rules_invalid: str = ""
    """Why the newest rule files are refused; empty while they are in force."""


class Metrics(Collector):
    """The page. ``publish`` and ``render`` may be called from different threads."""

    def __init__(self) -> None:
        self._snapshot = MetricsSnapshot()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def publish(self, snapshot: MetricsSnapshot) -> None:
        """Replace what the page says."""
        self._snapshot = snapshot

    def render(self) -> bytes:
        """The page in the Prometheus text format, version 0.0.4."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Nothing: names depend on the snapshot. Without it the registry would collect once to find them out."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The families of the last snapshot."""
        families = _Families()
        for add in (_add_series, _add_faults, _add_conditions, _add_numbers, _add_info):
            add(families, self._snapshot)
        yield from families.metrics()
        yield from _histograms(self._snapshot.histograms)


class _Families:
    """Values by family and labels. A series told twice has the later value: a page must not repeat one."""

    def __init__(self) -> None:
        self._families: dict[str, tuple[_Kind, dict[Labels, float]]] = {}

    def add(self, name: str, kind: _Kind, labels: Iterable[tuple[str, str]], value: float) -> None:
        if kind == "counter" and not name.endswith("_total"):
            name += "_total"
        _, values = self._families.setdefault(name, (kind, {}))
        values[tuple(sorted(labels))] = value

    def metrics(self) -> Iterator[Metric]:
        for name, (kind, values) in sorted(self._families.items()):
            # a family has one set of label names; an empty label is the same as none (Prometheus data model)
            names = sorted({label for labels in values for label, _ in labels})
            make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            family = make(PREFIX + name, _help(name), labels=names)
            for labels, value in values.items():
                given = dict(labels)
                family.add_metric([given.get(label, "") for label in names], value)
            yield family


def _histograms(given: Mapping[tuple[str, Labels], Histogram]) -> Iterator[Metric]:
    """The caller gives all series of one name the same label names."""
    families: dict[str, HistogramMetricFamily] = {}
    for (name, labels), one in given.items():
        family = families.setdefault(
            name, HistogramMetricFamily(PREFIX + name, _help(name), labels=[label for label, _ in labels]))
        family.add_metric([value for _, value in labels], buckets=one.counts, sum_value=one.total)
    yield from families.values()


def _help(name: str) -> str:
    signal = SIGNALS.get(name) or SIGNALS.get(name.removesuffix("_total"))
    if signal is not None:
        return signal.help
    return _OWN_HELP.get(name) or f"{name.removesuffix('_total').replace('_', ' ').capitalize()}."


def _add_series(families: _Families, snapshot: MetricsSnapshot) -> None:
    for name, device, labels, value in snapshot.series:
        signal = SIGNALS.get(name)
        if signal is None:
            continue
        where = (("device", str(device)), *labels)
        if signal.states:
            _add_states(families, signal, where, value)
        elif not isinstance(value, str):
            families.add(name, "counter" if signal.kind == "counter" else "gauge", where, value)


def _add_states(families: _Families, signal: Signal, where: Labels, value: Value) -> None:
    """One series for each state of the catalogue, never one for a word that only the hardware knows."""
    for state in signal.states:
        families.add(signal.name, "gauge", (*where, ("state", state)), float(value == state))


def _add_faults(families: _Families, snapshot: MetricsSnapshot) -> None:
    for fault in snapshot.faults:
        labels = {"rule": fault.rule, "device": str(fault.device), "severity": fault.severity, "action": fault.action,
                  "effect": fault.effect, "condition": fault.condition or ""}
        families.add("fault", "gauge", labels.items(), 1.0)


def _add_conditions(families: _Families, snapshot: MetricsSnapshot) -> None:
    for condition in snapshot.conditions:
        for status in STATUSES:
            labels = (("type", condition.type), ("status", status))
            families.add("condition", "gauge", labels, float(condition.status == status))


def _add_numbers(families: _Families, snapshot: MetricsSnapshot) -> None:
    for (name, labels), value in snapshot.counters.items():
        families.add(name, "counter", labels, value)
    for (name, labels), value in snapshot.gauges.items():
        families.add(name, "gauge", labels, value)


def _add_info(families: _Families, snapshot: MetricsSnapshot) -> None:
    families.add("build_info", "gauge", (("version", __version__),), 1.0)
    if snapshot.rules_hash or snapshot.rules_invalid:
        families.add("rules_info", "gauge", (("hash", snapshot.rules_hash),), 1.0)
        families.add("rules_invalid", "gauge", (), float(bool(snapshot.rules_invalid)))
