"""Series: the newest known value per (signal, device, labels), its age in polls, and counters' baselines."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

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

    __slots__ = ("baselines", "device", "labels", "lifetime", "memory", "misses", "remembers", "saturates", "signal",
                 "source", "told", "trackers", "value")

    def __init__(self, signal: str, device: Device, labels: Labels) -> None:
        row = SIGNALS[signal]
        self.signal = signal
        self.device = device
        self.labels = labels
        self.value: Value | None = None
        self.source = ""
        self.misses = 0
        self.told = False
        """Whether any poll ever brought a known value (else the signal is not supported here)."""
        self.saturates = row.saturates_at
        self.baselines: dict[str, float] | None = {} if row.kind == "counter" else None
        self.remembers = bool(row.states)
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
        self.value = value
        self.source = source
        self.told = True
        self.misses = 0
        if self.baselines is None or isinstance(value, str):
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
        word = str(value)
        if self.memory.get(word) != boot_id and (word in self.memory or len(self.memory) < MEMORY_LIMIT):
            self.memory[word] = boot_id

    def reboot(self) -> None:
        """Another boot: the value is unknown; memory stays, and so do baselines that the device keeps itself."""
        self.value = None
        self.misses = 0
        self.told = False
        if self.baselines is not None and not self.lifetime:
            self.baselines = {}

    def state(self) -> dict[str, Any]:
        """For the store (boot part)."""
        return {"signal": self.signal, "device": self.device, "labels": [list(pair) for pair in self.labels],
                "value": self.value, "source": self.source, "misses": self.misses, "told": self.told,
                "baselines": self.baselines}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self.value = state["value"]
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

    def get(self, signal: str, device: Device, labels: Labels = ()) -> Series | None:
        """The series, if anything was ever read for it."""
        return self.all.get((signal, device, labels))

    def value(self, signal: str, device: Device) -> Value | None:
        """Newest known value of the series without labels."""
        series = self.all.get((signal, device, ()))
        return None if series is None else series.value

    def of_signal(self, signal: str) -> Iterator[Series]:
        """Every series of a signal."""
        return (series for series in self.all.values() if series.signal == signal)

    def of_source(self, source: str, devices: frozenset[Device] | None) -> Iterator[Series]:
        """Series whose newest value came from ``source``, on ``devices`` (None: any)."""
        return (series for series in self.all.values()
                if series.source == source and (devices is None or series.device in devices))

    def drop(self, series: Series) -> None:
        """Forget a series."""
        self.all.pop(series.key, None)
