"""What the parser of the kernel log says of lines: shared by its tests."""

from nodeguard.model.sample import Event, Told
from nodeguard.vendors.nvidia.kernel_log import NvidiaKernelLog

GONE = "NVRM: The NVIDIA GPU 0000:b3:00.0"
GONE_MIDDLE = "NVRM: (PCI ID: 10de:26b5) installed in this system has"
GONE_END = "NVRM: fallen off the bus and is not responding to commands."


def tell(*lines: str) -> list[Told]:
    """What a fresh parser says of each line that is the driver's, a tenth of a second apart."""
    parser = NvidiaKernelLog()
    told = (parser.feed(line, 10 + number / 10) for number, line in enumerate(lines))
    return [one for one in told if one is not None]


def events(*lines: str) -> list[Event]:
    """Every event told."""
    return [event for one in tell(*lines) for event in one.events]


def only(line: str) -> Event:
    """The single event of a line."""
    (event,) = events(line)
    return event


def names(*lines: str) -> list[tuple[str, str]]:
    """Signal and device of every event."""
    return [(event.signal, event.device) for event in events(*lines)]
