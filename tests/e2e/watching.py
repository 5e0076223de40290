"""Follows Nodes, pods and Jobs as any client would, and tells when it was first shown what."""

from __future__ import annotations

import http.client
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Self

from .controlplane.admin import Admin, ApiError, Object, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = {"nodes": "/api/v1/nodes", "pods": "/api/v1/pods", "jobs": "/apis/batch/v1/jobs"}

State = tuple[float, Object | None]
"""Monotonic time of its arrival, and the object; None: it was deleted."""


class Watching:
    """Every state of every object, by kind and ``[namespace/]name``. A context manager."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._changed = threading.Condition()
        self._states: defaultdict[tuple[str, str], list[State]] = defaultdict(list)
        self._stop = threading.Event()
        self._watches: dict[str, Watch] = {}
        self._listed = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._follow, args=(kind,), daemon=True) for kind in KINDS]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            assert self._listed.acquire(timeout=20)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for watch in self._watches.values():
            watch.close()
        for thread in self._threads:
            thread.join(10)

    def states(self, kind: str, key: str) -> list[State]:
        """Every state of one object so far, oldest first."""
        with self._changed:
            return list(self._states[kind, key])

    def keys(self, kind: str, prefix: str) -> list[str]:
        """The objects ever seen whose key begins so."""
        with self._changed:
            return [key for which, key in self._states if which == kind and key.startswith(prefix)]

    def first(self, kind: str, key: str, wanted: Callable[[Object | None], object], after: float) -> float | None:
        """When the object was first shown as ``wanted``, at or after ``after``; None: not yet."""
        return next((at for at, state in self.states(kind, key) if at >= after and wanted(state)), None)

    def wait(self, look: Callable[[], float | None], what: str, seconds: float = 30.0) -> float:
        """Wait until ``look`` tells a time; AssertionError after ``seconds``."""
        end = time.monotonic() + seconds
        while True:
            with self._changed:
                found = look()
                if found is not None:
                    return found
                if not self._changed.wait(end - time.monotonic()):
                    raise AssertionError(f"not within {seconds} s: {what}")

    def forget(self, prefix: str) -> None:
        """Drop what is remembered of objects whose name has this prefix."""
        with self._changed:
            for place in [place for place in self._states if prefix in place[1]]:
                del self._states[place]

    def _follow(self, kind: str) -> None:
        listed = False
        while not self._stop.is_set():
            try:
                found = self._admin.get(KINDS[kind])
                for item in found["items"]:
                    self._add(kind, item, deleted=False)
                version = found["metadata"]["resourceVersion"]
                self._watches[kind] = self._admin.watch(f"{KINDS[kind]}?watch=1&resourceVersion={version}", timeout=60)
                if not listed:
                    listed = True
                    self._listed.release()
                for event in self._watches[kind]:
                    self._add(kind, event["object"], deleted=event["type"] == "DELETED")
            except (OSError, ApiError, http.client.HTTPException, KeyError):
                self._stop.wait(0.05)

    def _add(self, kind: str, item: Object, *, deleted: bool) -> None:
        at = time.monotonic()
        metadata = item["metadata"]
        key = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        with self._changed:
            self._states[kind, key].append((at, None if deleted else item))
            self._changed.notify_all()
