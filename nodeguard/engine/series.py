"""Series: the newest known value per (signal, device, labels), its age in polls, and counters' baselines."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nodeguard.engine.predicates import as_text
from nodeguard.model.device import Device
from nodeguard.model.sample import Labels, Value
from nodeguard.model.signals import SIGNALS

if TYPE_CHECKING:
    from nodeguard.engine.trackers import Tracker

POLLS_UNTIL_UNKNOWN = 3
"""A sample is unknown after this many later polls of its source that should have carried it and did not."""

Key = tuple[str, Device, Labels]

MEMORY_LIMIT = 16
"""States remembered per series; a state signal has fewer."""


class Series:
    """One series. ``value`` None means unknown."""

    __slots__ = ("baselines", "device", "labels", "lifetime", "memory", "misses", "newest", "remembers", "saturates",
                 "signal", "source", "stalled_since", "told", "trackers", "value")

    def __init__(self, signal: str, device: Device, labels: Labels) -> None:
        row = SIGNALS[signal]
        self.signal = signal
        self.device = device
        self.labels = labels
        self.value: Value | None = None
        self.newest: Value | None = None
        """The newest known value of this boot, also while it is too old to be believed."""
        self.stalled_since: float | None = None
        """For ``source_stalled_seconds``: since when a call is out."""
        self.source = ""
        self.misses = 0
        self.told = False
        """Whether any poll ever brought a known value (else the signal is not supported here)."""
        self.saturates = row.saturates_at
        self.baselines: dict[str, float] | None = {} if row.kind == "counter" else None
        self.remembers = row.kind == "state" and not row.steady
        self.lifetime = row.lifetime
        self.memory: dict[str, str] = {}
        """State word → boot ID in which it was last seen; outlives a reboot."""
        self.trackers: tuple[Tracker, ...] = ()

    @property
    def key(self) -> Key:
        """The series' identity."""
        return self.signal, self.device, self.labels

    def known(self, value: Value, source: str) -> float | None:
        """Take in a known value; for a counter, by how much it grew (None at first sight)."""
        self.value = self.newest = value
        self.source = source
        self.told = True
        self.misses = 0
        if self.baselines is None or isinstance(value, str):
            return None
        return self.grown(value, source)

    def grown(self, value: float, source: str) -> float | None:
        """By how much a counter grew since ``source`` told it last (None at first sight); moves the baseline."""
        if self.baselines is None:
            return None
        before = self.baselines.get(source)
        self.baselines[source] = value
        if before is None:
            return None
        # a counter that went back was reset: what it counted before is no increase
        return value - before if value > before else 0.0

    def missed(self, source: str) -> bool:
        """Count a poll of ``source`` that brought nothing known; True when the value just became unknown."""
        if self.value is None or source != self.source:
            return False
        self.misses += 1
        if self.misses < POLLS_UNTIL_UNKNOWN:
            return False
        self.value = None
        return True

    def remember(self, value: Value, boot_id: str) -> None:
        """Keep that this state was seen in this boot."""
        word = as_text(value)
        if self.memory.get(word) != boot_id and (word in self.memory or len(self.memory) < MEMORY_LIMIT):
            self.memory[word] = boot_id

    def reboot(self) -> None:
        """Another boot: the value is unknown; memory stays, and so do baselines that the device keeps itself."""
        self.value = self.newest = self.stalled_since = None
        self.misses = 0
        self.told = False
        if self.baselines is not None and not self.lifetime:
            self.baselines = {}

    def state(self) -> dict[str, Any]:
        """For the store (boot part)."""
        return {"signal": self.signal, "device": self.device, "labels": [list(pair) for pair in self.labels],
                "value": self.value, "newest": self.newest, "stalled_since": self.stalled_since, "source": self.source,
                "misses": self.misses, "told": self.told, "baselines": self.baselines}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self.value, self.newest, self.stalled_since = state["value"], state["newest"], state["stalled_since"]
        self.source = str(state["source"])
        self.misses = int(state["misses"])
        self.told = bool(state["told"])
        if self.baselines is not None and state["baselines"] is not None:
            self.baselines = {str(source): float(value) for source, value in state["baselines"].items()}


def labels_of(state: Mapping[str, Any]) -> Labels:
    """The labels kept in a stored series or tracker."""
    return tuple((str(name), str(value)) for name, value in state["labels"])


class SeriesTable:
    """Every series, by identity and by source."""

    def __init__(self) -> None:
        self.all: dict[Key, Series] = {}
        self._by_signal: dict[str, dict[Key, Series]] = {}

    def add(self, series: Series) -> None:
        """Take in a new series."""
        self.all[series.key] = series
        self._by_signal.setdefault(series.signal, {})[series.key] = series

    def get(self, signal: str, device: Device, labels: Labels = ()) -> Series | None:
        """The series, if anything was ever read for it."""
        return self.all.get((signal, device, labels))

    def value(self, signal: str, device: Device) -> Value | None:
        """Newest known value of the series without labels."""
        series = self.all.get((signal, device, ()))
        return None if series is None else series.value

    def of_signal(self, signal: str) -> Iterator[Series]:
        """Every series of a signal."""
        return iter(self._by_signal.get(signal, {}).values())

    def of_source(self, source: str, devices: frozenset[Device] | None) -> Iterator[Series]:
        """Series whose newest value came from ``source``, on ``devices`` (None: any)."""
        return (series for series in self.all.values()
                if series.source == source and (devices is None or series.device in devices))

    def drop(self, series: Series) -> None:
        """Forget a series."""
        self.all.pop(series.key, None)
        self._by_signal.get(series.signal, {}).pop(series.key, None)
