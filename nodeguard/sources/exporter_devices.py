"""Which device a line of an exporter's page is about: by UUID, by PCI address, by index, never by a host's name.

``Hostname`` and its like name the exporter's pod (dcgm-exporter#129): the node is the one that the agent runs on.
"""

import re
from collections.abc import Iterator, Mapping

from nodeguard.model.device import Device, gpu, gpu_at, pci_address
from nodeguard.model.mapping import ExporterMapping
from nodeguard.model.sample import Identified

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")

MAX_DEVICES = 512
"""Names that one exporter may bring up; a node has 16 devices, in up to 8 partitions."""


class Devices:
    """Names devices, and remembers what else each was called: not every line carries every label."""

    def __init__(self, mapping: ExporterMapping) -> None:
        self._mapping = mapping
        self._aliases: dict[str, Device] = {}
        """Index or PCI address → UUID's name."""
        self._slots: dict[str, set[Device]] = {}
        self._told: set[str] = set()
        self._names: set[Device] = set()
        self.renamed = False
        """A device that was called by index or PCI address has its true name since the last look."""

    def of(self, labels: Mapping[str, str]) -> Device | None:
        """The device; None when no label names one."""
        uuid = _first(labels, self._mapping.uuid_labels)
        index = _first(labels, self._mapping.index_labels)
        pci = pci_address(_first(labels, self._mapping.pci_labels))
        found = self._named(uuid, pci, index)
        if found is None or (found not in self._names and len(self._names) >= MAX_DEVICES):
            return None
        self._names.add(found)
        if uuid:
            self._remember(found, pci, index)
        return found

    def _named(self, uuid: str, pci: str | None, index: str) -> Device | None:
        if uuid:
            return gpu(uuid)
        if pci is not None:
            return self._aliases.get(pci) or gpu_at(pci)
        return (self._aliases.get(index) or Device(f"gpu/{index}")) if index else None

    def _remember(self, device: Device, pci: str | None, index: str) -> None:
        for alias in filter(None, (pci, index)):
            if alias not in self._aliases:
                self._aliases[alias] = device
                self.renamed = self.renamed or Device(f"gpu/{alias}") in self._names
        if pci is not None:
            self._slots.setdefault(pci, set()).add(device)

    def identified(self) -> Iterator[Identified]:
        """Slots whose device became known. Partitions share a slot: it is none of them."""
        for pci, devices in self._slots.items():
            if pci not in self._told and len(devices) == 1:
                self._told.add(pci)
                yield Identified(pci, next(iter(devices)))


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    """The first of these labels that holds a word; what is none could not be part of a device's name."""
    return next((labels[name] for name in names if _WORD.fullmatch(labels.get(name, ""))), "")
