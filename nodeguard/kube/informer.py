"""Follows a whole collection: a paged list, then a watch with bookmarks, again and again; keeps only what is wanted.

After 410 the collection is listed anew, and what has vanished meanwhile is told as deleted. One page of whole objects
at a time is in memory, whatever the size of the collection.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from nodeguard.kube.api import Api, Object
from nodeguard.kube.pace import Backoff
from nodeguard.model.clock import Clock
from nodeguard.model.errors import ApiError, ApiGone

T = TypeVar("T")

PAGE = 500
"""Objects a page."""

_LIST_TIMEOUT = 30.0
_WATCH_SECONDS = 290
"""The server ends a watch after so long (ListOptions.timeoutSeconds); a connection that died silently ends sooner."""

_SILENT = 80.0
"""Seconds without a word after which a watch is no longer trusted; an API server sends a bookmark every minute
(apiserver storage/cacher bookmarkFrequency)."""


class Informer(Generic[T]):
    """One collection. ``run`` in a thread of its own; everything is told on that thread."""

    def __init__(self, api: Api, path: str, clock: Clock, *, reduce: Callable[[Object], T | None],
                 params: Mapping[str, str] | None = None) -> None:
        """``reduce`` gives what is kept of an object; None: nothing of it matters."""
        self._api, self._path, self._clock, self._reduce = api, path, clock, reduce
        self._params = dict(params or {})
        self._version: str | None = None
        self._backoff = Backoff(0.2, 10.0)
        self.items: dict[str, T] = {}
        """By ``namespace/name``, or by ``name`` where there is no namespace."""
        self.synced = threading.Event()
        """Set after the first whole list."""
        self.heard = float("-inf")
        """Boot time of the last word from the server, bookmarks included."""
        self.failure = ""
        """Why it follows nothing now; empty: it does."""

    def run(self, on_change: Callable[[str, T | None, T | None], None], stop: threading.Event) -> None:
        """Tell every change, as key, old and new (None: there is none), until ``stop`` is set.

        Between two requests it waits 0.2 s, and up to 10 s while the server has no word for a watch.
        """
        while not stop.is_set():
            asked = None
            try:
                if self._version is None:
                    self._list(on_change)
                self._follow(on_change, stop)
            except ApiGone:
                self._version = None
            except ApiError as error:
                self.failure, asked = str(error), error.retry_after
            self._clock.wait(stop, self._backoff.next(asked))

    def healthy(self, now: float) -> bool:
        """Whether the watch is alive at boot time ``now``: what it has not told has not happened.

        After a failure or a lost place, only the server's next word makes it so again.
        """
        return self._version is not None and not self.failure and now - self.heard <= _SILENT

    def _list(self, on_change: Callable[[str, T | None, T | None], None]) -> None:
        seen: set[str] = set()
        metadata = self._page("", seen, on_change)
        while metadata.get("continue"):
            metadata = self._page(str(metadata["continue"]), seen, on_change)
        for key in [key for key in self.items if key not in seen]:
            on_change(key, self.items.pop(key), None)
        self._version = str(metadata.get("resourceVersion") or "")
        self.synced.set()

    def _page(self, token: str, seen: set[str], on_change: Callable[[str, T | None, T | None], None]) -> Object:
        """Take one page; its metadata. A function of its own, so that a page is gone before the next one comes."""
        more = {"continue": token} if token else {}
        listed = self._api.get(self._path, {**self._params, "limit": str(PAGE), **more}, timeout=_LIST_TIMEOUT)
        self._heard()
        for item in listed.get("items") or ():
            seen.add(self._put(item, on_change))
        return listed.get("metadata") or {}

    def _follow(self, on_change: Callable[[str, T | None, T | None], None], stop: threading.Event) -> None:
        params = {**self._params, "resourceVersion": self._version or "", "timeoutSeconds": str(_WATCH_SECONDS)}
        for event in self._api.watch(self._path, params, stop):
            self._heard()
            self._backoff.reset()
            item = event.get("object") or {}
            kind = event.get("type")
            if kind in ("ADDED", "MODIFIED"):
                self._put(item, on_change)
            elif kind == "DELETED":
                key = key_of(item)
                old = self.items.pop(key, None)
                if old is not None:
                    on_change(key, old, None)
            self._version = str((item.get("metadata") or {}).get("resourceVersion") or self._version)

    def _put(self, item: Object, on_change: Callable[[str, T | None, T | None], None]) -> str:
        key = key_of(item)
        new, old = self._reduce(item), self.items.get(key)
        if new is None:
            self.items.pop(key, None)
        else:
            self.items[key] = new
        if new != old:
            on_change(key, old, new)
        return key

    def _heard(self) -> None:
        self.heard = self._clock.boot()
        self.failure = ""


def key_of(item: Object) -> str:
    """``namespace/name``, or ``name``."""
    metadata = item.get("metadata") or {}
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata.get('name', '')}" if namespace else str(metadata.get("name", ""))
