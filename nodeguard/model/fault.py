"""Faults, transitions and the three ordered scales: severity, action, effect."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nodeguard.model.device import Device
from nodeguard.model.sample import PodRef

SEVERITIES = ("info", "warning", "critical")
"""How bad, weakest first."""

ACTIONS = ("none", "restart_app", "fix_software", "reset_gpu", "reboot_node", "replace_hw")
"""What would cure it, weakest first."""

EFFECTS = ("none", "event", "condition", "noschedule", "evict")
"""What it does to the node now, weakest first."""

SCOPES = ("device", "node")
"""Whose pods an eviction is about: those on the device, or every accelerator pod of the node."""

EVIDENCE = ("reset", "reboot", "replace", "never")
"""``clear.on``: what proves a fault cured; each also by every stronger one but ``never``, which waits for a person."""


def strongest(scale: tuple[str, ...], *words: str) -> str:
    """The strongest of ``words`` on ``scale``; the weakest word of the scale when there are none."""
    return max(words, key=scale.index, default=scale[0])


def weakest(scale: tuple[str, ...], *words: str) -> str:
    """The weakest of ``words`` on ``scale``."""
    return min(words, key=scale.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An open finding, keyed (rule, device). Times are engine seconds."""

    rule: str
    device: Device
    pci: str | None
    severity: str
    action: str
    effect: str
    """After observe mode and soak: what it does, not what the rule says."""
    would: str | None
    """What the effect would be without observe mode or soak; None when nothing is held back."""
    scope: str
    condition: str | None
    message: str
    runbook: str | None
    since: float
    last: float
    count: int
    evidence: Mapping[str, str | int | float | bool]
    """The newest occurrence's attributes, or the value judged; for people and for the decision record."""
    rule_hash: str = ""
    """Content hash of the rule as it judged: the brake knows a rule by it."""
    held: bool = False
    """The brake keeps it from adding a taint."""
    key: str = ""
    """Identity of what opened it (source and record), so that announcing it again after a crash is the same deed."""
    pods: tuple[PodRef, ...] | None = None
    """Pods on the faulty device when known; None: unknown, which means node scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One change of the set of open faults: what replay prints and what sinks announce."""

    at: float
    transition: Literal["opened", "updated", "closed"]
    fault: Fault
    detail: str
    """Why: the evidence that opened it, what changed, or what cured it."""
    was: Device | None = None
    """The device's old name when a fault was re-keyed."""
