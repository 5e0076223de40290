"""Exporters: a page of Prometheus text, by a vendor's mapping, as a Batch; and the poll that scrapes it.

What a page says is second-hand. A gauge that holds the last error tells by changing and by nothing else; a page that
does not change at all says nothing of now; a page that cannot be had says nothing of the hardware.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeguard.model.device import NODE, Device
from nodeguard.model.errors import SourceError
from nodeguard.model.mapping import ExporterMapping, MetricReading
from nodeguard.model.sample import Batch, Event, Fact, Labels, Missed, Sample, SourceState, Value
from nodeguard.model.signals import SIGNALS
from nodeguard.sources.exporter_devices import Devices
from nodeguard.sources.exporter_http import Endpoint
from nodeguard.sources.exporter_lines import Lines
from nodeguard.sources.recording.readers import SourcePages
from nodeguard.vendors.nvidia import nvml_events

STALE_AFTER = 20
"""A page with the same numbers in so many scrapes, energy counters among them, is not of now."""

_DEADLINE = 0.8
_PERIOD = 10.0
_GPU = "gpu/"
_WHOLE = (nvml_events.NO_INSTANCE, nvml_events.NO_INSTANCE)
"""DCGM does not say which MIG instance an Xid is about."""

Key = tuple[str, Device, Labels]


@dataclass(frozen=True, slots=True)
class _Target:
    """Where one reading of a line goes."""

    metric: str
    reading: MetricReading
    key: Key


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to do with the lines of one series."""

    device: Device | None
    targets: tuple[_Target, ...]
    moving: str = ""
    """The series' name where its metric never stands still on a live page."""


@dataclass(slots=True)
class _Found:
    """What one page says, lines of the same device put together."""

    values: dict[Key, Value | None] = field(default_factory=dict)
    sums: dict[Key, dict[str, Value | None]] = field(default_factory=dict)
    codes: dict[Device, int] = field(default_factory=dict)
    """Numbers of the last Xids."""
    moving: dict[str, tuple[float, str]] = field(default_factory=dict)
    devices: set[Device] = field(default_factory=set)

    def take(self, target: _Target, value: Value | None) -> None:
        """One line's value. MIG instances repeat their GPU's lines: the worst of them stands for the GPU."""
        key, reading = target.key, target.reading
        if reading.last:
            if value is not None:
                self.codes[key[1]] = self.codes.get(key[1], 0) or int(value)
        elif reading.summed:
            parts = self.sums.setdefault(key, {})
            parts[target.metric] = _worst(key[0], parts.get(target.metric), value)
        else:
            self.values[key] = _worst(key[0], self.values.get(key), value)

    def close(self) -> None:
        """Add up what several metrics tell together; a part that is unknown makes the sum unknown."""
        for key, parts in self.sums.items():
            numbers = [part for part in parts.values() if isinstance(part, int | float)]
            self.values[key] = sum(numbers) if len(numbers) == len(parts) else None


def _worst(signal: str, one: Value | None, other: Value | None) -> Value | None:
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, str) or isinstance(other, str):
        states = SIGNALS[signal].states  # from the best to the worst
        return max(str(one), str(other), key=states.index)
    return max(one, other)


class ExporterPages:
    """Reads the pages of one exporter. Not for several threads."""

    def __init__(self, name: str, mapping: ExporterMapping) -> None:
        self.source = f"exporter/{name}"
        self._mapping = mapping
        self._metrics = {prefix + metric: readings
                         for prefix in mapping.prefixes for metric, readings in mapping.metrics.items()}
        self._moving = frozenset(prefix + metric for prefix in mapping.prefixes for metric in mapping.moving)
        self._lines = Lines(frozenset(self._metrics) | self._moving, self._plan)
        self._devices = Devices(mapping)
        self._codes: dict[Device, int] = {}
        """The last Xid's number other than 0; 0 while there was none."""
        self._page: tuple[object, ...] = ()
        self._same = 0

    def page(self, text: str, now: float) -> Batch:
        """What a page tells. Any text is a page; one without a device of ours is no sight."""
        del now
        found = self._read(text)
        counts = {name: count for name, count in (("exporter_malformed_total", self._lines.malformed),
                                                  ("exporter_dropped_total", self._lines.dropped)) if count}
        if not found.devices:
            facts: tuple[Fact, ...] = (_blind(f"the page names no device that the mapping "
                                              f"{self._mapping.name} could read"), Missed())
            return Batch(source=self.source, facts=facts, counts=counts)
        stale = self._is_stale(found)
        samples = self._listed(found, stale=stale)
        if stale:
            facts = (_blind(f"its page has not changed for {self._same + 1} scrapes"),)
            return Batch(source=self.source, facts=facts, samples=samples, complete=True, counts=counts)
        samples += tuple(Sample(*key[:2], value, key[2]) for key, value in found.values.items())
        return Batch(source=self.source, facts=tuple(self._devices.identified()), samples=samples,
                     events=self._events(found), complete=True, counts=counts)

    def failed(self, reason: str, now: float) -> Batch:
        """There was no page: nothing is known, and nothing is wrong with the hardware for it."""
        del now
        return Batch(source=self.source, facts=(_blind(reason), Missed()))

    def _read(self, text: str) -> _Found:
        found = _Found()
        for plan, number, stamp in self._lines.read(text):
            if plan.device is not None:
                found.devices.add(plan.device)
            if plan.moving and self._known(number) is not None:
                found.moving[plan.moving] = (number, stamp)
            for target in plan.targets:
                found.take(target, self._value(target.reading, number))
        found.close()
        if self._devices.renamed:
            self._devices.renamed = False
            self._lines.forget()
        return found

    def _plan(self, metric: str, labels: Mapping[str, str]) -> _Plan:
        device = self._devices.of(labels)
        targets = []
        for reading in self._metrics.get(metric, ()):
            about = NODE if reading.on_node else device
            if about is not None and _applies(reading, labels):
                targets.append(_Target(metric, reading, (reading.signal, about, _labels(reading, labels))))
        moving = f"{metric} {device}" if metric in self._moving and device is not None else ""
        return _Plan(device, tuple(targets), moving)

    def _known(self, number: float) -> float | None:
        return None if number - number != 0 or self._mapping.is_blank(number) else number

    def _value(self, reading: MetricReading, number: float) -> Value | None:
        known = self._known(number)
        if known is None:
            return None
        if reading.shift is not None:
            known = int(known) >> reading.shift & (1 << reading.width) - 1
        if reading.values is not None:
            return reading.values.get(known)
        scaled = known * reading.scale
        return int(scaled) if scaled == int(scaled) else scaled

    def _listed(self, found: _Found, *, stale: bool) -> tuple[Sample, ...]:
        listed: list[Sample] = []
        for device in sorted(found.devices):
            listed.append(Sample("gpu_listed", device, 1, (("vendor", self._mapping.vendor),)))
            listed.append(Sample("gpu_vendor", device, self._mapping.vendor))
        if found.moving:
            listed.append(Sample("source_stale", NODE, int(stale), (("source", self.source),)))
        return tuple(listed)

    def _is_stale(self, found: _Found) -> bool:
        page = (found.values, found.codes, found.moving)
        self._same = self._same + 1 if found.moving and page == self._page else 0
        self._page = page
        return self._same + 1 >= STALE_AFTER

    def _events(self, found: _Found) -> tuple[Event, ...]:
        """Gauges of last Xids that changed to another one. The first sight may be weeks old: it is a baseline.

        Back to 0 is the exporter's restart, no recovery; the same number after it is no new Xid.
        """
        events: list[Event] = []
        for device, code in found.codes.items():
            before = self._codes.get(device)
            if before is None or code:
                self._codes[device] = code
            if before is not None and code not in {0, before}:
                events.extend(nvml_events.told_of(device.removeprefix(_GPU), nvml_events.XID, code, *_WHOLE).events)
        return tuple(events)


def _blind(reason: str) -> SourceState:
    return SourceState(up=False, reason=reason)


def _applies(reading: MetricReading, labels: Mapping[str, str]) -> bool:
    return all(labels.get(name, "") in values for name, values in reading.where)


def _labels(reading: MetricReading, labels: Mapping[str, str]) -> Labels:
    copied = ((ours, labels.get(theirs, "").lower()) for ours, theirs in reading.copied)
    return tuple(sorted((*reading.labels, *copied)))


class ExporterPoll:
    """Scrapes one exporter. A :class:`nodeguard.sources.polled.Poll`."""

    def __init__(self, pages: SourcePages, url: str, *, period: float = _PERIOD, deadline: float = _DEADLINE) -> None:
        """``period`` and ``deadline`` in seconds."""
        self._pages, self._endpoint = pages, Endpoint(url)
        self._period, self._deadline = period, deadline

    @property
    def name(self) -> str:
        """See :class:`nodeguard.sources.polled.Poll`."""
        return self._pages.source

    @property
    def period(self) -> float:
        """See :class:`nodeguard.sources.polled.Poll`."""
        return self._period

    def poll(self, now: float) -> Batch:
        """One scrape."""
        try:
            text = self._endpoint.fetch(self._deadline)
        except SourceError as error:
            return self._pages.failed(str(error), now)
        return self._pages.page(text, now)
