"""An API server in memory, for tests: the parts of its behaviour that nodeguard's writers depend on.

It keeps resourceVersions, answers 409 for a stale one, merges as the real one does, records requests, can fail any
request, and lets "another writer" act at the worst moment.
"""

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from nodeguard.kube.api import READ_TIMEOUT, STRATEGIC_PATCH, Object
from nodeguard.kube.merge import merge, strategic
from nodeguard.model.errors import ApiConflict, ApiError, ApiGone, ApiNotFound


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in, failed ones included."""

    method: str
    path: str
    body: Object | None = None
    content_type: str = ""


@dataclass(slots=True)
class _Planned:
    method: str
    prefix: str
    left: int
    act: Callable[[], None]


class FakeApi:
    """An :class:`nodeguard.kube.api.Api` over a dictionary of path to object. Safe to share between threads."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._objects: dict[str, Object] = {}
        self._version = 100
        self._oldest = 0
        self._events: deque[tuple[int, str, Object]] = deque(maxlen=1000)
        self._planned: list[_Planned] = []
        self._changed = threading.Condition(threading.RLock())
        self._streams = 0

    def add(self, path: str, body: Object) -> Object:
        """Put an object at ``path`` as another writer."""
        with self._changed:
            return self._store("ADDED", path, body)

    def edit(self, path: str, change: Callable[[Object], None]) -> None:
        """Change an object in place as another writer."""
        with self._changed:
            body = _copy(self._objects[path])
            change(body)
            self._store("MODIFIED", path, body)

    def remove(self, path: str) -> None:
        """Delete an object as another writer."""
        with self._changed:
            self._drop(path)

    def read(self, path: str) -> Object:
        """The object at ``path``, without a request."""
        with self._changed:
            return _copy(self._objects[path])

    def under(self, path: str) -> list[Object]:
        """The objects of a collection, without a request."""
        with self._changed:
            return [_copy(body) for key, body in self._objects.items() if key.startswith(path + "/")]

    def fail(self, method: str, path_prefix: str, error: ApiError, times: int = 1) -> None:
        """Let the next ``times`` such requests fail. ``method`` may be ``*``."""
        def act() -> None:
            raise error
        self.before(method, path_prefix, act, times)

    def before(self, method: str, path_prefix: str, act: Callable[[], None], times: int = 1) -> None:
        """Call ``act`` just before each of the next ``times`` such requests is served."""
        with self._changed:
            self._planned.append(_Planned(method, path_prefix, times, act))

    def heal(self) -> None:
        """Forget every planned failure and act."""
        with self._changed:
            self._planned.clear()

    def compact(self) -> None:
        """Forget the past: a watch from before now is answered with 410."""
        with self._changed:
            self._oldest = self._version
            self._events.clear()

    def end_watches(self) -> None:
        """Let every open watch end, as a server does after some minutes."""
        with self._changed:
            self._streams += 1
            self._changed.notify_all()

    def writes(self, path_prefix: str = "") -> list[Request]:
        """Requests that change something, in order."""
        return [one for one in self.requests
                if one.method not in ("GET", "WATCH") and one.path.startswith(path_prefix)]

    def get(self, path: str, params: Mapping[str, str] | None = None, timeout: float = READ_TIMEOUT) -> Object:  # noqa: ARG002 (the Protocol's)
        """See :class:`nodeguard.kube.api.Api`."""
        with self._served(Request("GET", path)):
            return _copy(self._standing(path))

    def post(self, path: str, body: Object, timeout: float = READ_TIMEOUT) -> Object:  # noqa: ARG002 (the Protocol's)
        """See :class:`nodeguard.kube.api.Api`."""
        with self._served(Request("POST", path, _copy(body))):
            key = f"{path}/{body['metadata']['name']}"
            if key in self._objects:
                raise ApiConflict(f"{key} already exists", status=409)
            return self._store("ADDED", key, body)

    def put(self, path: str, body: Object, timeout: float = READ_TIMEOUT) -> Object:  # noqa: ARG002 (the Protocol's)
        """See :class:`nodeguard.kube.api.Api`."""
        with self._served(Request("PUT", path, _copy(body))):
            self._check_version(self._standing(path), body)
            return self._store("MODIFIED", path, body)

    def patch(self, path: str, body: Object, content_type: str, timeout: float = READ_TIMEOUT) -> Object:  # noqa: ARG002 (the Protocol's)
        """See :class:`nodeguard.kube.api.Api`."""
        with self._served(Request("PATCH", path, _copy(body), content_type)):
            key = path.removesuffix("/status")
            standing = self._standing(key)
            self._check_version(standing, body)
            merged: Object = (strategic if content_type == STRATEGIC_PATCH else merge)(standing, body)
            untouched = "spec" if key != path else "status"
            merged.pop(untouched, None)
            if untouched in standing:
                merged[untouched] = standing[untouched]
            return _copy(standing) if merged == standing else self._store("MODIFIED", key, merged)

    def delete(self, path: str, body: Object | None = None, timeout: float = READ_TIMEOUT) -> Object:  # noqa: ARG002 (the Protocol's)
        """See :class:`nodeguard.kube.api.Api`."""
        with self._served(Request("DELETE", path, body and _copy(body))):
            standing = self._standing(path)
            wanted = ((body or {}).get("preconditions") or {}).items()
            if any(standing["metadata"].get(key) != value for key, value in wanted):
                raise ApiConflict(f"{path} is not the object of the preconditions", status=409)
            return self._drop(path)

    def watch(self, path: str, params: Mapping[str, str], stop: threading.Event) -> Iterator[Object]:
        """See :class:`nodeguard.kube.api.Api`."""
        with self._served(Request("WATCH", path, dict(params))):
            stream, seen = self._streams, int(params.get("resourceVersion") or self._version)
            if seen < self._oldest:
                raise ApiGone(f"too old resource version: {seen} ({self._oldest})", status=410)
        name = params.get("fieldSelector", "").removeprefix("metadata.name=")
        while True:
            with self._changed:
                news = [event for event in self._events if event[0] > seen]
                if not news:
                    if stop.is_set() or stream != self._streams:
                        return
                    self._changed.wait(_STOP_CHECK)
            for version, kind, body in news:
                seen = version
                if not name or body["metadata"]["name"] == name:
                    yield {"type": kind, "object": _copy(body)}

    def _served(self, request: Request) -> threading.Condition:
        """Record the request and let what is planned for it happen; the answer is made under the returned lock."""
        with self._changed:
            self.requests.append(request)
            due = [one for one in self._planned
                   if one.method in ("*", request.method) and request.path.startswith(one.prefix)]
            for one in due:
                one.left -= 1
            self._planned = [one for one in self._planned if one.left > 0]
        for one in due:
            one.act()
        return self._changed

    def _standing(self, path: str) -> Object:
        if path not in self._objects:
            raise ApiNotFound(f"{path} not found", status=404)
        return self._objects[path]

    def _check_version(self, standing: Object, body: Object) -> None:
        wanted = (body.get("metadata") or {}).get("resourceVersion")
        if wanted not in (None, standing["metadata"]["resourceVersion"]):
            raise ApiConflict("the object has been modified", status=409)

    def _store(self, kind: str, path: str, body: Object) -> Object:
        self._version += 1
        stored = _copy(body)
        stored.setdefault("metadata", {})["resourceVersion"] = str(self._version)
        stored["metadata"].setdefault("name", path.rpartition("/")[2])
        self._objects[path] = stored
        self._tell(kind, stored)
        return _copy(stored)

    def _drop(self, path: str) -> Object:
        self._version += 1
        gone = self._objects.pop(path)
        self._tell("DELETED", gone)
        return gone

    def _tell(self, kind: str, body: Object) -> None:
        self._events.append((self._version, kind, body))
        self._changed.notify_all()


def _copy(value: Object) -> Object:
    """As over the wire: what is stored is never changed in place, and nobody outside holds it."""
    copied: Object = json.loads(json.dumps(value))
    return copied


_STOP_CHECK = 0.05
