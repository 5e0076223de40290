"""What turns a recording's raw entries into Batches: the same parts that read a live node."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from nodeguard.model.sample import Batch
from nodeguard.sources.kmsg_records import KernelLog
from nodeguard.sources.polled import Poll
from nodeguard.sources.tree import Tree


class Pages(Protocol):
    """Reads the pages of one exporter."""

    def page(self, text: str, now: float) -> Batch:
        """What a page tells."""
        ...

    def failed(self, reason: str, now: float) -> Batch:
        """What it means that there was no page."""
        ...


class SourcePages(Pages, Protocol):
    """Pages that know their source."""

    source: str
    """The ``source`` of the Batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """Makers, because an agent's restart and a reboot begin with new ones."""

    kernel_log: Callable[[bool], KernelLog]
    """Told whether lines of any facility are believed."""
    sysfs: Callable[[Tree, bool], Sequence[Poll]]
    """The sources that read below ``/sys``. True: an agent recorded what it read, at its own pace, and of ``/proc``
    what it asked too (see :data:`.tree.PROC`); False: a person wrote it, who means every entry whole."""
    exporter: Callable[[str], Pages | None]
    """The pages of the exporter of this name; None: no exporter is known by it."""
