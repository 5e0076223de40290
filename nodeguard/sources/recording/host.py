"""The ``host`` entries of a recording: readings of the node, of its disks and of its network interfaces."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodeguard.model.device import NODE, Device
from nodeguard.model.sample import Batch, Sample
from nodeguard.model.signals import SIGNALS
from nodeguard.model.signals.host import HOST_SOURCES
from nodeguard.model.signals.signal import Signal
from nodeguard.sources.recording import checks
from nodeguard.sources.recording.checks import Report

_DISKS, _NICS = "disks", "nics"


def _carried_by(kind: str) -> dict[str, Signal]:
    return {name: signal for name, signal in SIGNALS.items()
            if signal.devices == (kind,) and signal.kind != "event" and signal.sources[0] in HOST_SOURCES}


_NODE_SIGNALS, _DISK_SIGNALS, _NIC_SIGNALS = _carried_by("node"), _carried_by("disk"), _carried_by("nic")


def host(entry: Any, report: Report) -> Iterable[Batch]:
    """One poll of each source that reads what is given: ``host`` itself, ``disks``, ``kubelet``.

    ``disks`` holds readings by mount point, ``nics`` by interface.
    """
    entry = checks.mapping(entry, "host", report)
    samples = [
        *_readings(NODE, {key: value for key, value in entry.items() if key not in (_DISKS, _NICS)},
                   _NODE_SIGNALS, report, (_DISKS, _NICS)),
        *_devices(entry, _DISKS, "disk", _DISK_SIGNALS, report),
        *_devices(entry, _NICS, "nic/", _NIC_SIGNALS, report),
    ]
    told = {source: tuple(one for one in samples if SIGNALS[one.signal].sources[0] == source)
            for source in HOST_SOURCES}
    return tuple(Batch(source=source, samples=some) for source, some in told.items() if some or source == "host")


def _devices(entry: Mapping[Any, Any], key: str, prefix: str, signals: Mapping[str, Signal],
             report: Report) -> Iterator[Sample]:
    for name, readings in checks.mapping(entry.get(key, {}), f"host {key}", report).items():
        if prefix == "disk" and not str(name).startswith("/"):
            report(f"a disk is called by its mount point, such as /var/lib, not {name!r}")
            continue
        given = checks.mapping(readings, f"host {key} {name}", report)
        yield from _readings(Device(f"{prefix}{name}"), given, signals, report)


def _readings(device: Device, given: Mapping[Any, Any], signals: Mapping[str, Signal], report: Report,
              others: tuple[str, ...] = ()) -> Iterator[Sample]:
    checks.unknown_keys(given, (*signals, *others), "host" if device == NODE else f"host {device}", report)
    for name, value in given.items():
        signal = signals.get(name)
        if signal is None:
            continue
        if not signal.attributes:
            yield Sample(name, device, checks.reading(signal, value, report))
            continue
        for label, one in checks.mapping(value, name, report).items():
            yield Sample(name, device, checks.reading(signal, one, report), ((signal.attributes[0], str(label)),))
