"""The agent's sources: to add one, add a line here; one below ``/sys`` has a line in :mod:`.readers` too."""

from collections.abc import Callable, Iterator

from nodeguard.app.expect import rdma_ports
from nodeguard.app.gpus import GpuSources
from nodeguard.app.host import host_polls
from nodeguard.app.readers import kernel_line_parsers
from nodeguard.app.taps import NO_TAPS, Taps
from nodeguard.config.mappings import shipped_mapping
from nodeguard.config.settings import AgentSettings
from nodeguard.model.clock import Clock
from nodeguard.model.sample import Batch
from nodeguard.sources.exporter import ExporterPages, ExporterPoll
from nodeguard.sources.kmsg import KmsgSource
from nodeguard.sources.kmsg_device import FileKmsgDevice
from nodeguard.sources.pcie import PciePoll
from nodeguard.sources.polled import Poll, PolledSource
from nodeguard.sources.rdma import RdmaPoll
from nodeguard.sources.runner import Source, SourceThread
from nodeguard.sources.tree import DirectoryTree


class SourceSet:
    """Every source of one agent, each in a thread of its own."""

    def __init__(self, settings: AgentSettings, clock: Clock, warn: Callable[[str], None],
                 taps: Taps = NO_TAPS) -> None:
        self._clock = clock
        self.gpus = GpuSources(settings, clock, warn)
        self.kmsg = KmsgSource(taps.device(FileKmsgDevice(settings.kmsg)), kernel_line_parsers(), clock,
                               any_facility=settings.kmsg_any_facility, warn=warn)
        self._polled = tuple(PolledSource(taps.poll(poll), clock) for poll in _polls(settings, clock, taps))
        self.kinds = self.gpus.kinds
        """Kinds of device that are here, as far as can be told before the first poll."""
        self.names = (self.kmsg.name, *self.gpus.names, *(one.name for one in self._polled))
        """Sources whose first words the first write waits for."""
        self._taps = taps
        self._threads: tuple[SourceThread, ...] = ()

    def _all(self) -> Iterator[Source]:
        yield self.kmsg
        yield from self.gpus.sources
        yield from self._polled

    def start(self, emit: Callable[[Batch], None], report: Callable[[str, Exception | None], None]) -> None:
        """Start every source. Once only."""
        emit = self._taps.passing(emit)
        self._threads = tuple(SourceThread(source, emit, self._clock, report) for source in self._all())
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float) -> None:
        """End them within ``timeout`` seconds; those that hang are left to the process's end."""
        for thread in self._threads:
            thread.stop()
        end = self._clock.boot() + timeout
        for thread in self._threads:
            thread.join(max(0.0, end - self._clock.boot()))


def _polls(settings: AgentSettings, clock: Clock, taps: Taps) -> Iterator[Poll]:
    sys, proc = taps.sys(DirectoryTree(settings.sys_root)), taps.proc(DirectoryTree(settings.proc_root))
    if not settings.no_rdma:
        yield RdmaPoll(sys, proc=proc, exclude=settings.rdma_exclude, expected=rdma_ports(settings))
    if not settings.no_pcie:
        yield PciePoll(sys)
    if not settings.no_host:
        yield from host_polls(settings, sys, proc, clock)
    for one in settings.exporter:
        pages = ExporterPages(one.name, shipped_mapping(one.mapping))
        yield ExporterPoll(taps.pages(pages, f"{one.name}:{one.mapping}"), one.url)
