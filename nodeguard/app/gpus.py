"""NVML's two sources for the agent, and the quiet that a GPU reset or a driver upgrade asks for."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from nodeguard.app.person import quiesced_until
from nodeguard.config.settings import AgentSettings
from nodeguard.model.clock import Clock
from nodeguard.sinks.log import Log
from nodeguard.sources.nvml import NvmlSource
from nodeguard.sources.nvml_events import NvmlEventSource
from nodeguard.sources.pods import PodFinder, PodsSource
from nodeguard.vendors.nvidia.nvml import Nvml
from nodeguard.vendors.nvidia.pci import Bus

if TYPE_CHECKING:
    from nodeguard.sources.runner import Source


class GpuSources:
    """NVML, polled and followed, on a node that has NVIDIA GPUs; nothing elsewhere."""

    def __init__(self, settings: AgentSettings, clock: Clock, warn: Callable[[str], None]) -> None:
        self._bus = Bus(settings.sys_root)
        self.kinds = self._bus.kinds()
        """Kinds of device that the PCI bus shows."""
        self.nvml = Nvml(settings.nvml_library)
        self._polled = NvmlSource(self.nvml, self._bus.gpus, clock, nvlinks=settings.expect_nvlinks, warn=warn)
        self._followed = NvmlEventSource(self.nvml.watch, clock, self._polled.poll_all)
        self._polled.opened = self._followed.opened
        self._polled.closing = self._followed.closing
        self.pods = PodsSource(
            self.nvml, PodFinder(settings.proc_root, settings.kubelet_root, settings.pods_log_root), clock,
            hangs=self._polled.hangs)
        """Which pods hold faulty GPUs."""
        wanted = not settings.no_nvml and "gpu" in self.kinds
        self.sources: tuple[Source, ...] = (self._polled, self._followed, self.pods) if wanted else ()
        self.names = (self._polled.name, self._followed.name) if wanted else ()

    def quiesce(self, *, on: bool) -> None:
        """Close NVML and keep away from it, or go back to work."""
        self._polled.quiesce(on=on)

    def poll_now(self) -> None:
        """Read everything in the next round: something was lost that may have told of a fault."""
        self._polled.poll_all()


class Quiet:
    """Lets go of the driver while the Node's annotation or a driver upgrade's label asks for it."""

    def __init__(self, gpus: GpuSources, log: Log) -> None:
        self._gpus, self._log = gpus, log
        self._until: float | None = None
        self._on = False

    def ask(self, annotations: Mapping[str, object], labels: Mapping[str, str]) -> None:
        """Take what the Node says now."""
        self._until = quiesced_until(annotations, labels)

    def look(self, wall: float) -> None:
        """Begin, or end, if it is time (Unix seconds)."""
        wanted = self._until is not None and wall < self._until
        if wanted != self._on:
            self._on = wanted
            self._gpus.quiesce(on=wanted)
            self._log.info("quiesced" if wanted else "no longer quiesced")
