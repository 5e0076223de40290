"""What the loop remembers of a node, on the Node itself: the annotation ``nodeguard.io/remediation`` and a taint.

Both go into one PATCH with the Node's resourceVersion, so they never disagree and nobody else's taint is lost.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from nodeguard.kube.api import Object
from nodeguard.remediation import marks
from nodeguard.remediation.moments import moment
from nodeguard.remediation.views import NodeView

VERSION = 1

State = Literal["quarantined", "draining", "stuck", "repairing", "verifying", "needs-person", "released"]
"""``released`` stands only while faults are open that a person released the node with; it has no taint."""

STATES: tuple[str, ...] = get_args(State)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """One restart of a gang that this node's faults asked for."""

    owner: str
    """UID of the top owner."""
    name: str
    """Such as ``Job training/llm``."""
    id: str
    at: float
    """Unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One node's piece of work. Times are Unix seconds."""

    state: State
    incident: str
    since: float
    """Since when it is in this state."""
    faults: tuple[str, ...] = ()
    """Keys of the faults that the work comes from, or (``released``) that are ignored."""
    rules: tuple[str, ...] = ()
    action: str = "none"
    boot: str = ""
    """The boot ID under which the faults were found."""
    stamps: Mapping[str, float] = field(default_factory=dict)
    """When each phase was reached: ``detected``, ``conditioned``, ``quarantined``, ``draining``, …"""
    restarts: tuple[Restarted, ...] = ()
    reason: str = ""

    def to(self, state: State, now: float, reason: str = "", **changes: Any) -> "Record":
        """The same work in another state."""
        stamps = {**self.stamps, state: self.stamps.get(state, now)}
        return dataclasses.replace(self, state=state, since=now, reason=reason, stamps=stamps, **changes)

    @property
    def tainted(self) -> bool:
        """Whether the loop's taint belongs on the node."""
        return self.state != "released"


def incident_id(node: NodeView, keys: Sequence[str]) -> str:
    """The same for the same node and faults, so that a loop that begins again begins the same incident."""
    text = "\n".join((node.uid, node.name, *sorted(keys)))
    return "i" + hashlib.sha256(text.encode()).hexdigest()[:12]


def encode(record: Record) -> str:
    """The annotation's text."""
    document: Object = {"v": VERSION, **dataclasses.asdict(record)}
    document["stamps"] = {name: round(at, 3) for name, at in record.stamps.items()}
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def parse(text: str | None) -> Record | None:
    """The record that stands on a Node; None for none. ValueError: not understood, so it must not be overwritten."""
    if text is None:
        return None
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("v") != VERSION or document.get("state") not in STATES:
        raise ValueError("another version, or no record")
    try:
        return Record(
            state=document["state"], incident=str(document["incident"]), since=moment(document["since"]),
            faults=tuple(map(str, document.get("faults", ()))), rules=tuple(map(str, document.get("rules", ()))),
            action=str(document.get("action", "none")), boot=str(document.get("boot", "")),
            stamps={str(name): moment(at) for name, at in document.get("stamps", {}).items()},
            restarts=tuple(Restarted(owner=str(one["owner"]), name=str(one["name"]), id=str(one["id"]),
                                     at=moment(one["at"])) for one in document.get("restarts", ())),
            reason=str(document.get("reason", "")))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a record: {error}") from error


def patch(node: NodeView, record: Record | None, *, without_words: bool = False) -> Object:
    """A merge patch of the Node: annotation and taint together, refused when the Node changed meanwhile.

    ``without_words``: take the person's ``release`` away too, because it was followed.
    """
    annotations: dict[str, str | None] = {marks.RECORD: None if record is None else encode(record)}
    if without_words:
        annotations[marks.RELEASE] = None
    return {"metadata": {"resourceVersion": node.version, "annotations": annotations},
            "spec": {"taints": taints(node, record)}}


def taints(node: NodeView, record: Record | None) -> list[Object] | None:
    """The node's taints with the loop's own as the record wants it; others' as they are and in their order."""
    kept = [taint for taint in node.taints if not is_own_taint(taint)]
    if record is not None and record.tainted:
        kept.append({"key": marks.TAINT_KEY, "value": record.state, "effect": marks.TAINT_EFFECT})
    return kept or None


def is_own_taint(taint: Object) -> bool:
    """Whether the loop wrote this taint."""
    return (taint.get("key") == marks.TAINT_KEY and taint.get("effect") == marks.TAINT_EFFECT
            and taint.get("value") in STATES)


def has_own_taint(node: NodeView) -> bool:
    """Whether the loop's taint stands on the Node."""
    return any(is_own_taint(taint) for taint in node.taints)
