"""Objects, one rising version for all of them, and a bounded history for watches."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from nodeguard.sim.apiserver.errors import expired
from nodeguard.sim.apiserver.resources import Resource

Object = dict[str, Any]
"""A stored object. It is never changed in place, so it may be read without the lock."""

Key = tuple[str, str]
"""Namespace (empty for cluster scope) and name."""


class Change(NamedTuple):
    """One entry of the history. ``before`` is None for a creation, ``after`` for a deletion."""

    version: int
    resource: Resource
    before: Object | None
    after: Object | None


class Store:
    """Thread-safe. Every write is one step under one lock, so concurrent writers cannot lose each other's."""

    def __init__(self, history: int) -> None:
        # A server's versions start where no earlier server's can have come to, so that a client which resumes on a
        # restarted server is told that its version is too old instead of waiting for ever.
        self._version = self._oldest = int(time.time() * 1000)
        self._history: deque[Change] = deque()
        self._limit = history
        self._objects: dict[Resource, dict[Key, Object]] = {}
        self._changed = threading.Condition()

    @property
    def version(self) -> int:
        """The version of the last write."""
        return self._version

    @property
    def oldest(self) -> int:
        """The oldest version from which a watch can resume."""
        return self._oldest

    def get(self, resource: Resource, key: Key) -> Object | None:
        """The object, or None."""
        with self._changed:
            return self._objects.get(resource, {}).get(key)

    def select(self, resource: Resource, namespace: str = "") -> tuple[int, list[Object]]:
        """The version of the moment, and the objects (of one namespace, if given) by key."""
        with self._changed:
            found = self._objects.get(resource, {})
            return self._version, [found[key] for key in sorted(found) if not namespace or key[0] == namespace]

    def everything(self) -> dict[tuple[Resource, Key], Object]:
        """Every object now."""
        with self._changed:
            return {(resource, key): item for resource, found in self._objects.items() for key, item in found.items()}

    def write(self, resource: Resource, key: Key, make: Callable[[Object | None], Object | None]) -> Object | None:
        """Replace an object by what ``make`` makes of it; None removes it. Returns it with its new version.

        ``make`` is called under the lock and may refuse. An object equal to the old one is no write, as in etcd3.
        A removed object is returned as it was, with the version of its removal.
        """
        with self._changed:
            found = self._objects.setdefault(resource, {})
            before = found.get(key)
            after = make(before)
            if after == before:
                return before
            self._version += 1
            if after is None:
                gone = found.pop(key)
                self._record(Change(self._version, resource, gone, None))
                return _stamped(gone, self._version)
            found[key] = after = _stamped(after, self._version)
            self._record(Change(self._version, resource, before, after))
            return after

    def since(self, version: int) -> list[Change]:
        """Every change after ``version``. Raises :class:`Refusal` 410 when some of them are forgotten."""
        with self._changed:
            if version < self._oldest:
                raise expired(version, self._oldest)
            if version >= self._version:
                return []
            return [change for change in self._history if change.version > version]

    def wait(self, version: int, seconds: float) -> None:
        """Wait until there is a change after ``version``, at most ``seconds``; :meth:`wake` ends it early."""
        with self._changed:
            if self._version <= version:
                self._changed.wait(seconds)

    def wake(self) -> None:
        """End every wait."""
        with self._changed:
            self._changed.notify_all()

    def forget(self) -> None:
        """Drop the whole history, as a compaction does: no earlier version can be resumed from."""
        with self._changed:
            self._history.clear()
            self._oldest = self._version

    def _record(self, change: Change) -> None:
        self._history.append(change)
        if len(self._history) > self._limit:
            self._oldest = self._history.popleft().version
        self._changed.notify_all()


def _stamped(item: Object, version: int) -> Object:
    return {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}
