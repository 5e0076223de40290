"""The host itself: memory, pressure, clock, memory controllers, network interfaces.

The kernel tells all of it at once. What may hang (file systems, endpoints) is in polls of its own.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nodeguard.model.clock import Clock
from nodeguard.model.device import NODE
from nodeguard.model.sample import Batch, Sample
from nodeguard.sources.host_clock import WallClock
from nodeguard.sources.host_network import Interfaces
from nodeguard.sources.tree import Tree, count_of, names_of, text_of

SOURCE = "host"
PERIOD = 5.0

_PRESSURES = (("cpu", "some"), ("memory", "full"), ("io", "full"))
"""Every task waiting (``full``) is what stops training; for CPUs only ``some`` has a meaning (psi.rst)."""
_PRESSURE = {which: re.compile(rf"^{which} .*\bavg60=(\d{{1,3}}(?:\.\d+)?)", re.MULTILINE | re.ASCII)
             for which in ("some", "full")}
_OOM_KILLS = re.compile(r"^oom_kill (\d{1,20})$", re.MULTILINE | re.ASCII)
_CONTROLLERS = "devices/system/edac/mc"
_CONTROLLER = re.compile(r"mc\d{1,4}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the kernel tells in no file that is read here."""

    memory: Callable[[], float | None]
    """Share of the memory that is available."""
    clock: Callable[[], WallClock | None]


class HostPoll:
    """Reads all of it. See :class:`nodeguard.sources.polled.Poll`. A file that is not there is not supported here."""

    name = SOURCE
    period = PERIOD

    def __init__(self, sys: Tree, proc: Tree, machine: Machine, clock: Clock) -> None:
        """``sys`` and ``proc``: ``/sys`` and ``/proc``."""
        self._sys, self._proc, self._machine, self._clock = sys, proc, machine, clock
        self._interfaces = Interfaces(proc)
        self._wall_is_ahead: float | None = None

    def poll(self, now: float) -> Batch:  # noqa: ARG002 # the two clocks are compared at one moment
        """See :class:`nodeguard.sources.polled.Poll`."""
        samples = (*self._memory(), *self._pressures(), *self._clocks(), *self._controllers(),
                   *self._interfaces.samples())
        return Batch(source=SOURCE, samples=samples, complete=True)

    def _memory(self) -> Iterator[Sample]:
        yield Sample("host_memory_available_ratio", NODE, self._machine.memory())
        kills = _OOM_KILLS.search(text_of(self._proc, "vmstat"))
        yield Sample("host_oom_kills_total", NODE, int(kills[1]) if kills else None)

    def _pressures(self) -> Iterator[Sample]:
        for what, which in _PRESSURES:
            found = _PRESSURE[which].search(text_of(self._proc, f"pressure/{what}"))
            yield Sample(f"host_{what}_pressure_ratio", NODE, float(found[1]) / 100 if found else None)

    def _clocks(self) -> Iterator[Sample]:
        kept = self._machine.clock()
        yield Sample("host_clock_synchronized", NODE, None if kept is None else int(kept.synchronized))
        yield Sample("host_clock_error_seconds", NODE, None if kept is None else kept.max_error)
        before, self._wall_is_ahead = self._wall_is_ahead, self._clock.wall() - self._clock.boot()
        step = None if before is None else round(abs(self._wall_is_ahead - before), 3)
        yield Sample("host_clock_step_seconds", NODE, step)

    def _controllers(self) -> Iterator[Sample]:
        for name in filter(_CONTROLLER.fullmatch, names_of(self._sys, _CONTROLLERS)):
            for what, file in (("corrected", "ce_count"), ("uncorrected", "ue_count")):
                count = count_of(self._sys, f"{_CONTROLLERS}/{name}/{file}")
                yield Sample(f"host_memory_{what}_errors_total", NODE, count, (("controller", name),))
