"""The ring of incidents in a ConfigMap: read, merged with what others wrote, and written with a precondition."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodeguard.kube.api import MERGE_PATCH, Api, Object
from nodeguard.kube.brake import collection
from nodeguard.model.errors import ApiConflict, ApiNotFound
from nodeguard.remediation.incidents_entry import Incident, encode, merged, parse

CONFIG_MAP = "nodeguard-incidents"

MOST_ENTRIES = 1000
LARGEST = 880 << 10
"""Bytes of keys and values; a ConfigMap holds 1 MiB at most (core/v1 MaxSecretSize, and the same for ConfigMap)."""

_TRIES = 4


def path(namespace: str) -> str:
    """The path of the ConfigMap."""
    return f"{collection(namespace)}/{CONFIG_MAP}"


def incidents_in(config_map: Object) -> dict[str, Incident]:
    """What a ConfigMap tells, oldest first; entries that are not understood are passed over."""
    found = [one for text in (config_map.get("data") or {}).values() if (one := parse(str(text))) is not None]
    return {one.key: one for one in sorted(found, key=lambda one: one.begun)}


@dataclass(frozen=True, slots=True)
class _Entry:
    incident: Incident
    text: str

    @property
    def size(self) -> int:
        return len(self.incident.key) + len(self.text.encode())


class Ring:
    """Bounded in entries and in bytes: the oldest that has ended goes first. For several threads."""

    def __init__(self, api: Api, namespace: str, *, most: int = MOST_ENTRIES, largest: int = LARGEST) -> None:
        self._api, self._namespace = api, namespace
        self._most, self._largest = most, largest
        self._entries: dict[str, _Entry] = {}
        self._size = 0
        self._dirty: dict[str, None] = {}
        self._version: str | None = None
        """resourceVersion of the ConfigMap as last read or written; None: not read yet, empty: there is none."""
        self.lock = threading.RLock()
        """Held by who reads an incident to put it back changed."""

    def __iter__(self) -> Iterator[Incident]:
        with self.lock:
            return iter([entry.incident for entry in self._entries.values()])

    @property
    def unwritten(self) -> int:
        """Entries that differ from what was written."""
        return len(self._dirty)

    def put(self, incident: Incident) -> None:
        """Take a new or changed incident, to be written by the next :meth:`write`."""
        with self.lock:
            self._set(incident)
            self._dirty[incident.key] = None
            self._bound()

    def read(self) -> None:
        """Take what stands in the ConfigMap, and keep what is not written yet. ApiError: not told."""
        try:
            found = self._api.get(path(self._namespace))
        except ApiNotFound:
            found = {}
        with self.lock:
            unwritten = {key: self._entries[key].incident for key in self._dirty if key in self._entries}
            self._entries.clear()
            self._size = 0
            for key, incident in incidents_in(found).items():
                self._set(merged(incident, unwritten.pop(key)) if key in unwritten else incident)
            for incident in unwritten.values():
                self._set(incident)
            self._version = (found.get("metadata") or {}).get("resourceVersion", "")
            self._bound()

    def write(self) -> None:
        """Write what has changed. ApiError: it stays to be written."""
        if self._version is None:
            self.read()
        for _ in range(_TRIES):
            with self.lock:
                changes = {key: self._entries[key].text if key in self._entries else None for key in self._dirty}
            if not changes:
                return
            try:
                self._written(self._send(changes), changes)
            except (ApiConflict, ApiNotFound):
                self.read()
            else:
                return
        raise ApiConflict(f"the ConfigMap {CONFIG_MAP} changes faster than it can be written")

    def _send(self, changes: Mapping[str, str | None]) -> Object:
        if self._version:
            body: Object = {"metadata": {"resourceVersion": self._version}, "data": dict(changes)}
            return self._api.patch(path(self._namespace), body, MERGE_PATCH)
        data = {key: text for key, text in changes.items() if text is not None}
        return self._api.post(collection(self._namespace), {
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": CONFIG_MAP, "namespace": self._namespace}})

    def _written(self, answer: Object, changes: Mapping[str, str | None]) -> None:
        with self.lock:
            self._version = answer["metadata"]["resourceVersion"]
            for key, text in changes.items():
                if (self._entries[key].text if key in self._entries else None) == text:
                    self._dirty.pop(key, None)

    def _set(self, incident: Incident) -> None:
        self._drop(incident.key)
        entry = _Entry(incident, encode(incident))
        self._entries[incident.key] = entry
        self._size += entry.size

    def _drop(self, key: str) -> None:
        gone = self._entries.pop(key, None)
        if gone is not None:
            self._size -= gone.size

    def _bound(self) -> None:
        while self._entries and (len(self._entries) > self._most or self._size > self._largest):
            oldest = min(self._entries.values(), key=_goes_first).incident.key
            self._drop(oldest)
            self._dirty[oldest] = None


def _goes_first(entry: _Entry) -> tuple[bool, float]:
    return not entry.incident.outcome, entry.incident.begun
