"""Where a recording takes what sources read: beside the kernel log's device, beside an exporter's pages."""

from collections import deque
from collections.abc import Sequence

from nodeguard.model.sample import Batch
from nodeguard.sources.kmsg_device import KmsgDevice
from nodeguard.sources.recording.readers import SourcePages

_LINES_LIMIT = 65536
"""Reads kept while the source makes no Batch of them; it makes one within a second."""


class NotingDevice:
    """A :class:`nodeguard.sources.kmsg_device.KmsgDevice` that keeps what was read until it is taken."""

    def __init__(self, device: KmsgDevice) -> None:
        self._device = device
        self._lines: deque[bytes] = deque(maxlen=_LINES_LIMIT)
        self._overruns = 0

    def take(self) -> tuple[tuple[bytes, ...], int]:
        """What was read since the last take, and how often records were overwritten. In the reading thread."""
        taken = tuple(self._lines), self._overruns
        self._lines.clear()
        self._overruns = 0
        return taken

    def open(self) -> None:
        """See :class:`nodeguard.sources.kmsg_device.KmsgDevice`."""
        self._device.open()

    def read(self) -> Sequence[bytes]:
        """See :class:`nodeguard.sources.kmsg_device.KmsgDevice`."""
        try:
            lines = self._device.read()
        except BrokenPipeError:
            self._overruns += 1
            raise
        self._lines.extend(lines)
        return lines

    def wait(self, timeout: float | None) -> None:
        """See :class:`nodeguard.sources.kmsg_device.KmsgDevice`."""
        self._device.wait(timeout)

    def wake(self) -> None:
        """See :class:`nodeguard.sources.kmsg_device.KmsgDevice`."""
        self._device.wake()

    def close(self) -> None:
        """See :class:`nodeguard.sources.kmsg_device.KmsgDevice`."""
        self._device.close()


class NotingPages:
    """Pages of an exporter, kept until they are taken. ``name`` is what a recording calls the exporter."""

    def __init__(self, pages: SourcePages, name: str) -> None:
        self._pages, self._name, self.source = pages, name, pages.source
        self.pages: deque[dict[str, str]] = deque(maxlen=8)

    def page(self, text: str, now: float) -> Batch:
        """See :class:`nodeguard.sources.recording.readers.Pages`."""
        self.pages.append({"name": self._name, "page": text})
        return self._pages.page(text, now)

    def failed(self, reason: str, now: float) -> Batch:
        """See :class:`nodeguard.sources.recording.readers.Pages`."""
        self.pages.append({"name": self._name, "error": reason})
        return self._pages.failed(reason, now)
