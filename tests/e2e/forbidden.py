"""What an agent must not write, and what it may: bodies of requests, and the sentences that refuse them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from .agent_nodes import FAULTS, OWN_TAINT
from .manifests import NAMESPACE

if TYPE_CHECKING:
    from .controlplane.admin import Object

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
EVENTS = "/api/v1/namespaces/default/events"
OTHERS_TAINT = {"key": "example.com/maintenance", "value": "rack-7", "effect": "NoSchedule"}
HUMAN_TAINT = {"key": OWN_TAINT, "value": "by-hand", "effect": "NoSchedule"}
EVICTING_TAINT = {"key": OWN_TAINT, "value": "GpuLost", "effect": "NoExecute"}
OWN = {"key": OWN_TAINT, "value": "GpuLost", "effect": "NoSchedule"}
OTHERS_CONDITION = {"type": "KernelDeadlock", "status": "False", "reason": "KernelHasNoDeadlock", "message": "fine"}
OWN_CONDITION = {"type": "GpuLost", "status": "True", "reason": "GpuLost", "message": "a GPU is lost"}


def labels(**words: str | None) -> Object:
    """A patch of these labels."""
    return {"metadata": {"labels": words}}


def notes(words: dict[str, str | None]) -> Object:
    """A patch of these annotations."""
    return {"metadata": {"annotations": words}}


def taints(*wanted: Object) -> Object:
    """A patch of the list of taints."""
    return {"spec": {"taints": list(wanted)}}


def conditions(*wanted: Object) -> Object:
    """A patch of conditions."""
    return {"status": {"conditions": list(wanted)}}


ONLY_TAINTS = "may only write taints nodeguard.io/unhealthy="
ONLY_CONDITIONS = "may only write conditions of types ^(Gpu|"
ONLY_ANNOTATION = "may only write the annotation nodeguard.io/faults, not "
MINE, MINE_STATUS = "/api/v1/nodes/{node}", "/api/v1/nodes/{node}/status"
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "u"}

FORBIDDEN: dict[str, tuple[str, Any, str]] = {
    "another node's taint": ("/api/v1/nodes/{other}", taints(OWN), "may not write node "),
    "another node's condition": ("/api/v1/nodes/{other}/status", conditions(OWN_CONDITION), "may not write node "),
    "another node's annotation": ("/api/v1/nodes/{other}/status", notes({FAULTS: "{}"}), "may not write node "),
    "another taint key": (MINE, taints(OTHERS_TAINT, {**OWN, "key": "nodeguard.io/other"}), ONLY_TAINTS),
    "own key, evicting": (MINE, taints(OTHERS_TAINT, EVICTING_TAINT), ONLY_TAINTS),
    "own key, PreferNoSchedule": (MINE, taints(OTHERS_TAINT, {**OWN, "effect": "PreferNoSchedule"}), ONLY_TAINTS),
    "own key, no condition type": (MINE, taints(OTHERS_TAINT, HUMAN_TAINT), ONLY_TAINTS),
    "removing somebody's taint": (MINE, taints(OWN), ONLY_TAINTS),
    "removing every taint": (MINE, {"spec": {"taints": None}}, ONLY_TAINTS),
    "altering somebody's taint": (MINE, taints({**OTHERS_TAINT, "value": "rack-8"}), ONLY_TAINTS),
    "condition Ready": (MINE_STATUS, conditions({"type": "Ready", "status": "False", "reason": "x"}), ONLY_CONDITIONS),
    "altering somebody's condition": (MINE_STATUS, conditions({**OTHERS_CONDITION, "status": "True"}), ONLY_CONDITIONS),
    "removing somebody's condition": (
        MINE_STATUS, conditions({"type": "KernelDeadlock", "$patch": "delete"}), ONLY_CONDITIONS),
    "adding a foreign condition": (MINE_STATUS, conditions({**OWN_CONDITION, "type": "DiskBad"}), ONLY_CONDITIONS),
    "a type that only begins as one of its own": (
        MINE_STATUS, conditions({**OWN_CONDITION, "type": "Gpu-Lost"}), ONLY_CONDITIONS),
    "removing every condition": (MINE_STATUS, {"status": {"conditions": [{"$patch": "replace"}]}}, ONLY_CONDITIONS),
    "adding a label": (MINE, labels(new="x"), "may not change metadata.labels"),
    "changing a label": (MINE, labels(pool="b"), "may not change metadata.labels"),
    "removing a label": (MINE, labels(pool=None), "may not change metadata.labels"),
    "a label through the status": (MINE_STATUS, labels(pool="b"), "may not change metadata.labels"),
    "adding an annotation": (MINE, notes({"a": "b"}), ONLY_ANNOTATION + "a"),
    "changing an annotation": (MINE, notes({"example.com/owner": "me"}), ONLY_ANNOTATION + "example.com/owner"),
    "removing an annotation": (MINE, notes({"example.com/owner": None}), ONLY_ANNOTATION + "example.com/owner"),
    "an annotation through the status": (MINE_STATUS, notes({"a": "b", FAULTS: "{}"}), ONLY_ANNOTATION + "a"),
    "removing every annotation": (MINE, {"metadata": {"annotations": None}}, ONLY_ANNOTATION),
    "releasing a fault by hand": (MINE_STATUS, notes({"nodeguard.io/release": "true"}), ONLY_ANNOTATION),
    "adding a finalizer": (MINE, {"metadata": {"finalizers": ["a.b/c", "example.com/hold"]}}, "metadata.finalizers"),
    "removing a finalizer": (
        MINE_STATUS, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/hold"]}},
        "metadata.finalizers"),
    "an owner": (MINE, {"metadata": {"ownerReferences": [OWNER]}}, "metadata.ownerReferences"),
    "cordon": (MINE, {"spec": {"unschedulable": True}}, "may not change spec.unschedulable"),
    "provider ID": (MINE, {"spec": {"providerID": "x://y"}}, "may not change spec.providerID"),
    "capacity": (MINE_STATUS, {"status": {"capacity": {"nvidia.com/gpu": "4"}}}, "may not change status.capacity"),
    "allocatable": (MINE_STATUS, {"status": {"allocatable": {"nvidia.com/gpu": None}}}, "status.allocatable"),
    "addresses": (MINE_STATUS, {"status": {"addresses": [{"type": "Hostname", "address": "h"}]}}, "status.addresses"),
    "system information": (MINE_STATUS, {"status": {"nodeInfo": {"bootID": "another"}}}, "status.nodeInfo"),
    "images": (MINE_STATUS, {"status": {"images": [{"names": ["x"]}]}}, "may not change status.images"),
    "attached volumes": (MINE_STATUS, {"status": {"volumesInUse": ["x"]}}, "may not change status.volumesInUse"),
    "another's Lease": (LEASES + "/{other}", {"spec": {"holderIdentity": "me"}}, "may only write the Lease nodeguard/"),
}
"""By deed: the path, the patch, a part of the sentence."""


def new_style_event() -> Object:
    """An Event of events.k8s.io about a pod."""
    return {"metadata": {"name": f"e2e-{uuid.uuid4().hex}"}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "type": "Normal", "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default"},
            "action": "X", "reason": "X", "reportingController": "x.y/z", "reportingInstance": "z"}
