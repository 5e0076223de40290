"""The annotation ``nodeguard.io/faults``: what the agent tells the remediation loop, as JSON of at most 8 KiB.

``{"v":1,"boot","rules","at","faults":[…],"cut":n,"types":[…]}``, strongest fault first. ``cut`` is how many faults
did not fit. ``types`` are the condition types that nodeguard wrote: conditions carry no owner, so this is how a later
agent knows which it may remove. An empty list of faults stays, so that "healthy" differs from "never written".

A fault has its rule's content ``hash``, by which the loop counts what one rule did, and where it keeps pods away also
``evidence``, a few words for the record of the decision. Words give way before faults do.
"""

import json
from collections.abc import Callable, Iterable

from nodeguard.kube.api import Object
from nodeguard.model.fault import EFFECTS, Fault
from nodeguard.model.intent import Intent

VERSION = 1
LARGEST = 8192
"""Bytes of UTF-8."""

LONGEST_EVIDENCE = 160
"""Characters."""


def document_of(intent: Intent, since: Callable[[Fault], str], at: str) -> Object:
    """The annotation's document for an intent; ``since`` gives a fault's wall time, ``at`` is now."""
    document: Object = {
        "v": VERSION, "boot": intent.boot_id, "rules": intent.rules_hash, "at": at, "faults": [], "cut": 0,
        "types": [condition.type for condition in intent.conditions],
    }
    entries = [_entry(fault, since(fault)) for fault in intent.faults]
    room = LARGEST - len(encode(document)) - _ROOM_FOR_CUT
    if len(encode({"faults": entries})) > room:
        # whether a fault is told must not depend on words that change by themselves
        entries = [{key: value for key, value in entry.items() if key != "evidence"} for entry in entries]
    document["faults"] = _fitting(entries, room)
    document["cut"] = len(entries) - len(document["faults"])
    return document


def encode(document: Object) -> bytes:
    """The document as compact JSON."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def parse(text: object) -> Object | None:
    """The document that stands on a Node; None for none, or one that nodeguard did not write like this."""
    try:
        document = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return document if isinstance(document, dict) and document.get("v") == VERSION else None


def types_of(document: Object | None) -> frozenset[str]:
    """The condition types that a standing document says nodeguard wrote."""
    types = (document or {}).get("types")
    return frozenset(word for word in types if isinstance(word, str)) if isinstance(types, list) else frozenset()


def faults_of(document: Object | None) -> list[Object]:
    """The faults of a standing document."""
    faults = (document or {}).get("faults")
    return [fault for fault in faults if isinstance(fault, dict)] if isinstance(faults, list) else []


def says_the_same(left: Object | None, right: Object, *, counts: bool) -> bool:
    """Whether two documents differ only in ``at`` and, unless ``counts`` matter, in the faults' counts and evidence."""
    return left is not None and _essence(left, counts=counts) == _essence(right, counts=counts)


def _entry(fault: Fault, since: str) -> Object:
    entry: Object = {
        "rule": fault.rule, "device": fault.device, "pci": fault.pci, "severity": fault.severity,
        "action": fault.action, "effect": fault.effect, "scope": fault.scope, "since": since, "count": fault.count,
        "hash": fault.rule_hash,
    }
    evidence = _evidence(fault) if EFFECTS.index(fault.effect) >= EFFECTS.index("noschedule") else ""
    if evidence:
        entry["evidence"] = evidence
    if fault.held:
        entry["held"] = True
    if fault.pods is not None:
        entry["pods"] = [{"uid": pod.uid, "namespace": pod.namespace, "name": pod.name} for pod in fault.pods]
    return entry


def _evidence(fault: Fault) -> str:
    """The line that tells of it, or the values judged; on one line, and nothing in it that JSON cannot carry."""
    told = fault.evidence.get("text")
    if not isinstance(told, str):
        told = ", ".join(f"{name}={value}" for name, value in fault.evidence.items())
    text = " ".join(told.encode(errors="replace").decode().split())
    return text if len(text) <= LONGEST_EVIDENCE else text[:LONGEST_EVIDENCE - 1] + "…"


def _fitting(entries: Iterable[Object], room: int) -> list[Object]:
    kept: list[Object] = []
    for entry in entries:
        size = len(encode(entry)) + 1
        if size > room and not kept:
            # the strongest fault is always told; without its pods it means every accelerator pod of the node
            entry.pop("pods", None)
            size = len(encode(entry)) + 1
        if size > room:
            break
        kept.append(entry)
        room -= size
    return kept


def _essence(document: Object, *, counts: bool) -> Object:
    told = {key: value for key, value in document.items() if key != "at"}
    if not counts:
        told["faults"] = [{key: value for key, value in fault.items() if key not in _COUNTING}
                          for fault in faults_of(document)]
    return told


_COUNTING = ("count", "evidence")
"""What changes by itself while a fault stays the same."""

_ROOM_FOR_CUT = 8
"""Digits that ``cut`` may grow by."""
