"""An API in which only the objects with one label exist: what keeps the demo's loop from a real cluster's nodes."""

import re
import threading
from collections.abc import Iterator, Mapping

from nodeguard.kube.api import READ_TIMEOUT, Api, Object

LABEL = "nodeguard.io/demo"
"""On every Node, pod and Job of a demo; the value is that demo's own."""

_EVERYWHERE = re.compile(r"/api/[^/]+/[^/]+|/apis/[^/]+/[^/]+/[^/]+")
"""A collection over every namespace."""


class Scoped:
    """Lists and watches over the whole cluster show the objects labelled ``LABEL=mark``; all else goes through."""

    def __init__(self, api: Api, mark: str) -> None:
        self._api, self._selector = api, f"{LABEL}={mark}"

    def get(self, path: str, params: Mapping[str, str] | None = None, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`nodeguard.kube.api.Api`."""
        return self._api.get(path, self._narrowed(path, params), timeout)

    def post(self, path: str, body: Object, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`nodeguard.kube.api.Api`."""
        return self._api.post(path, body, timeout)

    def put(self, path: str, body: Object, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`nodeguard.kube.api.Api`."""
        return self._api.put(path, body, timeout)

    def patch(self, path: str, body: Object, content_type: str, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`nodeguard.kube.api.Api`."""
        return self._api.patch(path, body, content_type, timeout)

    def delete(self, path: str, body: Object | None = None, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`nodeguard.kube.api.Api`."""
        return self._api.delete(path, body, timeout)

    def watch(self, path: str, params: Mapping[str, str], stop: threading.Event) -> Iterator[Object]:
        """See :class:`nodeguard.kube.api.Api`."""
        return self._api.watch(path, self._narrowed(path, params) or {}, stop)

    def _narrowed(self, path: str, params: Mapping[str, str] | None) -> Mapping[str, str] | None:
        if not _EVERYWHERE.fullmatch(path):
            return params
        also = (params or {}).get("labelSelector")
        return {**(params or {}), "labelSelector": f"{also},{self._selector}" if also else self._selector}
