"""The one Protocol through which everything in nodeguard speaks to the Kubernetes API."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

Object = dict[str, Any]
"""A Kubernetes object, or any other JSON object, as it came over the wire."""

MERGE_PATCH = "application/merge-patch+json"
"""RFC 7396: lists are replaced whole."""
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
"""Kubernetes' own: lists with a merge key, as ``status.conditions``, are merged by it."""

READ_TIMEOUT = 10.0
"""Seconds to wait for an answer."""


class Api(Protocol):
    """Requests with plain dictionaries. Every failure is a :class:`nodeguard.model.errors.ApiError`."""

    def get(self, path: str, params: Mapping[str, str] | None = None, timeout: float = READ_TIMEOUT) -> Object:
        """Read an object or a list."""
        ...

    def post(self, path: str, body: Object, timeout: float = READ_TIMEOUT) -> Object:
        """Create an object in a collection. ApiConflict: an object of this name exists."""
        ...

    def put(self, path: str, body: Object, timeout: float = READ_TIMEOUT) -> Object:
        """Replace an object. ApiConflict: it changed since the body's resourceVersion."""
        ...

    def patch(self, path: str, body: Object, content_type: str, timeout: float = READ_TIMEOUT) -> Object:
        """Change an object. ApiConflict: it changed since the body's resourceVersion, if it names one."""
        ...

    def delete(self, path: str, body: Object | None = None, timeout: float = READ_TIMEOUT) -> Object:
        """Delete an object; ``body`` is a DeleteOptions."""
        ...

    def watch(self, path: str, params: Mapping[str, str], stop: threading.Event) -> Iterator[Object]:
        """Yield watch events ``{"type", "object"}`` until the server ends the stream or ``stop`` is set.

        Ends within a second after ``stop``, also while nothing arrives. ApiGone: the resourceVersion is too old.
        """
        ...


def node_path(name: str) -> str:
    """The path of a Node."""
    return f"/api/v1/nodes/{name}"
