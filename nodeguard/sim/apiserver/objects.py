"""What the server does to an object on its way in: identity, versions, subresources, graceful deletion.

Pure functions from the stored object and the wanted one to the next one to store. The rules are those of the
registry strategies in kubernetes/pkg/registry (nodes, pods, jobs, leases), as far as nodeguard depends on them.
"""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from nodeguard.sim.apiserver.errors import Refusal
from nodeguard.sim.apiserver.resources import Resource, Target

Object = dict[str, Any]

KEPT = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
"""Metadata that only the server sets."""

DEFAULT_GRACE = 30
"""Seconds, when a pod does not say (PodSpec.terminationGracePeriodSeconds)."""


def stamp(after: float = 0.0) -> str:
    """RFC 3339 with whole seconds, as Kubernetes prints times; ``after`` seconds from now."""
    return (datetime.now(UTC) + timedelta(seconds=after)).strftime("%Y-%m-%dT%H:%M:%SZ")


def details(target: Target, name: str) -> dict[str, Any]:
    """The ``details`` of a Status about one object."""
    group = {"group": target.resource.group} if target.resource.group else {}
    return {"name": name, **group, "kind": target.resource.plural}


def not_found(target: Target) -> Refusal:
    """The object does not exist."""
    return Refusal(404, f'{target.resource.title} "{target.name}" not found', details=details(target, target.name))


def created(target: Target, body: Object) -> Object:
    """A new object with its identity. Pods begin as Pending whatever the client says, Jobs without a status."""
    resource, metadata = target.resource, dict(body.get("metadata") or {})
    name = metadata.get("name") or _generated(metadata.get("generateName"))
    if not name:
        raise _invalid(target, "", "metadata.name: Required value: name or generateName is required")
    metadata = {key: value for key, value in metadata.items() if key not in {*KEPT, "resourceVersion"}}
    place = {"namespace": target.namespace} if resource.namespaced else {}
    identity = {"name": name, **place, "uid": str(uuid.uuid4()), "creationTimestamp": stamp()}
    item = {**body, "kind": resource.kind, "apiVersion": resource.api_version, "metadata": {**metadata, **identity}}
    if resource.kind == "Pod":
        item["status"] = {"phase": "Pending"}
    if resource.kind == "Job":
        item["status"] = {}
    return item


def updated(target: Target, old: Object, new: Object) -> Object | None:
    """The stored object after a PUT or PATCH gave ``new``; None when its last finalizer went while being deleted."""
    _check_identity(target, old, new)
    kept = {key: old["metadata"][key] for key in KEPT if key in old["metadata"]}
    metadata = {key: value for key, value in (new.get("metadata") or {}).items() if key not in KEPT}
    metadata |= {**kept, "resourceVersion": old["metadata"]["resourceVersion"]}
    item = {**new, "kind": old["kind"], "apiVersion": old["apiVersion"], "metadata": metadata}
    if target.subresource == "status":
        item = _with_part(item, old, "spec")
    elif target.resource.has_status:
        item = _with_part(item, old, "status")
    return None if _finalized(old, item) else item


def deleted(target: Target, old: Object, options: Object) -> Object | None:
    """What remains after a DELETE: None, or the object marked with its deletion time."""
    _check_preconditions(target, old, options.get("preconditions") or {})
    grace = _grace(target.resource, old, options.get("gracePeriodSeconds"))
    if grace == 0 and not old["metadata"].get("finalizers"):
        return None
    before = old["metadata"].get("deletionGracePeriodSeconds")
    if before is not None and grace >= before:
        return old  # a second deletion may only shorten the grace period
    marks = {"deletionTimestamp": stamp(grace), "deletionGracePeriodSeconds": grace}
    return {**old, "metadata": {**old["metadata"], **marks}}


def _with_part(item: Object, old: Object, part: str) -> Object:
    rest = {key: value for key, value in item.items() if key != part}
    return {**rest, part: old[part]} if part in old else rest


def _finalized(old: Object, new: Object) -> bool:
    metadata = new["metadata"]
    had = bool(old["metadata"].get("finalizers"))
    return bool(had and not metadata.get("finalizers") and metadata.get("deletionTimestamp")
                and not metadata.get("deletionGracePeriodSeconds"))


def _check_identity(target: Target, old: Object, new: Object) -> None:
    metadata = new.get("metadata") or {}
    name, uid, version = metadata.get("name", target.name), metadata.get("uid"), metadata.get("resourceVersion")
    if name != target.name:
        raise Refusal(400, f"the name of the object ({name}) does not match the name on the URL ({target.name})")
    if uid and uid != old["metadata"]["uid"]:
        raise _precondition(target, "UID", uid, old["metadata"]["uid"])
    if version and version != old["metadata"]["resourceVersion"]:
        raise conflict(target)
    if not version and target.resource.needs_version:
        problem = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        raise _invalid(target, target.name, problem)


def conflict(target: Target) -> Refusal:
    """The object changed since the client read it."""
    message = "the object has been modified; please apply your changes to the latest version and try again"
    return Refusal(409, f'Operation cannot be fulfilled on {target.resource.title} "{target.name}": {message}',
                   details=details(target, target.name))


def _check_preconditions(target: Target, old: Object, preconditions: Object) -> None:
    for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted, found = preconditions.get(field), old["metadata"][field]
        if wanted and wanted != found:
            raise _precondition(target, label, wanted, found)


def _precondition(target: Target, label: str, wanted: str, found: str) -> Refusal:
    message = f"Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {found}"
    return Refusal(409, f'Operation cannot be fulfilled on {target.resource.title} "{target.name}": {message}',
                   details=details(target, target.name))


def _invalid(target: Target, name: str, problem: str) -> Refusal:
    kind = f"{target.resource.kind}.{target.resource.group}" if target.resource.group else target.resource.kind
    return Refusal(422, f'{kind} "{name}" is invalid: {problem}', details=details(target, name))


def _grace(resource: Resource, item: Object, asked: int | None) -> int:
    """Only a pod that runs on a node is given time: nobody would end another one."""
    spec = item.get("spec") or {}
    phase = (item.get("status") or {}).get("phase")
    if resource.kind != "Pod" or not spec.get("nodeName") or phase in {"Succeeded", "Failed"}:
        return 0
    return int(spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE) if asked is None else asked)


def _generated(prefix: str | None) -> str:
    return f"{prefix}{uuid.uuid4().hex[:5]}" if prefix else ""
