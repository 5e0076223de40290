"""What the loop keeps of Nodes and pods: a few fields, because there are thousands."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodeguard.kube.api import Object
from nodeguard.kube.patches import unix_time
from nodeguard.model.intent import FAULTS_ANNOTATION
from nodeguard.remediation import marks

_WORDS = (marks.HOLD, marks.RELEASE, marks.SILENCE, "nodeguard.io/quiesce", "weave.works/kured-reboot-in-progress",
          "weave.works/kured-most-recent-reboot-needed")
_MIRROR = "kubernetes.io/config.mirror"
_FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One Node."""

    name: str
    uid: str
    version: str
    """resourceVersion, for the precondition of the next write."""
    provider_id: str
    boot_id: str
    labels: Mapping[str, str]
    taints: tuple[Object, ...]
    """As they stand: a write of taints replaces the whole list."""
    unschedulable: bool
    deleting: bool
    ready: bool
    ready_reason: str
    faults: str | None
    """The agent's annotation, as text."""
    record: str | None
    """The loop's annotation, as text."""
    words: Mapping[str, str]
    """Annotations by which people and other controllers speak."""
    resources: Mapping[str, int]
    """Allocatable extended resources: whole numbers by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRef:
    """The object that controls another."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """One pod that asks for extended resources or claims devices."""

    namespace: str
    name: str
    uid: str
    node: str
    """Empty: not bound yet."""
    phase: str
    running: bool
    """Every container is ready."""
    deleting: bool
    labels: Mapping[str, str]
    owner: OwnerRef | None
    priority: int
    priority_class: str
    mirror: bool
    resources: Mapping[str, int]
    claims: tuple[str, ...]
    """Names of its ResourceClaims (DRA), in its namespace."""
    created: float
    """Unix seconds."""
    ended: float
    """When its last container ended, in Unix seconds; 0: one still runs, or nobody says."""
    tolerates_all: bool

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def finished(self) -> bool:
        """Whether it holds nothing any more."""
        return self.phase in _FINISHED

    @property
    def of_daemon_set(self) -> bool:
        """Whether a DaemonSet would only put it back."""
        return self.owner is not None and self.owner.kind == "DaemonSet"


def node_view(node: Object) -> NodeView:
    """Reduce a Node. Never raises on a Node that the API server gives."""
    metadata, spec, status = _part(node, "metadata"), _part(node, "spec"), _part(node, "status")
    annotations = _part(metadata, "annotations")
    ready: Object = next((one for one in status.get("conditions") or () if one.get("type") == "Ready"), {})
    return NodeView(
        name=metadata.get("name", ""), uid=metadata.get("uid", ""), version=metadata.get("resourceVersion", ""),
        provider_id=spec.get("providerID", ""), boot_id=_part(status, "nodeInfo").get("bootID", ""),
        labels=_part(metadata, "labels"), taints=tuple(spec.get("taints") or ()),
        unschedulable=bool(spec.get("unschedulable")), deleting="deletionTimestamp" in metadata,
        ready=ready.get("status") == "True", ready_reason=str(ready.get("message") or ready.get("reason") or ""),
        faults=annotations.get(FAULTS_ANNOTATION), record=annotations.get(marks.RECORD),
        words={word: annotations[word] for word in _WORDS if word in annotations},
        resources=_extended(_part(status, "allocatable")))


def pod_view(pod: Object) -> PodView | None:
    """Reduce a pod; None for one without extended resources and claims, which the loop never touches."""
    metadata, spec, status = _part(pod, "metadata"), _part(pod, "spec"), _part(pod, "status")
    resources = _requests(spec)
    claims = tuple(_claims(spec, status))
    if not resources and not claims:
        return None
    return PodView(
        namespace=metadata.get("namespace", ""), name=metadata.get("name", ""), uid=metadata.get("uid", ""),
        node=spec.get("nodeName") or "", phase=status.get("phase") or "",
        running=any(one.get("type") == "Ready" and one.get("status") == "True"
                    for one in status.get("conditions") or ()),
        deleting="deletionTimestamp" in metadata, labels=_part(metadata, "labels"), owner=controller_of(pod),
        priority=int(spec.get("priority") or 0), priority_class=spec.get("priorityClassName") or "",
        mirror=_MIRROR in _part(metadata, "annotations"), resources=resources, claims=claims,
        created=unix_time(metadata.get("creationTimestamp")) or 0.0, ended=_ended(status),
        tolerates_all=any(one.get("operator") == "Exists" and not one.get("key")
                          for one in spec.get("tolerations") or ()))


def controller_of(item: Object) -> OwnerRef | None:
    """The owner with ``controller: true``; an object has at most one (meta/v1 OwnerReference)."""
    for one in _part(item, "metadata").get("ownerReferences") or ():
        if one.get("controller"):
            return OwnerRef(api_version=one.get("apiVersion", ""), kind=one.get("kind", ""), name=one.get("name", ""),
                            uid=one.get("uid", ""))
    return None


def _part(item: Any, key: str) -> Object:
    found = item.get(key)
    return found if isinstance(found, dict) else {}


def _ended(status: Object) -> float:
    stamps = (unix_time(_part(_part(one, "state"), "terminated").get("finishedAt"))
              for one in status.get("containerStatuses") or ())
    return max((at for at in stamps if at is not None), default=0.0)


def _claims(spec: Object, status: Object) -> Iterator[str]:
    """A pod names a claim, or a template whose claim its status names (core/v1 PodResourceClaimStatus)."""
    made = {one.get("name"): one.get("resourceClaimName") for one in status.get("resourceClaimStatuses") or ()}
    for claim in spec.get("resourceClaims") or ():
        yield str(claim.get("resourceClaimName") or made.get(claim.get("name")) or "")


def claim_classes(claim: Object) -> tuple[str, ...]:
    """Device classes that a ResourceClaim asks for (resource.k8s.io/v1 DeviceRequest)."""
    requests = _part(_part(claim, "spec"), "devices").get("requests") or ()
    wanted = (one for request in requests
              for one in (_part(request, "exactly"), *(request.get("firstAvailable") or ()), request))
    return tuple(sorted({one["deviceClassName"] for one in wanted if one.get("deviceClassName")}))


def _requests(spec: Object) -> dict[str, int]:
    """What the pod asks for in all; an extended resource's request equals its limit (core/v1 validation)."""
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        resources = _part(container, "resources")
        for name, amount in _extended({**_part(resources, "limits"), **_part(resources, "requests")}).items():
            total[name] = total.get(name, 0) + amount
    for container in spec.get("initContainers") or ():
        for name, amount in _extended(_part(_part(container, "resources"), "limits")).items():
            total[name] = max(total.get(name, 0), amount)
    return {name: amount for name, amount in total.items() if amount}


def _extended(quantities: Object) -> dict[str, int]:
    """Extended resources have a domain that is not Kubernetes' own, and whole numbers."""
    return {name: amount for name, text in quantities.items()
            if "/" in name and "kubernetes.io/" not in name and (amount := _whole(text)) is not None}


_SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9}


def _whole(text: Any) -> int | None:
    word = str(text)
    factor = _SUFFIXES.get(word[-1:], 1)
    digits = word[:-1] if factor != 1 else word
    return int(digits) * factor if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None
