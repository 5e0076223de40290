"""Follow one Node: read it, then take every change of it as it happens."""

import threading
from collections.abc import Callable

from nodeguard.kube.api import Api, Object, node_path
from nodeguard.kube.pace import Backoff
from nodeguard.model.clock import Clock, SystemClock
from nodeguard.model.errors import ApiError, ApiGone


class NodeWatch:
    """Tells every state of the Node that the API server shows, oldest first; a few may be skipped, none invented.

    It resumes where it was after a broken connection, reads the Node again when that point is gone (410), and waits
    from 0.2 to 10 s between tries.
    """

    def __init__(self, api: Api, node_name: str, clock: Clock | None = None) -> None:
        self._api = api
        self._name = node_name
        self._clock = clock or SystemClock()
        self._version: str | None = None
        self._backoff = Backoff(0.2, 10.0)

    def run(self, on_node: Callable[[Object], None], stop: threading.Event) -> None:
        """Call ``on_node`` with the whole Node until ``stop`` is set; it must not block."""
        while not stop.is_set():
            asked = None
            try:
                self._follow(on_node, stop)
            except ApiGone:
                self._version = None
            except ApiError as error:
                asked = error.retry_after
            self._clock.wait(stop, self._backoff.next(asked))

    def _follow(self, on_node: Callable[[Object], None], stop: threading.Event) -> None:
        if self._version is None:
            self._tell(self._api.get(node_path(self._name)), on_node)
        params = {"fieldSelector": f"metadata.name={self._name}", "resourceVersion": self._version or ""}
        for event in self._api.watch("/api/v1/nodes", params, stop):
            node = event.get("object") or {}
            if event.get("type") in ("ADDED", "MODIFIED"):
                self._tell(node, on_node)
            elif event.get("type") == "DELETED":
                self._version = None
                return
            else:
                self._version = _version_of(node) or self._version

    def _tell(self, node: Object, on_node: Callable[[Object], None]) -> None:
        self._version = _version_of(node)
        self._backoff.reset()
        on_node(node)


def _version_of(node: Object) -> str | None:
    version = (node.get("metadata") or {}).get("resourceVersion")
    return str(version) if version else None
