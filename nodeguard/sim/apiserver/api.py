"""The verbs: what a request does to the store. Watches are in :mod:`nodeguard.sim.apiserver.watching`."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from nodeguard.kube import merge as patching
from nodeguard.sim.apiserver import objects
from nodeguard.sim.apiserver.errors import Refusal, expired, success
from nodeguard.sim.apiserver.resources import Table, Target
from nodeguard.sim.apiserver.selectors import number, selector
from nodeguard.sim.apiserver.store import Key, Object, Store

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class Call(NamedTuple):
    """One request, without its transport."""

    method: str
    path: str
    query: Mapping[str, str]
    content_type: str = "application/json"
    body: bytes = b""


class Answer(NamedTuple):
    """What it is answered with."""

    status: int
    body: Mapping[str, Any]


class Api:
    """Answers calls. Raises :class:`Refusal` for those it refuses."""

    def __init__(self, store: Store, table: Table) -> None:
        self._store = store
        self._table = table
        self._verbs: dict[tuple[str, bool], Callable[[Target, Call], Answer]] = {
            ("GET", True): self._get, ("GET", False): self._list, ("POST", False): self._create,
            ("PUT", True): self._update, ("PATCH", True): self._patch, ("DELETE", True): self._delete,
        }

    def answer(self, call: Call) -> Answer:
        """Carry out one call."""
        if call.path in {"/healthz", "/livez", "/readyz", "/version"}:
            return Answer(200, {"major": "1", "minor": "36", "gitVersion": "v1.36.0-nodeguard.sim"})
        discovered = self._table.discovery(call.path)
        if discovered is not None:
            return Answer(200, discovered)
        target = self._table.find(call.path)
        if target.subresource not in {"", "status"}:
            return self._pod_deed(target, call)
        if target.subresource and not target.resource.has_status:
            raise Refusal(404, "the server could not find the requested resource")
        verb = self._verbs.get((call.method, bool(target.name)))
        if verb is None:
            raise Refusal(405, "the server does not allow this method on the requested resource")
        return verb(target, call)

    def _get(self, target: Target, _: Call) -> Answer:
        item = self._store.get(target.resource, (target.namespace, target.name))
        if item is None:
            raise objects.not_found(target)
        return Answer(200, item)

    def _list(self, target: Target, call: Call) -> Answer:
        matches = selector(call.query.get("labelSelector", ""), call.query.get("fieldSelector", ""))
        version, found = self._store.select(target.resource, target.namespace)
        start: Key = ("", "")
        if token := call.query.get("continue"):
            version, start = self._resume(token)
        items = [item for item in found if matches(item) and key_of(item) > start]
        size = number(call.query, "limit") or len(items)
        page, rest = items[:size], max(0, len(items) - size)
        more = {"continue": _token(version, key_of(page[-1])), "remainingItemCount": rest} if rest else {}
        return Answer(200, {
            "kind": f"{target.resource.kind}List", "apiVersion": target.resource.api_version,
            "metadata": {"resourceVersion": str(version), **more},
            "items": [_bare(item) for item in page],
        })

    def _resume(self, token: str) -> tuple[int, Key]:
        try:
            version, namespace, name = json.loads(base64.urlsafe_b64decode(token))
        except ValueError as error:
            raise Refusal(400, "continue key is not valid") from error
        if version < self._store.oldest:
            raise expired(version, self._store.oldest)
        return version, (namespace, name)

    def _create(self, target: Target, call: Call) -> Answer:
        item = objects.created(target, _body(call))
        name = item["metadata"]["name"]
        resource = target.resource
        if resource.namespaced:
            self._require_namespace(target.namespace)

        def make(old: Object | None) -> Object:
            if old is not None:
                raise Refusal(409, f'{resource.title} "{name}" already exists', reason="AlreadyExists",
                              details=objects.details(target, name))
            return item

        return Answer(201, self._write(target, name, make))

    def _require_namespace(self, name: str) -> None:
        namespaces = self._table.find(f"/api/v1/namespaces/{name}")
        if self._store.get(namespaces.resource, ("", name)) is None:
            raise objects.not_found(namespaces)

    def _update(self, target: Target, call: Call) -> Answer:
        body = _body(call)
        return Answer(200, self._change(target, lambda old: objects.updated(target, old, body)))

    def _patch(self, target: Target, call: Call) -> Answer:
        apply = {MERGE_PATCH: patching.merge, STRATEGIC_PATCH: patching.strategic}.get(call.content_type)
        if apply is None:
            raise Refusal(415, "the body of the request was in an unknown format - accepted media types include: "
                               f"{MERGE_PATCH}, {STRATEGIC_PATCH}")
        body = _body(call)

        def change(old: Object) -> Object | None:
            return objects.updated(target, old, apply(old, body))

        return Answer(200, self._change(target, change))

    def _delete(self, target: Target, call: Call) -> Answer:
        options = _body(call) if call.body else {}
        if (seconds := number(call.query, "gracePeriodSeconds")) is not None:
            options["gracePeriodSeconds"] = seconds
        item = self._change(target, lambda old: objects.deleted(target, old, options))
        if target.resource.kind != "Pod" and not item["metadata"].get("finalizers"):
            return Answer(200, success({**objects.details(target, target.name), "uid": item["metadata"]["uid"]}))
        return Answer(200, item)

    def _pod_deed(self, target: Target, call: Call) -> Answer:
        deeds = {"eviction": _evicted, "binding": _bound}
        deed = deeds.get(target.subresource)
        if deed is None or target.resource.kind != "Pod":
            raise Refusal(404, "the server could not find the requested resource")
        if call.method != "POST":
            raise Refusal(405, "the server does not allow this method on the requested resource")
        body = _body(call)
        self._change(target, lambda old: deed(target, old, body))
        return Answer(201, success({}))

    def _change(self, target: Target, change: Callable[[Object], Object | None]) -> Object:
        def make(old: Object | None) -> Object | None:
            if old is None:
                raise objects.not_found(target)
            return change(old)

        return self._write(target, target.name, make)

    def _write(self, target: Target, name: str, make: Callable[[Object | None], Object | None]) -> Object:
        return cast("Object", self._store.write(target.resource, (target.namespace, name), make))


def key_of(item: Object) -> Key:
    """Namespace and name of a stored object."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _evicted(target: Target, old: Object, body: Object) -> Object | None:
    """Eviction marks why before it deletes (Pod condition DisruptionTarget, KEP-3329)."""
    why = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
           "message": "Eviction API: evicting", "lastTransitionTime": objects.stamp()}
    marked = patching.strategic(old, {"status": {"conditions": [why]}})
    return objects.deleted(target, marked, body.get("deleteOptions") or {})


def _bound(target: Target, old: Object, body: Object) -> Object:
    if (old.get("spec") or {}).get("nodeName"):
        raise Refusal(409, f"pod {target.name} is already assigned to node \"{old['spec']['nodeName']}\"",
                      details=objects.details(target, target.name))
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": objects.stamp()}
    return patching.strategic(
        old, {"spec": {"nodeName": body["target"]["name"]}, "status": {"conditions": [scheduled]}})


def _body(call: Call) -> Object:
    try:
        body = json.loads(call.body)
    except ValueError as error:
        raise Refusal(400, "the object provided is not valid JSON") from error
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        raise Refusal(400, "the object provided, or its metadata, is not a JSON object")
    return body


def _bare(item: Object) -> Object:
    """An item of a list: Kubernetes prints those of its own kinds without kind and apiVersion."""
    return {key: value for key, value in item.items() if key not in {"kind", "apiVersion"}}


def _token(version: int, key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, *key]).encode()).decode()
