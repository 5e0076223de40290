"""Which parts read what, live and in a replay: a new source below ``/sys``, or a driver's kernel lines, go here."""

from collections.abc import Sequence

from nodeguard.config.mappings import mapping_names, shipped_mapping
from nodeguard.sources.exporter import ExporterPages
from nodeguard.sources.host_kernel_log import HostKernelLog
from nodeguard.sources.kmsg_records import KernelLog, LineParser
from nodeguard.sources.pcie import PciePoll
from nodeguard.sources.polled import Poll
from nodeguard.sources.rdma import RdmaPoll
from nodeguard.sources.recording.readers import Readers
from nodeguard.sources.recording.tree import PROC, Below
from nodeguard.sources.tree import Tree
from nodeguard.vendors.mellanox.kernel_log import MellanoxKernelLog
from nodeguard.vendors.nvidia.kernel_log import NvidiaKernelLog


def kernel_line_parsers() -> tuple[LineParser, ...]:
    """New parsers of every driver whose kernel lines are known."""
    return (NvidiaKernelLog(), HostKernelLog(), MellanoxKernelLog())


def sysfs_polls(tree: Tree, recorded: bool) -> Sequence[Poll]:  # noqa: FBT001 # as Readers.sysfs calls it
    """New sources of everything that a recording tells of ``/sys``, with nothing excluded and nothing expected."""
    rdma = RdmaPoll(tree, proc=Below(tree, PROC)) if recorded else RdmaPoll(tree, slow_every=0.0)
    return (rdma, PciePoll(tree))


def exporter_pages(name: str) -> ExporterPages | None:
    """A new reader of the pages of the exporter of this name, read as its mapping says: NAME or NAME:MAPPING."""
    called, _, mapping = name.partition(":")
    if (mapping or called) not in mapping_names():
        return None
    return ExporterPages(called, shipped_mapping(mapping or called))


def readers() -> Readers:
    """What a replay reads with."""
    return Readers(kernel_log=lambda any_facility: KernelLog(kernel_line_parsers(), any_facility=any_facility),
                   sysfs=sysfs_polls, exporter=exporter_pages)
