"""What the agent says of its node: the annotation ``nodeguard.io/faults``, read as the untrusted text that it is."""

import json
from dataclasses import dataclass, field
from typing import Any

from nodeguard.kube.patches import unix_time
from nodeguard.model.fault import ACTIONS, EFFECTS
from nodeguard.model.sample import PodRef
from nodeguard.remediation.moments import moment

VERSION = 1
_MOST_FAULTS = 256
_LONGEST = 64 << 10
"""Characters; the agent writes at most 8 KiB."""
_LONGEST_NAME = 128
"""Of a rule or a device: both go on into the loop's record, which must stay small enough to be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, as far as the loop needs it."""

    rule: str
    rule_hash: str
    device: str
    severity: str
    action: str
    effect: str
    scope: str
    since: float
    """Unix seconds."""
    held: bool
    """The agent kept its taint back for the brake."""
    pods: tuple[PodRef, ...] | None
    """Pods on the faulty device; None: unknown, which means the node's."""
    evidence: str = ""

    @property
    def key(self) -> str:
        """Rule, device and beginning: another occurrence after a recovery is another key."""
        return f"{self.rule}/{self.device}@{self.since:.3f}"

    @property
    def weighs(self) -> bool:
        """Whether a node with it is not healthy, though a brake may hold it."""
        return self.effect in ("noschedule", "evict")

    @property
    def acts(self) -> bool:
        """Whether work on the node comes from it."""
        return self.weighs and not self.held

    @property
    def evicts(self) -> bool:
        """Whether pods are to leave for it."""
        return self.effect == "evict" and not self.held


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole annotation."""

    known: bool = True
    """False: written by an agent of another generation, or no annotation of ours; then nothing is begun and nothing
    given back."""
    boot: str = ""
    rules: str = ""
    at: float = 0.0
    faults: tuple[Fault, ...] = field(default_factory=tuple)
    cut: int = 0
    """Faults that did not fit."""


ABSENT = Report(known=False)


def parse(text: str | None) -> Report:
    """Read the annotation. What is not understood costs that fault only, except an unknown version."""
    if text is None or len(text) > _LONGEST:
        return ABSENT
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return ABSENT
    if not isinstance(document, dict) or document.get("v") != VERSION:
        return ABSENT
    listed = document.get("faults")
    found = [_fault(one) for one in listed[:_MOST_FAULTS]] if isinstance(listed, list) else []
    cut = document.get("cut")
    return Report(boot=_text(document.get("boot")), rules=_text(document.get("rules")),
                  at=_moment(document.get("at")) or 0.0, faults=tuple(one for one in found if one is not None),
                  cut=cut if isinstance(cut, int) else 0)


def _fault(entry: Any) -> Fault | None:
    if not isinstance(entry, dict):
        return None
    since = _moment(entry.get("since"))
    effect, action, rule = _text(entry.get("effect")), _text(entry.get("action")), _text(entry.get("rule"))
    if effect not in EFFECTS or action not in ACTIONS or not rule or since is None:
        return None
    return Fault(rule=rule[:_LONGEST_NAME], rule_hash=_text(entry.get("hash"))[:_LONGEST_NAME],
                 device=_text(entry.get("device"))[:_LONGEST_NAME], severity=_text(entry.get("severity")),
                 action=action, effect=effect, scope=_text(entry.get("scope")), since=since,
                 held=entry.get("held") is True, pods=_pods(entry.get("pods")), evidence=_text(entry.get("evidence")))


def _pods(listed: Any) -> tuple[PodRef, ...] | None:
    if not isinstance(listed, list):
        return None
    return tuple(PodRef(_text(one.get("uid")), _text(one.get("namespace")), _text(one.get("name")))
                 for one in listed if isinstance(one, dict))


def _moment(value: Any) -> float | None:
    """Unix time; None also for what no clock can mean, and what could not be written down again."""
    try:
        return moment(unix_time(value))
    except ValueError:
        return None


def _text(value: Any) -> str:
    return value[:1024] if isinstance(value, str) else ""
