"""One incident: when each phase of the work on a node was reached, and what the decision rested on."""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeguard.kube.api import Object
from nodeguard.kube.patches import rfc3339, unix_time
from nodeguard.remediation.record import Restarted
from nodeguard.remediation.report import Fault
from nodeguard.remediation.views import NodeView

VERSION = 1

PHASES = ("detected", "conditioned", "quarantined", "suspended", "evicted", "stuck", "needs-person", "gone", "resumed",
          "job-backoff", "bound", "running", "repaired", "verified", "released")
"""``job-backoff``: ranks of the suspended Job had failed by themselves, so it starts its pods late."""

MOST_WORDS = 16
"""Faults, owners and reasons of waiting that one entry keeps."""
MOST_PODS = 32
_LONGEST = 240
_NOT_A_KEY = re.compile(r"[^-._a-zA-Z0-9]")
"""What the keys of a ConfigMap may not have (core/v1 ConfigMap)."""


@dataclass(slots=True, kw_only=True)
class Incident:
    """One entry of the ring. Times are Unix seconds."""

    id: str
    machine: str
    """Provider ID, or the Node's UID where there is none: what a Node made anew of the same machine has again."""
    begun: float
    changed: float
    node: str = ""
    uid: str = ""
    provider_id: str = ""
    state: str = ""
    outcome: str = ""
    """How it ended: ``released``, ``cancelled``, ``node-deleted``, ``superseded``; empty while it is open."""
    reason: str = ""
    action: str = "none"
    rules: tuple[str, ...] = ()
    rule_set: str = ""
    """Hash of all of the agent's rules."""
    policy: str = ""
    """Hash of the policy in force when it was begun."""
    boot: str = ""
    stamps: dict[str, float] = field(default_factory=dict)
    """By a word of :data:`PHASES`."""
    faults: tuple[Object, ...] = ()
    """What the agent said when it was begun: rule, its hash, device, effect, action, evidence."""
    owners: dict[str, str] = field(default_factory=dict)
    """UID → such as ``Job training/llm``."""
    pods: tuple[str, ...] = ()
    """The first that were evicted one by one, as ``namespace/name``."""
    evicted: int = 0
    restarts: dict[str, Restarted] = field(default_factory=dict)
    """By their identity."""
    waited: tuple[tuple[float, str], ...] = ()
    """When, and for what; the newest."""

    @property
    def key(self) -> str:
        """Its key in the ConfigMap: the machine, in the letters that keys may have, and the identity."""
        return f"{_NOT_A_KEY.sub('_', self.machine)[-160:]}.{self.id}"

    def since_detected(self, phase: str) -> float:
        """Seconds from the fault's beginning to this phase; the two may be told by two machines' clocks."""
        return max(0.0, self.stamps[phase] - self.stamps.get("detected", self.begun))


def machine_of(node: NodeView) -> str:
    """What stays the same when the Node object is made anew."""
    return node.provider_id or node.uid or node.name


def evidence_of(fault: Fault) -> Object:
    """A fault as the decision record keeps it."""
    return {"rule": fault.rule, "hash": fault.rule_hash, "device": fault.device, "severity": fault.severity,
            "effect": fault.effect, "action": fault.action, "since": _time(fault.since),
            "evidence": fault.evidence[:_LONGEST]}


def short(text: str) -> str:
    """Words for people, cut to what an entry may hold."""
    return text if len(text) <= _LONGEST else text[:_LONGEST - 1] + "…"


def document(incident: Incident) -> Object:
    """As JSON: in the ConfigMap, and for ``nodeguard incidents``."""
    stamps = sorted(incident.stamps.items(), key=lambda stamp: stamp[1])
    return {
        "v": VERSION, "id": incident.id, "machine": incident.machine, "node": incident.node, "uid": incident.uid,
        "providerID": incident.provider_id, "begun": _time(incident.begun), "changed": _time(incident.changed),
        "state": incident.state, "outcome": incident.outcome, "reason": incident.reason, "action": incident.action,
        "rules": list(incident.rules), "ruleSet": incident.rule_set, "policy": incident.policy, "boot": incident.boot,
        "stamps": {phase: _time(at) for phase, at in stamps}, "faults": list(incident.faults),
        "owners": [{"uid": uid, "name": name} for uid, name in incident.owners.items()], "pods": list(incident.pods),
        "evicted": incident.evicted,
        "restarts": [{**dataclasses.asdict(one), "at": _time(one.at)} for one in incident.restarts.values()],
        "waited": [{"at": _time(at), "for": text} for at, text in incident.waited],
    }


def encode(incident: Incident) -> str:
    """The text of an entry."""
    return json.dumps(document(incident), separators=(",", ":"), ensure_ascii=False)


def parse(text: str) -> Incident | None:
    """Read an entry; None for what is none, or of another generation."""
    try:
        found = json.loads(text)
        return _parsed(found) if isinstance(found, dict) and found.get("v") == VERSION else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _parsed(found: Mapping[str, Any]) -> Incident:
    restarts = (Restarted(owner=str(one["owner"]), name=str(one["name"]), id=str(one["id"]), at=_moment(one["at"]))
                for one in found["restarts"])
    return Incident(
        id=str(found["id"]), machine=str(found["machine"]), begun=_moment(found["begun"]),
        changed=_moment(found["changed"]), node=str(found["node"]), uid=str(found["uid"]),
        provider_id=str(found["providerID"]), state=str(found["state"]), outcome=str(found["outcome"]),
        reason=str(found["reason"]), action=str(found["action"]), rules=tuple(map(str, found["rules"])),
        rule_set=str(found["ruleSet"]), policy=str(found["policy"]), boot=str(found["boot"]),
        stamps={str(phase): _moment(at) for phase, at in found["stamps"].items()},
        faults=tuple(dict(one) for one in found["faults"]),
        owners={str(one["uid"]): str(one["name"]) for one in found["owners"]}, pods=tuple(map(str, found["pods"])),
        evicted=int(found["evicted"]), restarts={one.id: one for one in restarts},
        waited=tuple((_moment(one["at"]), str(one["for"])) for one in found["waited"]))


def merged(one: Incident, other: Incident) -> Incident:
    """What two writers know of the same incident; where they disagree, the later one counts."""
    earlier, later = sorted((one, other), key=lambda incident: incident.changed)
    again = bool(earlier.outcome) and later.begun >= earlier.changed
    return dataclasses.replace(
        later, begun=later.begun if again else min(earlier.begun, later.begun),
        stamps=later.stamps if again else _first_reached(earlier.stamps, later.stamps),
        faults=later.faults or earlier.faults, rule_set=later.rule_set or earlier.rule_set,
        policy=later.policy or earlier.policy, owners={**earlier.owners, **later.owners},
        restarts={**earlier.restarts, **later.restarts}, pods=first((*earlier.pods, *later.pods), MOST_PODS),
        evicted=max(earlier.evicted, later.evicted),
        waited=tuple(sorted({*earlier.waited, *later.waited}))[-MOST_WORDS:])


def _first_reached(earlier: Mapping[str, float], later: Mapping[str, float]) -> dict[str, float]:
    """When each phase was first reached, except that the later one may have taken a repair back."""
    return {phase: later[phase] if phase == "repaired" else min(earlier.get(phase, at), later.get(phase, at))
            for phase, at in {**earlier, **later}.items() if phase != "repaired" or phase in later}


def first(words: Iterable[str], most: int) -> tuple[str, ...]:
    """The first so many of different words."""
    return tuple(dict.fromkeys(words))[:most]


def _time(at: float) -> str:
    return rfc3339(at, "milliseconds")


def _moment(text: object) -> float:
    at = unix_time(text)
    if at is None:
        raise ValueError(f"no time: {text}")
    return at
