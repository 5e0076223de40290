"""Which devices are here: names, slots, what earlier polls and earlier boots saw, what the operator expects."""

from collections.abc import Mapping
from typing import Any

from nodeguard.model.device import NODE, Device, is_within, kind_of, parent_of, pci_address, pci_of
from nodeguard.model.sample import PodRef


class Inventory:
    """Names and presence of devices.

    ``seen`` holds devices of this boot's polls, ``stored`` those that an earlier boot left behind.
    """

    def __init__(self) -> None:
        self.slots: dict[str, Device] = {}
        """PCI address → GPU, in this boot."""
        self._alias: dict[Device, Device] = {}
        self.seen: set[Device] = set()
        self.stored: dict[Device, str] = {}
        """GPUs of the boots before, with their slots."""
        self.lost: set[Device] = set()
        self.kinds: set[str] = {"node"}
        self.expected: frozenset[Device] = frozenset()
        self.counts: dict[str, int] = {}
        self.pods: dict[Device, tuple[PodRef, ...]] = {}
        self.near: Mapping[Device, tuple[Device, ...]] = {}
        """GPUs that share a bridge with a network adapter, by the adapter's devices."""

    def resolve(self, device: Device) -> Device:
        """The device's best name: by UUID once that is known."""
        known = self._alias.get(device)
        if known is not None:
            return known
        if not device.startswith("gpu/") or not self.slots:
            return device
        pci = pci_of(device)
        owner = self.slots.get(pci) if pci else None
        if owner is None:
            return device
        resolved = Device(owner + device.removeprefix(parent_of(device)))
        self._alias[device] = resolved
        return resolved

    def identify(self, pci: str, device: Device) -> Device | None:
        """A slot's GPU became known; the GPU that held the slot before, if it was another one."""
        before = self.slots.get(pci)
        if before == device:
            return None
        if before is None:
            before = next((old for old, slot in self.stored.items() if slot == pci and old != device), None)
        self.slots[pci] = device
        self._alias.clear()
        self.kinds.add(kind_of(device))
        self.stored.pop(device, None)
        if before is not None:
            self.seen.discard(before)
            self.stored.pop(before, None)
            self.lost.discard(before)
        return before

    def present(self, devices: frozenset[Device], kind: str, *, grace: bool) -> list[Device]:
        """A whole poll saw these devices; the ones that it should have seen and that were not lost before."""
        self.lost -= devices
        known = {device for device in self.seen if kind_of(device) == kind}
        if not grace:
            known |= {device for device in self.stored if kind_of(device) == kind}
        gone = sorted(known - devices - self.lost)
        self.lost.update(gone)
        self.seen |= devices
        for device in devices:
            self.stored.pop(device, None)
        if devices:
            self.kinds.add(kind)
        return gone

    def here(self, kind: str) -> set[Device]:
        """Devices of a kind that are, or should be, on the node; empty while nobody has said."""
        return {device for device in (*self.seen, *self.expected) if kind_of(device) == kind}

    def meet(self, device: Device) -> None:
        """A reading or an occurrence names this device."""
        self.kinds.add(kind_of(device))

    def pci(self, device: Device) -> str | None:
        """The slot of a device, where known."""
        own = pci_of(device)
        if own is not None or device == NODE:
            return own
        parent = parent_of(device)
        return next((pci for pci, gpu in self.slots.items() if gpu == parent), self.stored.get(parent))

    def neighbours(self, device: Device) -> tuple[Device, ...]:
        """GPUs that share a bridge with this device, where known."""
        return tuple(self.resolve(gpu) for gpu in self.near.get(device, ()))

    def pods_on(self, device: Device) -> tuple[PodRef, ...] | None:
        """Pods on a device or on its MIG instances; None: unknown."""
        found = [pods for used, pods in self.pods.items() if is_within(used, device)]
        return tuple(dict.fromkeys(pod for pods in found for pod in pods)) if found else None

    def only_pod(self, device: Device) -> str | None:
        """UID of the pod on a device, when there is exactly one."""
        pods = self.pods_on(device)
        return pods[0].uid if pods is not None and len(pods) == 1 else None

    def reboot(self) -> None:
        """Another boot: names and what was seen end; what was here is remembered as stored."""
        self.stored.update({device: pci for pci, device in self.slots.items()})
        self.slots.clear()
        self._alias.clear()
        self.seen.clear()
        self.lost.clear()
        self.pods.clear()
        self.near = {}

    def restore_slot(self, pci: str, device: Device) -> None:
        """A slot's GPU as the Node's annotation has it; what this boot told already goes first."""
        if pci_of(device) is None and pci_address(pci) is not None:
            self.slots.setdefault(pci, parent_of(device))
            self._alias.clear()

    def node_state(self) -> dict[str, Any]:
        """For the store: what outlives a boot."""
        return {"gpus": {**self.stored, **{device: pci for pci, device in self.slots.items()}}}

    def boot_state(self) -> dict[str, Any]:
        """For the store: what this boot knows."""
        return {"slots": self.slots, "seen": sorted(self.seen), "lost": sorted(self.lost), "stored": self.stored,
                "kinds": sorted(self.kinds), "expected": sorted(self.expected), "counts": self.counts,
                "pods": {device: [[pod.uid, pod.namespace, pod.name] for pod in pods]
                         for device, pods in self.pods.items()}}

    def restore(self, node: Mapping[str, Any], boot: Mapping[str, Any] | None) -> None:
        """Take back what the two states gave; without this boot's, everything is of an earlier boot."""
        if boot is None:
            self.stored = {Device(device): pci for device, pci in node.get("gpus", {}).items() if pci_address(pci)}
            return
        self.slots = {pci: Device(device) for pci, device in boot["slots"].items()}
        self.seen = {Device(device) for device in boot["seen"]}
        self.lost = {Device(device) for device in boot["lost"]}
        self.stored = {Device(device): pci for device, pci in boot["stored"].items()}
        self.kinds |= set(boot["kinds"])
        self.expected = frozenset(map(Device, boot["expected"]))
        self.counts = {str(kind): int(count) for kind, count in boot["counts"].items()}
        self.pods = {Device(device): tuple(PodRef(*map(str, pod)) for pod in pods)
                     for device, pods in boot["pods"].items()}
