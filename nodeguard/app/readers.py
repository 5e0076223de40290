"""Which parts read what, live and in a replay: a new source below ``/sys``, or a driver's kernel lines, go here."""

from collections.abc import Sequence

from nodeguard.sources.kmsg_records import KernelLog, LineParser
from nodeguard.sources.polled import Poll
from nodeguard.sources.recording.readers import Pages, Readers
from nodeguard.sources.tree import Tree
from nodeguard.vendors.nvidia.kernel_log import NvidiaKernelLog


def kernel_line_parsers() -> tuple[LineParser, ...]:
    """New parsers of every driver whose kernel lines are known."""
    return (NvidiaKernelLog(),)


def sysfs_polls(tree: Tree) -> Sequence[Poll]:
    """New sources of everything that is read below ``/sys``, with nothing excluded and nothing expected."""
    del tree
    return ()


def exporter_pages(name: str) -> Pages | None:
    """A new reader of the pages of the exporter of this name."""
    del name
    return None


def readers() -> Readers:
    """What a replay reads with."""
    return Readers(kernel_log=lambda: KernelLog(kernel_line_parsers()), sysfs=sysfs_polls, exporter=exporter_pages)
