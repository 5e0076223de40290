"""What sources say: samples, events and facts, gathered in a Batch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from nodeguard.model.device import Device

Value = float | str
"""A known value. Gauges and counters are numbers, states numbers or words."""

Attribute = str | int | float | bool
"""The value of an event's attribute or a sample's label."""

Labels = tuple[tuple[str, str], ...]
"""Labels of a series beside its device, sorted by name."""

NO_ATTRIBUTES: Mapping[str, Attribute] = MappingProxyType({})


class Sample(NamedTuple):
    """One reading. A tuple, because a healthy node makes millions of them a day."""

    signal: str
    device: Device
    value: Value | None
    """None: the source asked and got no known value (not supported, unreadable, blank, saturated)."""
    labels: Labels = ()


class Event(NamedTuple):
    """One occurrence that a source was told of."""

    signal: str
    device: Device
    attributes: Mapping[str, Attribute] = NO_ATTRIBUTES
    stamp: float | None = None
    """Seconds on the source's own clock (kernel records: since boot). Windows compare stamps among themselves."""
    text: str = ""
    """The line that told it, for people; cut short, never parsed again."""
    at: float | None = None
    """Engine time at which it happened, where the source knows better than the moment of reading."""
    key: str = ""
    """Identity of the occurrence within its source and boot (kernel records: the sequence number)."""


@dataclass(frozen=True, slots=True)
class Identified:
    """The GPU in slot ``pci`` is ``device``. Faults kept under the slot's name move to the UUID's."""

    pci: str
    device: Device


@dataclass(frozen=True, slots=True)
class Present:
    """One whole poll saw exactly these devices of a kind. What an earlier poll saw and this one did not is gone."""

    kind: str
    devices: frozenset[Device]


@dataclass(frozen=True, slots=True)
class Missed:
    """A poll that should have carried these devices brought nothing for them (deadline, error); None: for all."""

    devices: frozenset[Device] | None = None


@dataclass(frozen=True, slots=True)
class SourceState:
    """Whether the source can see. ``caught_up``: it has read what was waiting when it started."""

    up: bool
    caught_up: bool = True
    reason: str = ""
    deliberate: bool = False
    """It does not look, on purpose (quiesced, or the driver is still being installed): no fault of its own."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """A call on ``device`` has been out since engine time ``since``; None: it answered."""

    device: Device
    since: float | None


@dataclass(frozen=True, slots=True)
class Gap:
    """``lost`` records were overwritten before they could be read."""

    lost: int


@dataclass(frozen=True, slots=True)
class Repaired:
    """A remedy finished on ``device``. ``action`` is a word of :data:`nodeguard.model.fault.ACTIONS`."""

    device: Device
    action: str


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod by its identity."""

    uid: str
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Pods:
    """Which pods use which device now. Devices that are not keys are unknown."""

    by_device: Mapping[Device, tuple[PodRef, ...]]
    looked_for: frozenset[Device] = frozenset()
    """Devices that were asked about, known or not: nothing more will be found of them soon."""


@dataclass(frozen=True, slots=True)
class Affinity:
    """GPUs that share a bridge with a network adapter, by the adapter's devices. Replaces what was told before."""

    near: Mapping[Device, tuple[Device, ...]]


@dataclass(frozen=True, slots=True)
class PersonCleared:
    """A person closed a rule's faults (on one device, or on all) whose last occurrence is before ``before``."""

    rule: str
    device: Device | None
    before: float
    """Engine time."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the operator says this node has: devices by name, and numbers of a kind."""

    devices: frozenset[Device] = frozenset()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeIs:
    """The node's identity. Another UID is another node: every memory of the old one ends."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Booted:
    """The node runs under this boot ID since engine time ``at`` (engine time goes on over a reboot in a replay)."""

    boot_id: str
    at: float | None = None
    """When the boot happened; None: long ago, so no grace period."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """An HCA (by PCI address) returned under another name: the old names' faults and memory end."""

    old: Device
    new: Device


@dataclass(frozen=True, slots=True)
class KindsHere:
    """Kinds of device that this node has, whatever else is known of them: their conditions are worth writing."""

    kinds: frozenset[str]


Fact = (
    Identified
    | Present
    | Missed
    | SourceState
    | Stalled
    | Gap
    | Repaired
    | Pods
    | Affinity
    | PersonCleared
    | Expected
    | NodeIs
    | Booted
    | Renamed
    | KindsHere
)


class Told(NamedTuple):
    """What a parser makes of one line."""

    samples: tuple[Sample, ...] = ()
    events: tuple[Event, ...] = ()
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one source read at one moment. The engine takes facts first, then samples, then events."""

    source: str
    """``kmsg``, ``nvml``, ``nvml_events``, ``exporter/<name>``, ``rdma``, ``pcie``, ``host``, ``disks``, ``kubelet``,
    ``agent``."""
    samples: tuple[Sample, ...] = ()
    events: tuple[Event, ...] = ()
    facts: tuple[Fact, ...] = ()
    then: tuple[Told, ...] = ()
    """What came after, where order matters: the kernel log tells of a fault, of its cure, and of a fault again."""
    complete: bool = False
    """The poll should have carried every series this source ever gave: absent ones count as an empty poll."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Increments of the source's own counters (malformed, untrusted, lost…), by metric name without prefix."""
