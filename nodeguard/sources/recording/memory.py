"""The ``recorded`` and ``memory`` entries: who recorded, and what that agent remembered when it began."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodeguard.sources.recording import checks
from nodeguard.sources.recording.checks import Report

_RECORDED = ("version", "rules", "soak", "any_facility")
_MEMORY = ("boot_id", "node_uid", "node", "boot", "kmsg")


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the agent that was recorded judged by, from here on."""

    version: str
    """Of nodeguard."""
    rules: str
    """Hash of the rule set."""
    soak: float
    """Seconds."""
    any_facility: bool
    """Whether it believed kernel lines that programs wrote."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What an agent knew when it began, as its store keeps it. The engine is put there."""

    boot_id: str
    node_uid: str
    node: Mapping[str, Any]
    boot: Mapping[str, Any] | None
    kmsg: Mapping[str, Any] | None


def recorded(entry: Any, report: Report) -> Recorded:
    """The ``recorded`` entry."""
    entry = checks.mapping(entry, "recorded", report)
    checks.unknown_keys(entry, _RECORDED, "recorded", report)
    soak = entry.get("soak", 0)
    known = isinstance(soak, int | float) and checks.finite(soak)
    return Recorded(checks.text(entry.get("version", ""), "version", report),
                    checks.text(entry.get("rules", ""), "rules", report), float(soak) if known else 0.0,
                    entry.get("any_facility") is True)


def memory(entry: Any, report: Report) -> Memory:
    """The ``memory`` entry. What is inside the two parts is the engine's to understand."""
    entry = checks.mapping(entry, "memory", report)
    checks.unknown_keys(entry, _MEMORY, "memory", report)
    boot, kmsg = entry.get("boot"), entry.get("kmsg")
    return Memory(checks.text(entry.get("boot_id", ""), "boot_id", report),
                  checks.text(entry.get("node_uid", ""), "node_uid", report),
                  checks.mapping(entry.get("node", {}), "memory node", report),
                  None if boot is None else checks.mapping(boot, "memory boot", report),
                  None if kmsg is None else checks.mapping(kmsg, "memory kmsg", report))
