"""Finds every mark that nodeguard left in a cluster, and takes each away again without touching anybody else's.

A mark's removal reads the object anew, so a plan that a person thought about for a while does no harm. It can be done
again after a failure: what says which conditions are nodeguard's goes last.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from nodeguard.app.remediator import LEASE_NAME
from nodeguard.kube import brake
from nodeguard.kube.api import MERGE_PATCH, STRATEGIC_PATCH, Api, Object, node_path
from nodeguard.kube.lease import NODES_PATH, leases_path
from nodeguard.kube.patches import is_own_type, status_patch, taints_without, unix_time
from nodeguard.model.errors import ApiConflict, ApiError, ApiNotFound
from nodeguard.model.intent import FAULTS_ANNOTATION, TAINT_KEY
from nodeguard.remediation import gangs, incidents_ring, marks, record, recreate
from nodeguard.remediation.owners import Owners
from nodeguard.sinks import annotation

PAGE = 500
"""Objects asked for at once."""

_TRIES = 4

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something of nodeguard's on one object."""

    kind: str
    name: str
    what: str
    """What is taken away, for people."""
    remove: Callable[[], None]
    """ApiError: not done. An object that is gone is no failure."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.what}"


def find(api: Api, namespace: str, *, failed: Note, note: Note) -> Iterator[Mark]:
    """Every mark, in the order in which they are to be removed: gangs run again before nodes are given back.

    ``failed`` is told of what cannot be looked for, ``note`` of what is left as it is and why.
    """
    yield from _owners(api, failed)
    for search in (_deleted_jobs(api, namespace), _nodes(api, note), _leases(api, namespace, note),
                   _config_maps(api, namespace)):
        try:
            yield from search
        except ApiError as error:
            failed(f"not all marks could be looked for: {error}")


def _owners(api: Api, failed: Note) -> Iterator[Mark]:
    owners = Owners(api)
    for going in gangs.under_way(api, failed):
        def resume(going: gangs.Going = going) -> None:
            gangs.end(api, owners, going)
        owner = going.owner
        yield Mark(owner.kind, f"{owner.namespace}/{owner.name}", "suspension and marks of its restart", resume)


def _deleted_jobs(api: Api, namespace: str) -> Iterator[Mark]:
    """Jobs that a loop has stored and deleted, and not made anew yet."""
    for going in recreate.under_way(api, namespace, time.time()):
        def make(going: gangs.Going = going) -> None:
            recreate.end(api, namespace, going)
        yield Mark("Job", f"{going.owner.namespace}/{going.owner.name}", "its deletion: it is made anew", make)


def _nodes(api: Api, note: Note) -> Iterator[Mark]:
    for node in _listed(api, NODES_PATH):
        name = node["metadata"]["name"]
        found = _OnNode(node)
        for text in found.foreign:
            note(f"Node {name}: {text}")
        if found:
            yield Mark("Node", name, str(found), lambda name=name: _clean_node(api, name))  # type: ignore[misc] # bound


class _OnNode:
    """nodeguard's marks on one Node."""

    def __init__(self, node: Object) -> None:
        metadata, spec, status = (node.get(part) or {} for part in ("metadata", "spec", "status"))
        annotations = metadata.get("annotations") or {}
        self.annotations = [key for key in (FAULTS_ANNOTATION, marks.RECORD) if key in annotations]
        standing = spec.get("taints") or []
        without = taints_without(standing).wanted
        self.kept_taints = [one for one in (standing if without is None else without) if not record.is_own_taint(one)]
        self.taints = [f"{one['key']}={one.get('value')}" for one in standing if one not in self.kept_taints]
        own = annotation.types_of(annotation.parse(annotations.get(FAULTS_ANNOTATION)))
        self.conditions = [one["type"] for one in status.get("conditions") or ()
                           if one.get("type") in own and is_own_type(one["type"])]
        self.foreign = [f"the taint {one['key']}={one.get('value')}:{one.get('effect')} stays: not nodeguard's"
                        for one in self.kept_taints if one.get("key") in (TAINT_KEY, marks.TAINT_KEY)]
        if FAULTS_ANNOTATION in annotations and annotation.parse(annotations[FAULTS_ANNOTATION]) is None:
            self.foreign.append(f"the annotation {FAULTS_ANNOTATION} is not understood, so conditions stay")

    def __bool__(self) -> bool:
        return bool(self.annotations or self.taints)

    def __str__(self) -> str:
        parts = (("annotations", self.annotations), ("taints", self.taints), ("conditions", self.conditions))
        return "; ".join(f"{word} {', '.join(names)}" for word, names in parts if names)


def _clean_node(api: Api, name: str) -> None:
    for _ in range(_TRIES):
        try:
            node = api.get(node_path(name))
            found = _OnNode(node)
            if found.taints or marks.RECORD in found.annotations:
                api.patch(node_path(name), {
                    "metadata": {"resourceVersion": node["metadata"]["resourceVersion"],
                                 "annotations": {marks.RECORD: None}},
                    "spec": {"taints": found.kept_taints or None}}, MERGE_PATCH)
            if FAULTS_ANNOTATION in found.annotations:
                body = status_patch((), found.conditions, {FAULTS_ANNOTATION: None})
                api.patch(f"{node_path(name)}/status", body, STRATEGIC_PATCH)
        except ApiConflict:
            continue
        except ApiNotFound:
            return
        return
    raise ApiConflict(f"the Node {name} changes faster than it can be written")


def _leases(api: Api, namespace: str, note: Note) -> Iterator[Mark]:
    alive = 0
    for lease in _listed(api, leases_path(namespace)):
        metadata, spec = lease["metadata"], lease.get("spec") or {}
        if not _is_own_lease(metadata, spec):
            continue
        renewed = unix_time(spec.get("renewTime"))
        alive += renewed is not None and time.time() - renewed < float(spec.get("leaseDurationSeconds") or 0)
        path = f"{leases_path(namespace)}/{metadata['name']}"
        yield Mark("Lease", f"{namespace}/{metadata['name']}", "all of it", _deletion(api, path, metadata))
    if alive:
        note(f"{alive} agents or loops seem to run still, and write their marks again; delete the DaemonSet and the "
             "Deployment first")


def _is_own_lease(metadata: Object, spec: Object) -> bool:
    """The loop's by its name; an agent's by its holder and by the Node that owns it."""
    name = metadata["name"]
    owned = any(one.get("kind") == "Node" and one.get("name") == name for one in metadata.get("ownerReferences") or ())
    return name == LEASE_NAME or (owned and spec.get("holderIdentity") == name)


def _config_maps(api: Api, namespace: str) -> Iterator[Mark]:
    for path in (brake.path(namespace), incidents_ring.path(namespace), recreate.path(namespace)):
        try:
            metadata = api.get(path)["metadata"]
        except ApiNotFound:
            continue
        if path == recreate.path(namespace):
            yield Mark("ConfigMap", f"{namespace}/{metadata['name']}", "all of it", lambda: _drop_jobs(api, namespace))
            continue
        yield Mark("ConfigMap", f"{namespace}/{metadata['name']}", "all of it", _deletion(api, path, metadata))


def _drop_jobs(api: Api, namespace: str) -> None:
    """Only when no Job is lost with it."""
    path = recreate.path(namespace)
    found = api.get(path)
    if found.get("data"):
        raise ApiConflict(f"{path} still holds Jobs that are to be made anew")
    api.delete(path, {"preconditions": {"resourceVersion": found["metadata"]["resourceVersion"]}})


def _deletion(api: Api, path: str, metadata: Mapping[str, str]) -> Callable[[], None]:
    uid = metadata.get("uid")

    def delete() -> None:
        try:
            api.delete(path, {"preconditions": {"uid": uid}} if uid else None)
        except ApiNotFound:
            return
    return delete


def _listed(api: Api, path: str) -> Iterator[Object]:
    """Every object of a collection, page after page."""
    params = {"limit": str(PAGE)}
    while True:
        page = api.get(path, params)
        yield from page.get("items") or ()
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return
        params = {"limit": str(PAGE), "continue": token}
