"""What an exporter's metrics mean: loaded, checked and frozen by ``config``, applied by ``sources``."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodeguard.model.sample import Labels, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricReading:
    """One thing that a metric tells. A bit mask has one for each of its bits."""

    signal: str
    scale: float = 1.0
    """From the metric's unit to the signal's."""
    values: Mapping[float, Value] | None = None
    """The signal's value for each of the metric's; others are unknown. None: the number itself."""
    shift: int | None = None
    """Take ``width`` bits from this one on."""
    width: int = 1
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Only lines whose label has one of these values; ``""`` stands for a label that is not there."""
    labels: Labels = ()
    """Labels that the signal gets."""
    copied: tuple[tuple[str, str], ...] = ()
    """Labels that the signal takes from the line: ours, the line's."""
    last: bool = False
    """The metric holds the number of the last Xid, and tells of one by changing to another number."""
    on_node: bool = False
    """The metric is about the node, not about one device."""
    summed: bool = False
    """Added to the other metrics of the same signal, which must all be known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterMapping:
    """How to read the pages of one kind of exporter."""

    name: str
    vendor: str
    """A state of the signal ``gpu_vendor``."""
    uuid_labels: tuple[str, ...]
    """Labels that may hold the device's lasting identity, best first; so with the others."""
    pci_labels: tuple[str, ...]
    index_labels: tuple[str, ...]
    prefixes: tuple[str, ...]
    """What an exporter may be told to put before its metrics' names."""
    blanks: tuple[tuple[float, float], ...]
    """Ranges of numbers, ends included, that mean "no value"."""
    moving: frozenset[str]
    """Metrics that no live page repeats from scrape to scrape."""
    metrics: Mapping[str, tuple[MetricReading, ...]]

    def is_blank(self, value: float) -> bool:
        """Whether the number means that there is none."""
        return any(low <= value <= high for low, high in self.blanks)
