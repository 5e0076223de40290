"""The way back: a Batch as the raw entry that tells it, where there is one. The reader decides whether it is exact."""

from typing import Any

from nodeguard.model.device import NODE, Device
from nodeguard.model.sample import Batch, Event, Identified, Missed, Pods, Present, Sample, Stalled
from nodeguard.model.signals import SIGNALS
from nodeguard.sources.recording.gpus import EVENTS_SOURCE, LOST, SOURCE
from nodeguard.vendors.nvidia.nvml_events import DOUBLE_BIT, NO_INSTANCE, UNAVAILABLE, XID

_NO_ANSWER = "NO_ANSWER"
"""Of a GPU that a poll asked in vain, whatever the reason."""

_EVENT_TYPES = {"gpu_xid": XID, "gpu_ecc_double_bit_event": DOUBLE_BIT, "gpu_unavailable_event": UNAVAILABLE}


class Inverse:
    """Remembers, as the reader does, which calls are out and which GPUs are lost."""

    def __init__(self) -> None:
        self._out: dict[Device, float] = {}
        self._lost: set[Device] = set()

    def entry_of(self, batch: Batch) -> dict[str, Any]:
        """The raw entry that is worth a try; empty: none is."""
        if batch.source == SOURCE:
            self._remember(batch)
            return self._poll(batch)
        if batch.source == EVENTS_SOURCE and batch.events:
            return _event(batch.events[0])
        if batch.source == "agent" and len(batch.facts) == 1 and isinstance(batch.facts[0], Pods):
            return _pods(batch.facts[0])
        return {}

    def _remember(self, batch: Batch) -> None:
        for fact in batch.facts:
            if isinstance(fact, Stalled) and fact.since is not None:
                self._out[fact.device] = fact.since
            elif isinstance(fact, Stalled):
                self._out.pop(fact.device, None)
        self._lost -= {sample.device for sample in batch.samples}
        self._lost |= {event.device for event in batch.events if event.signal == "gpu_lost"}

    def _poll(self, batch: Batch) -> dict[str, Any]:
        present = next((fact for fact in batch.facts if isinstance(fact, Present)), None)
        if present is None:
            return {}
        read: dict[Device, dict[str, Any]] = {sample.device: {} for sample in batch.samples}  # in the order of reading
        for fact in batch.facts:
            if isinstance(fact, Identified):
                read.setdefault(fact.device, {})["pci"] = fact.pci
            elif isinstance(fact, Missed):
                for device in fact.devices or ():
                    read.setdefault(device, {}).update(self._silence(device))
            elif isinstance(fact, Stalled) and fact.since is None:
                read.setdefault(fact.device, {})["answered"] = True
        for sample in batch.samples:
            _read(read[sample.device], sample)
        for device in sorted(present.devices):
            read.setdefault(device, {})
        driver = read.pop(NODE, {})
        entry: dict[str, Any] = {"count": driver.pop("gpu_count", None), **({"driver": driver} if driver else {}),
                                 "gpus": {device.partition("/")[2]: one for device, one in read.items()}}
        return {"nvml": {**entry, "counts": dict(batch.counts)} if batch.counts else entry}

    def _silence(self, device: Device) -> dict[str, Any]:
        if device in self._out:
            return {"hang": self._out[device]}
        return {"error": LOST if device in self._lost else _NO_ANSWER}


def _read(one: dict[str, Any], sample: Sample) -> None:
    if SIGNALS[sample.signal].attributes and sample.labels:
        one.setdefault(sample.signal, {})[sample.labels[0][1]] = sample.value
    else:
        one[sample.signal] = sample.value


def _event(event: Event) -> dict[str, Any]:
    uuid, *instances = event.device.partition("/")[2].split("/")
    entry: dict[str, Any] = {"uuid": uuid, "type": _EVENT_TYPES.get(event.signal, 0),
                             "data": event.attributes.get("code", 0)}
    for name, instance in zip(("gpu_instance", "compute_instance"), instances, strict=False):
        entry[name] = int(instance[2:]) if instance[2:].isdecimal() else NO_INSTANCE
    return {"nvml_event": entry}


def _pods(fact: Pods) -> dict[str, Any]:
    entry: dict[str, Any] = {_bare(device): [{"uid": pod.uid, "namespace": pod.namespace, "name": pod.name}
                                             for pod in pods] for device, pods in fact.by_device.items()}
    unknown = sorted(fact.looked_for - fact.by_device.keys())
    return {"pods": {**entry, **{_bare(device): None for device in unknown}}}


def _bare(device: Device) -> str:
    return device.removeprefix("gpu/") if device.startswith("gpu/GPU-") else device
