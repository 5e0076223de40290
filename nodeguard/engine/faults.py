"""The open faults: opened and closed by trackers, capped by observe mode and soak, hidden by mutes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from nodeguard.engine.compile import Compiled
from nodeguard.model.device import NODE, Device, kind_of, parent_of
from nodeguard.model.fault import ACTIONS, EFFECTS, SEVERITIES, Fault, Transition, weakest
from nodeguard.model.sample import Attribute, PodRef

FaultKey = tuple[str, Device]

OBSERVED_EFFECT = "event"
SOAKING_EFFECT = "condition"
_EVIDENCE_TEXT_LIMIT = 200


@dataclass(slots=True)
class Occurrence:
    """What opened a fault, or told of it again."""

    evidence: Mapping[str, Attribute]
    key: str
    at: float | None = None
    """Engine time at which it happened, when that is before the step."""


@dataclass(slots=True)
class Open:
    """An open fault as the table keeps it."""

    rule: str
    device: Device
    since: float
    last: float
    count: int
    evidence: dict[str, Attribute]
    key: str
    holders: set[str] = field(default_factory=set)
    """Trackers that assert it; it closes when the last one lets go."""
    touched: int = 0
    """Number of the step that last told of it: evidence must come in a later one, or after it in the same."""
    floor: int = 0
    """Count taken over from the Node's annotation: replayed records count up to it before they count on."""
    shown: tuple[str, str, str, str | None] | None = None
    """Severity, action, effect and would as last told; None while hidden by a mute."""

    def state(self) -> dict[str, Any]:
        """For the store."""
        return {"rule": self.rule, "device": self.device, "since": self.since, "last": self.last,
                "count": self.count, "evidence": self.evidence, "key": self.key, "holders": sorted(self.holders),
                "floor": self.floor, "shown": self.shown}


class Claims(Protocol):
    """What trackers say of faults."""

    def claim(self, compiled: Compiled, device: Device, holder: str, now: float, what: Occurrence) -> None:
        """The fault is there (again)."""
        ...

    def still(self, compiled: Compiled, device: Device, now: float) -> None:
        """What opened it has not passed."""
        ...

    def release(self, compiled: Compiled, device: Device, holder: str, now: float, detail: str) -> None:
        """``holder`` lets go."""
        ...


class FaultTable:
    """Open faults, keyed (rule, device)."""

    def __init__(self, rule_of: Callable[[str], Compiled | None], soaking: Callable[[str], bool]) -> None:
        self._rule_of = rule_of
        self._soaking = soaking
        self.open: dict[FaultKey, Open] = {}
        self.step = 0
        """Number of the engine's step."""
        self.out: list[Transition] = []
        """Transitions since the engine last took them."""
        self.pci_of: Callable[[Device], str | None] = lambda _device: None
        self.pods_of: Callable[[Device], tuple[PodRef, ...] | None] = lambda _device: None
        self.near: Callable[[Device], tuple[Device, ...]] = lambda _device: ()
        """GPUs that share a bridge with a device: a network adapter's fault is felt there first."""

    def owner(self, compiled: Compiled, device: Device) -> Device:
        """Whose fault it is: what needs a GPU reset or more belongs to the GPU, not to its MIG instance."""
        needs_reset = ACTIONS.index(compiled.rule.action) >= ACTIONS.index("reset_gpu")
        return parent_of(device) if needs_reset else device

    def claim(self, compiled: Compiled, device: Device, holder: str, now: float, what: Occurrence) -> None:
        """A tracker says the fault is there (again)."""
        device = self.owner(compiled, device)
        key = (compiled.name, device)
        fault = self.open.get(key)
        if fault is None:
            since = now if what.at is None else min(now, what.at)
            fault = Open(compiled.name, device, since, now, 1, dict(what.evidence), what.key)
            self.open[key] = fault
            fault.holders.add(holder)
            fault.touched = self.step
            self._show(fault, compiled, now, _describe(what.evidence))
            return
        fault.holders.add(holder)
        fault.last = now
        fault.touched = self.step
        fault.count = max(fault.count, 1) + (1 if fault.floor == 0 else 0)
        if fault.floor:
            fault.floor -= 1
        fault.evidence.update(what.evidence)

    def still(self, compiled: Compiled, device: Device, now: float) -> None:
        """A level that opened the fault is still true: no new occurrence, but evidence must be later than this."""
        fault = self.open.get((compiled.name, self.owner(compiled, device)))
        if fault is not None:
            fault.last = now
            fault.touched = self.step

    def add_evidence(self, signal_rules: Iterable[Compiled], device: Device, evidence: Mapping[str, Attribute]) -> None:
        """Another source told of the same occurrence: it adds what is not known yet."""
        for compiled in signal_rules:
            fault = self.open.get((compiled.name, self.owner(compiled, device)))
            if fault is not None:
                fault.evidence = {**evidence, **fault.evidence}

    def adopt(self, fault: Open) -> None:
        """Take back a fault as it was told before a restart: it is not told again."""
        self.open[fault.rule, fault.device] = fault

    def release(self, compiled: Compiled, device: Device, holder: str, now: float, detail: str) -> None:
        """A tracker lets go; the last one closes the fault."""
        fault = self.open.get((compiled.name, self.owner(compiled, device)))
        if fault is None:
            return
        fault.holders.discard(holder)
        if not fault.holders:
            self.close(fault, now, detail)

    def close(self, fault: Open, now: float, detail: str) -> None:
        """Close a fault, whoever holds it."""
        if self.open.pop((fault.rule, fault.device), None) is None:
            return
        self._hide(fault, now, detail)

    def rekey(self, old: Device, new: Device, now: float) -> None:
        """A device's true name became known: its faults (and its MIG instances') move to it."""
        for fault in list(self.open.values()):
            if fault.device != old and not fault.device.startswith(old + "/"):
                continue
            was = fault.device
            del self.open[fault.rule, was]
            fault.device = Device(new + was.removeprefix(old))
            fault.holders = {renamed_holder(holder, old, new) for holder in fault.holders}
            other = self.open.get((fault.rule, fault.device))
            if other is not None:
                fault = _merged(other, fault)  # noqa: PLW2901 # the merged one stands for both from here on
            self.open[fault.rule, fault.device] = fault
            compiled = self._rule_of(fault.rule)
            if compiled is not None and fault.shown is not None:
                self._tell("updated", fault, compiled, now, f"device {was} is {fault.device}", was)

    def refresh(self, now: float, detail: str) -> None:
        """Tell every change of what is shown: mutes, observe mode, soak, changed rules."""
        muted = self._muted()
        for fault in list(self.open.values()):
            compiled = self._rule_of(fault.rule)
            if compiled is None:
                continue
            by = muted.get((fault.rule, kind_of(fault.device)))
            if by is not None and fault.device != NODE:
                self._hide(fault, now, f"muted by {by}")
            elif fault.shown is None:
                self._show(fault, compiled, now, detail)
            elif self._view(compiled) != fault.shown:
                fault.shown = self._view(compiled)
                self._tell("updated", fault, compiled, now, detail, None)

    def _muted(self) -> dict[tuple[str, str], str]:
        muted: dict[tuple[str, str], str] = {}
        for fault in self.open.values():
            compiled = self._rule_of(fault.rule)
            if compiled is not None and compiled.rule.across is not None:
                kind = compiled.rule.across.kind
                muted.update({(name, kind): fault.rule for name in compiled.rule.mutes})
        return muted

    def _show(self, fault: Open, compiled: Compiled, now: float, detail: str) -> None:
        by = self._muted().get((fault.rule, kind_of(fault.device))) if fault.device != NODE else None
        if by is None:
            fault.shown = self._view(compiled)
            self._tell("opened", fault, compiled, now, detail, None)

    def _hide(self, fault: Open, now: float, detail: str) -> None:
        compiled = self._rule_of(fault.rule)
        if fault.shown is not None and compiled is not None:
            self._tell("closed", fault, compiled, now, detail, None)
        fault.shown = None

    def _view(self, compiled: Compiled) -> tuple[str, str, str, str | None]:
        rule = compiled.rule
        effect = rule.effect
        if rule.observe:
            effect = weakest(EFFECTS, effect, OBSERVED_EFFECT)
        if self._soaking(rule.name):
            effect = weakest(EFFECTS, effect, SOAKING_EFFECT)
        return rule.severity, rule.action, effect, None if effect == rule.effect else rule.effect

    def _tell(self, kind: Any, fault: Open, compiled: Compiled, now: float, detail: str,  # noqa: PLR0913 # one row of a record
              was: Device | None) -> None:
        self.out.append(Transition(at=now, transition=kind, fault=self.freeze(fault, compiled), detail=detail, was=was))

    def freeze(self, fault: Open, compiled: Compiled) -> Fault:
        """The fault as others may see it."""
        rule = compiled.rule
        severity, action, effect, would = fault.shown or self._view(compiled)
        pci = self.pci_of(fault.device)
        near = ", ".join(self.near(fault.device))
        evidence = {**fault.evidence, "near": near} if near else dict(fault.evidence)
        return Fault(
            rule=fault.rule, device=fault.device, pci=pci, severity=severity, action=action, effect=effect,
            would=would, scope=rule.scope, condition=rule.condition, message=_message(rule.message, fault, pci, near),
            runbook=rule.runbook, since=fault.since, last=fault.last, count=fault.count,
            evidence=evidence, key=fault.key, rule_hash=rule.content_hash, pods=self.pods_of(fault.device))

    def shown(self) -> list[Fault]:
        """Every fault that is not muted, strongest first."""
        pairs = ((fault, self._rule_of(fault.rule)) for fault in self.open.values() if fault.shown is not None)
        return sorted((self.freeze(fault, compiled) for fault, compiled in pairs if compiled is not None), key=strength)


def strength(fault: Fault) -> tuple[int, int, int, float, str, str]:
    """Sort key: the strongest fault first, then the oldest."""
    return (-EFFECTS.index(fault.effect), -SEVERITIES.index(fault.severity), -ACTIONS.index(fault.action),
            fault.since, fault.rule, fault.device)


def renamed_holder(holder: str, old: Device, new: Device) -> str:
    """A tracker's name after its device's true name became known."""
    return new + holder.removeprefix(old) if holder.startswith((old + "{", old + "[", old + "/")) else holder


def _merged(kept: Open, other: Open) -> Open:
    kept.since = min(kept.since, other.since)
    kept.last = max(kept.last, other.last)
    kept.count += other.count
    kept.holders |= other.holders
    kept.evidence = {**other.evidence, **kept.evidence}
    kept.shown = kept.shown or other.shown
    return kept


def _describe(evidence: Mapping[str, Attribute]) -> str:
    text = evidence.get("text")
    if text is None:
        text = ", ".join(f"{name}={value}" for name, value in evidence.items())
    return str(text)[:_EVIDENCE_TEXT_LIMIT]


class _Blank(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return f"(unknown {key})"


def _message(template: str, fault: Open, pci: str | None, near: str) -> str:
    name = fault.device if pci is None or pci in fault.device else f"{fault.device} ({pci})"
    name = f"{name} (beside {near})" if near else name
    known = {"value": "unknown", **fault.evidence, "device": name, "pci": pci or "unknown", "count": fault.count}
    return template.format_map(_Blank(known))
