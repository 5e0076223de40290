"""The PCI bus: errors that AER counts, the links of network adapters, and which GPUs are their neighbours.

An accelerator's own link is its driver's to tell: it lowers its generation when idle, and only the driver knows the
load beside it.
"""

import errno
import re
from collections.abc import Iterator, Mapping

from nodeguard.model.device import NODE, Device
from nodeguard.model.sample import Affinity, Batch, Fact, Missed, Sample, SourceState
from nodeguard.sources.pcie_functions import BUS, Function, Functions
from nodeguard.sources.tree import Tree, count_of, text_of

SOURCE = "pcie"
PERIOD = 30.0

_SEVERITIES = ("correctable", "nonfatal", "fatal")
_TOTAL = re.compile(r"^TOTAL_ERR_\w+\s+(\d{1,20})$", re.MULTILINE | re.ASCII)
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""By gigatransfers a second (kernel drivers/pci/probe.c pcie_link_speed)."""
_WIDTHS = frozenset({1, 2, 4, 8, 12, 16, 32})
"""Lanes that a link can have; 0, 63 and 255 are what virtual and absent ones show."""


class PciePoll:
    """Reads all of it. See :class:`nodeguard.sources.polled.Poll`."""

    name = SOURCE
    period = PERIOD

    def __init__(self, tree: Tree) -> None:
        """``tree``: ``/sys``."""
        self._tree = tree
        self._functions = Functions(tree)
        self._near: Mapping[Device, tuple[Device, ...]] = {}

    def poll(self, now: float) -> Batch:  # noqa: ARG002 # counters need no time
        """See :class:`nodeguard.sources.polled.Poll`. A machine without a PCI bus has nothing to tell."""
        try:
            functions = self._functions.look()
        except OSError as error:
            if error.errno != errno.ENOENT:
                return Batch(source=SOURCE, facts=(SourceState(up=False, reason=str(error)), Missed()))
            functions = ()
        by_device: dict[Device, list[Function]] = {}
        for function in functions:
            by_device.setdefault(function.device, []).append(function)
        samples = [sample for device, group in by_device.items() for sample in self._of(device, group)]
        samples.append(Sample("pcie_function_count", NODE, len(functions)))
        return Batch(source=SOURCE, samples=tuple(samples), facts=tuple(self._affinity(functions)), complete=True)

    def _affinity(self, functions: tuple[Function, ...]) -> Iterator[Fact]:
        near = self._functions.neighbours(functions)
        if near != self._near:
            self._near = near
            yield Affinity(near)

    def _of(self, device: Device, functions: list[Function]) -> Iterator[Sample]:
        """One device: functions of a card with several are one link, and their errors are added up."""
        for severity in _SEVERITIES:
            counts = [self._errors(function, severity) for function in functions]
            known = [count for count in counts if count is not None]
            yield Sample(f"pcie_aer_{severity}_total", device, sum(known) if known else None)
        if functions[0].is_network:
            yield from self._link(functions[0])

    def _errors(self, function: Function, severity: str) -> int | None:
        found = _TOTAL.search(text_of(self._tree, f"{function.directory}/aer_dev_{severity}"))
        return int(found[1]) if found else None

    def _link(self, function: Function) -> Iterator[Sample]:
        """What is possible is what both ends can do: a new card in an old slot is not degraded."""
        ends = [function.name, *([function.bridge] if function.bridge else ())]
        speeds = [self._speed(f"{BUS}/{end}/max_link_speed") for end in ends]
        widths = [self._width(f"{BUS}/{end}/max_link_width") for end in ends]
        yield Sample("pcie_link_generation", function.device, self._speed(f"{function.directory}/current_link_speed"))
        yield Sample("pcie_link_generation_max", function.device, _least(speeds))
        yield Sample("pcie_link_width", function.device, self._width(f"{function.directory}/current_link_width"))
        yield Sample("pcie_link_width_max", function.device, _least(widths))

    def _speed(self, path: str) -> int | None:
        try:
            return _GENERATIONS.get(float(text_of(self._tree, path).partition(" ")[0]))
        except ValueError:
            return None

    def _width(self, path: str) -> int | None:
        width = count_of(self._tree, path)
        return width if width in _WIDTHS else None


def _least(values: list[int | None]) -> int | None:
    """The lesser of what both ends can do; unknown while the card's own is."""
    return None if values[0] is None else min(value for value in values if value is not None)
