"""What the Node says, what it should say, and the difference: the pure half of the node writer."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodeguard.kube.api import Object
from nodeguard.kube.patches import (
    Taints,
    is_own_type,
    rfc3339,
    status_patch,
    taints_with,
    taints_without,
    unix_time,
)
from nodeguard.kube.text import cut
from nodeguard.model.fault import Fault
from nodeguard.model.intent import FAULTS_ANNOTATION, Condition, Intent
from nodeguard.sinks import annotation


@dataclass(frozen=True, slots=True)
class NodeView:
    """The parts of a Node that concern nodeguard, at one resourceVersion."""

    uid: str
    version: str
    conditions: Mapping[str, Object]
    """By type; only types that nodeguard may own."""
    faults: Object | None
    """The annotation's document, if it can be read."""
    taints: tuple[Object, ...]
    """All of them."""

    def is_older_than(self, other: "NodeView") -> bool:
        """Whether this is a past state. Resource versions of one resource are ordered numbers (KEP-5504)."""
        if not (self.version.isdigit() and other.version.isdigit()):
            return False
        return int(self.version) < int(other.version)

    def last_heartbeat(self) -> float | None:
        """Unix time of the newest heartbeat among nodeguard's own conditions."""
        own = annotation.types_of(self.faults)
        times = (unix_time(body.get("lastHeartbeatTime")) for name, body in self.conditions.items() if name in own)
        return max((time for time in times if time is not None), default=None)


def view_of(node: Object) -> NodeView:
    """Read a Node as the API server gave it."""
    metadata, status, spec = (node.get(part) or {} for part in ("metadata", "status", "spec"))
    return NodeView(
        uid=str(metadata.get("uid", "")),
        version=str(metadata.get("resourceVersion", "")),
        conditions={body["type"]: body for body in _objects(status.get("conditions")) if is_own_type(body.get("type"))},
        faults=annotation.parse((metadata.get("annotations") or {}).get(FAULTS_ANNOTATION)),
        taints=tuple(_objects(spec.get("taints"))),
    )


def _objects(items: Iterable[object] | None) -> list[Object]:
    return [item for item in items or () if isinstance(item, dict)]


class Memory:
    """What this process knows beyond the Node: which types it wrote, and the wall times of what happened.

    Each time is made once from engine time and then kept: neither a clock step nor an outage moves it.
    """

    def __init__(self) -> None:
        self.wrote: frozenset[str] = frozenset()
        self._transitions: dict[str, tuple[str, str]] = {}
        self._faults: dict[_FaultKey, str] = {}
        self._restored: frozenset[_FaultKey] | None = None
        self._stood: Mapping[tuple[str, str], tuple[str, str]] | None = None

    def note(self, intent: Intent, boot: float, wall: float) -> None:
        """Take the times of what is new in ``intent``, while both clocks are at hand."""
        for condition in intent.conditions:
            status, _ = self._transitions.get(condition.type, (None, ""))
            if status != condition.status:
                self._transitions[condition.type] = (condition.status, rfc3339(_began(condition, boot, wall)))
        self._faults = {
            key: self._faults.get(key) or rfc3339(wall - (boot - fault.since), "milliseconds")
            for fault in intent.faults for key in [_key(intent, fault)]
        }
        if self._restored is None:
            self._restored = frozenset(self._faults)

    def adopt(self, view: NodeView) -> None:
        """Keep the times that stand on the Node for what did not change, also across a restart of the agent."""
        for name, body in view.conditions.items():
            status, time = body.get("status"), body.get("lastTransitionTime")
            known, _ = self._transitions.get(name, (status, ""))
            if known == status and status and unix_time(time) is not None:
                self._transitions[name] = (str(status), str(time))
        if self._stood is None:
            boot = str((view.faults or {}).get("boot"))
            self._stood = {
                (str(fault.get("rule")), str(fault.get("device"))): (boot, str(fault.get("since")))
                for fault in annotation.faults_of(view.faults) if unix_time(fault.get("since")) is not None
            }

    def transition(self, condition: Condition) -> str:
        """When the condition took its status."""
        return self._transitions[condition.type][1]

    def opened(self, intent: Intent, fault: Fault) -> str:
        """When the fault opened. One that was open when this process began keeps the time that stood on the Node."""
        key = _key(intent, fault)
        made = self._faults[key]
        stood = (self._stood or {}).get((fault.rule, fault.device)) if key in (self._restored or ()) else None
        if stood is None:
            return made
        boot, since = stood
        # over a reboot the same fault keeps its time but for a rounding error; a later one of its kind is another
        return since if boot == intent.boot_id or _apart(since, made) < _ROUNDING else made


_ROUNDING = 1.0
"""Seconds by which a time may move when it is carried from one boot into another."""


def _apart(one: str, other: str) -> float:
    left, right = unix_time(one), unix_time(other)
    return math.inf if left is None or right is None else abs(left - right)


_FaultKey = tuple[str, str, str, float]


def _key(intent: Intent, fault: Fault) -> _FaultKey:
    return intent.boot_id, fault.rule, fault.device, fault.since


def _began(condition: Condition, boot: float, wall: float) -> float:
    if condition.status != "True" or condition.since is None:
        return wall
    return wall - (boot - condition.since)


@dataclass(frozen=True, slots=True)
class Plan:
    """The difference between a Node and an intent."""

    status: Object | None
    """The patch of ``nodes/status``; None: conditions and annotation say it already."""
    urgent: bool
    """More than counts and wording differ."""
    taints: Taints

    @property
    def nothing(self) -> bool:
        """Whether the Node says it all."""
        return self.status is None and self.taints.wanted is None


def taints_of(view: NodeView, intent: Intent) -> Taints:
    """What the Node's taints should be."""
    return taints_without(view.taints) if intent.taint is None else taints_with(view.taints, intent.taint)


def plan(view: NodeView, intent: Intent, memory: Memory, wall: float, *, beat: bool) -> Plan:
    """Compare. ``wall`` is now; ``beat`` asks for a heartbeat though nothing differs."""
    told = annotation.document_of(
        intent, lambda fault: memory.opened(intent, fault), rfc3339(wall, "milliseconds"))
    wanted = [_condition(condition, view, memory, wall) for condition in intent.conditions]
    own = annotation.types_of(view.faults) | memory.wrote
    removed = sorted((own & view.conditions.keys()) - {condition.type for condition in intent.conditions})
    urgent = (
        bool(removed)
        or any(_differs(view.conditions.get(body["type"]), body, "status", "reason") for body in wanted)
        or not annotation.says_the_same(view.faults, told, counts=False)
    )
    differs = (
        urgent or beat
        or any(_differs(view.conditions.get(body["type"]), body, "message") for body in wanted)
        or not annotation.says_the_same(view.faults, told, counts=True)
    )
    taints = taints_of(view, intent)
    text = annotation.encode(told).decode()
    return Plan(
        status=status_patch(wanted, removed, {FAULTS_ANNOTATION: text}) if differs else None,
        urgent=urgent or taints.wanted is not None,
        taints=taints,
    )


def _condition(condition: Condition, view: NodeView, memory: Memory, wall: float) -> Object:
    standing = view.conditions.get(condition.type, {})
    kept = standing.get("lastTransitionTime") if standing.get("status") == condition.status else None
    return {
        "type": condition.type, "status": condition.status, "reason": condition.reason,
        "message": cut(condition.message), "lastTransitionTime": kept or memory.transition(condition),
        "lastHeartbeatTime": rfc3339(wall),
    }


def _differs(standing: Object | None, wanted: Object, *fields: str) -> bool:
    return standing is None or any(standing.get(field) != wanted[field] for field in fields)
