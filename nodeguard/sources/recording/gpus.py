"""The ``nvml`` and ``nvml_event`` entries of a recording."""

from collections.abc import Mapping
from typing import Any

from nodeguard.model.device import NODE, Device, gpu, pci_address
from nodeguard.model.sample import (
    Batch,
    Event,
    Fact,
    Identified,
    Missed,
    Present,
    Sample,
    SourceState,
    Stalled,
)
from nodeguard.model.signals import SIGNALS
from nodeguard.sources.nvml_gpus import ANSWERS_TO_TELL
from nodeguard.sources.recording import checks
from nodeguard.sources.recording.checks import Report
from nodeguard.vendors.nvidia import nvml_events

SOURCE = "nvml"
EVENTS_SOURCE = "nvml_events"
LOST = "GPU_IS_LOST"
RESET_REQUIRED = "RESET_REQUIRED"

STALLED = "source_stalled_seconds"

_OWN_KEYS = ("index", "pci", "error", "hang", "answered", STALLED)
_SIGNALS = {name: signal for name, signal in SIGNALS.items()
            if "gpu" in signal.devices and signal.kind != "event" and name != STALLED}
_NUMBERS = (int, float)
_LARGEST = 1e300
_EVENT_KEYS = ("uuid", "type", "data", "gpu_instance", "compute_instance")


class Gpus:
    """Turns polls into Batches; remembers, as the live source does, which calls are out and which GPUs are lost."""

    def __init__(self) -> None:
        self._slots: dict[str, Device] = {}
        self._stalled: set[Device] = set()
        self._answers: dict[Device, int] = {}
        """Polls that still say that a call which was out has been answered."""
        self._lost: set[Device] = set()
        self._up: bool | None = None

    def poll(self, at: float, entry: Any, report: Report) -> Batch:
        """One poll of NVML."""
        entry = checks.mapping(entry, "nvml", report)
        checks.unknown_keys(entry, ("gpus", "error", "driver", "count", "counts"), "nvml", report)
        if entry.get("error") is not None:
            self._up = False
            reason = checks.text(entry["error"], "nvml error", report)
            return Batch(source=SOURCE, facts=(SourceState(up=False, reason=reason), Missed()))
        facts: list[Fact] = []
        samples: list[Sample] = []
        events: list[Event] = []
        if self._up is not True:
            facts.append(SourceState(up=True))
            self._up = True
        if "driver" in entry:
            self._driver(at, checks.mapping(entry["driver"], "nvml driver", report), facts, samples, report)
        gpus = checks.mapping(entry.get("gpus", {}), "gpus", report)
        for uuid, readings in gpus.items():
            self._one(at, str(uuid), checks.mapping(readings, f"gpus {uuid}", report), facts, samples, events, report)
        facts.append(Present("gpu", frozenset(gpu(str(uuid)) for uuid in gpus)))
        count = entry.get("count", len(gpus))
        if count is not None:
            samples.append(Sample("gpu_count", NODE, checks.whole(count, "count", report)))
        return Batch(source=SOURCE, facts=tuple(facts), samples=tuple(samples), events=tuple(events),
                     counts=checks.counts(entry.get("counts", {}), report))

    def told(self, batch: Batch) -> None:
        """What a recorded agent's poll told that is no ``nvml`` entry: whether NVML can be seen through, calls out."""
        for fact in batch.facts if batch.source == SOURCE else ():
            if isinstance(fact, SourceState):
                self._up = fact.up
            elif isinstance(fact, Identified):
                self._slots[fact.pci] = fact.device
            elif isinstance(fact, Stalled) and fact.since is not None:
                self._stalled.add(fact.device)
            elif isinstance(fact, Stalled) and fact.device in self._stalled:
                self._stalled.discard(fact.device)
                self._answers[fact.device] = ANSWERS_TO_TELL

    def _one(self, at: float, uuid: str, readings: Mapping[Any, Any], facts: list[Fact],  # noqa: PLR0913 # collectors
             samples: list[Sample], events: list[Event], report: Report) -> None:
        device = gpu(uuid)
        if "pci" in readings:
            self._identify(device, readings["pci"], facts, report)
        if readings.get("hang"):
            self._hang(at, device, readings["hang"], facts, report)
            return
        self._answered(device, readings, facts, samples)
        error = readings.get("error")
        if error is not None:
            self._error(device, checks.text(error, f"error of {uuid}", report), facts, samples, events)
            return
        self._lost.discard(device)
        for key, value in readings.items():
            signal = _SIGNALS.get(key)
            if signal is None:
                if key not in _OWN_KEYS:
                    report(f"unknown key {key!r} of GPU {uuid}{checks.suggestion(str(key), (*_SIGNALS, *_OWN_KEYS))}")
            elif signal.attributes:
                self._labelled(signal.name, device, value, samples, report)
            elif type(value) in _NUMBERS and -_LARGEST < value < _LARGEST and not signal.states:
                samples.append(Sample(key, device, value))
            else:
                samples.append(Sample(key, device, checks.reading(signal, value, report)))

    @staticmethod
    def _labelled(name: str, device: Device, values: Any, samples: list[Sample], report: Report) -> None:
        signal = SIGNALS[name]
        label = signal.attributes[0]
        for key, value in checks.mapping(values, name, report).items():
            samples.append(Sample(name, device, checks.reading(signal, value, report), ((label, str(key)),)))

    def _identify(self, device: Device, pci: Any, facts: list[Fact], report: Report) -> None:
        if self._slots.get(pci) == device:
            return
        address = pci_address(pci) if isinstance(pci, str) else None
        if address is None:
            report(f"pci of {device} is no PCI address: {pci!r}")
        elif self._slots.get(address) != device:
            self._slots[address] = device
            facts.append(Identified(address, device))

    def _driver(self, at: float, readings: Mapping[Any, Any], facts: list[Fact], samples: list[Sample],
                report: Report) -> None:
        """What a recorded agent's calls to the driver as a whole did."""
        checks.unknown_keys(readings, ("hang", "answered", STALLED), "nvml driver", report)
        if readings.get("hang"):
            self._hang(at, NODE, readings["hang"], facts, report)
        else:
            self._answered(NODE, readings, facts, samples)

    def _hang(self, at: float, device: Device, since: Any, facts: list[Fact], report: Report) -> None:
        """``since``: true for now, or the engine time at which the call was made."""
        if device not in self._stalled:
            self._stalled.add(device)
            facts.append(Stalled(device, at if since is True else checks.seconds(since, "hang", report)))
        facts.append(Missed(frozenset({device})))

    def _answered(self, device: Device, readings: Mapping[Any, Any], facts: list[Fact],
                  samples: list[Sample]) -> None:
        if readings.get("answered"):
            self._stalled.discard(device)
            facts.append(Stalled(device, None))
        elif STALLED in readings:
            samples.append(Sample(STALLED, device, 0, (("source", SOURCE),)))
        elif device in self._stalled:
            self._stalled.discard(device)
            self._answers[device] = ANSWERS_TO_TELL
            facts.append(Stalled(device, None))
        elif self._answers.get(device, 0):
            self._answers[device] -= 1
            samples.append(Sample(STALLED, device, 0, (("source", SOURCE),)))

    def _error(self, device: Device, error: str, facts: list[Fact], samples: list[Sample],
               events: list[Event]) -> None:
        facts.append(Missed(frozenset({device})))
        if error == LOST and device not in self._lost:
            self._lost.add(device)
            events.append(Event("gpu_lost", device, {"cause": "nvml"}))
        elif error == RESET_REQUIRED:
            samples.append(Sample("gpu_recovery_action", device, 1))


def up(source: str) -> Batch:
    """The source can see."""
    return Batch(source=source, facts=(SourceState(up=True),))


def down(source: str, reason: str) -> Batch:
    """The source cannot see."""
    return Batch(source=source, facts=(SourceState(up=False, reason=reason),))


def event(entry: Any, report: Report) -> Batch:
    """One event of NVML's event set."""
    entry = checks.mapping(entry, "nvml_event", report)
    checks.unknown_keys(entry, _EVENT_KEYS, "nvml_event", report)
    if "uuid" not in entry or "type" not in entry:
        report("nvml_event needs uuid and type")
        return Batch(source=EVENTS_SOURCE)
    no_instance = nvml_events.NO_INSTANCE
    told = nvml_events.told_of(
        checks.text(entry["uuid"], "uuid", report), checks.whole(entry["type"], "type", report),
        checks.whole(entry.get("data", 0), "data", report),
        checks.whole(entry.get("gpu_instance", no_instance), "gpu_instance", report),
        checks.whole(entry.get("compute_instance", no_instance), "compute_instance", report))
    return Batch(source=EVENTS_SOURCE, samples=told.samples, events=told.events)
