"""What an agent lets others see of its work. :class:`Taps` sees nothing; :mod:`.record` writes it down."""

from collections.abc import Callable, Mapping

from nodeguard.config.settings import AgentSettings
from nodeguard.engine.engine import Engine
from nodeguard.model.sample import Batch
from nodeguard.sources.kmsg_device import KmsgDevice
from nodeguard.sources.polled import Poll
from nodeguard.sources.recording.readers import SourcePages
from nodeguard.sources.tree import Tree

Emit = Callable[[Batch], None]


class Taps:
    """Every method gives back what it is given, and keeps nothing."""

    def device(self, device: KmsgDevice) -> KmsgDevice:
        """The kernel log's device."""
        return device

    def sys(self, tree: Tree) -> Tree:
        """``/sys``, for the polls that read it."""
        return tree

    def proc(self, tree: Tree) -> Tree:
        """``/proc``, for the same polls; after :meth:`sys`."""
        return tree

    def poll(self, poll: Poll) -> Poll:
        """Something that is polled."""
        return poll

    def pages(self, pages: SourcePages, name: str) -> SourcePages:
        """The pages of an exporter; ``name`` is NAME:MAPPING."""
        del name
        return pages

    def passing(self, emit: Emit) -> Emit:
        """The way from the sources to the loop."""
        return emit

    def begin(self, now: float, engine: Engine, settings: AgentSettings, kmsg: Mapping[str, object]) -> None:
        """The agent begins at engine time ``now``, with what it remembers; ``kmsg`` is the kernel log's memory."""

    def took(self, now: float, batch: Batch) -> None:
        """The engine takes ``batch`` at ``now``."""

    def judged_by(self, now: float, engine: Engine) -> None:
        """Another rule set is in force."""

    def end(self, engine: Engine) -> None:
        """The engine will not step again."""


NO_TAPS = Taps()
