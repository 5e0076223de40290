"""The kubelet that plays a test's node, under that node's own identity and with the standard library's requests."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from nodeguard.kube.api import READ_TIMEOUT, Api
from nodeguard.model import errors
from nodeguard.sim import cluster_kubelet

from .admin import Admin, ApiError, Object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_KINDS = {404: errors.ApiNotFound, 409: errors.ApiConflict, 410: errors.ApiGone}
_WATCH_SECONDS = 310.0
_LOOK = 1.0


class AdminApi(Api):
    """What the simulated kubelet asks for, asked by an :class:`Admin`: nodeguard's own client is what tests judge."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def get(self, path: str, params: Mapping[str, str] | None = None, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`Api`."""
        return self._ask("GET", f"{path}?{urlencode(params)}" if params else path, timeout=timeout)

    def post(self, path: str, body: Object, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`Api`."""
        return self._ask("POST", path, body, timeout=timeout)

    def put(self, path: str, body: Object, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`Api`."""
        return self._ask("PUT", path, body, timeout=timeout)

    def patch(self, path: str, body: Object, content_type: str, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`Api`."""
        return self._ask("PATCH", path, body, content_type, timeout=timeout)

    def delete(self, path: str, body: Object | None = None, timeout: float = READ_TIMEOUT) -> Object:
        """See :class:`Api`."""
        return self._ask("DELETE", path, body, timeout=timeout)

    def watch(self, path: str, params: Mapping[str, str], stop: threading.Event) -> Iterator[Object]:
        """See :class:`Api`."""
        with _translated():
            watch = self._admin.watch(f"{path}?{urlencode({'watch': '1', **params})}", timeout=_WATCH_SECONDS)
        done = threading.Event()

        def guard() -> None:
            while not done.is_set():
                if stop.wait(_LOOK):
                    watch.close()
                    return

        threading.Thread(target=guard, daemon=True).start()
        try:
            with _translated():
                for event in watch:
                    if event["type"] == "ERROR":
                        raise errors.ApiGone(str(event["object"]))
                    yield event
        finally:
            done.set()

    def _ask(self, method: str, path: str, body: Object | None = None, content_type: str = "application/json", *,
             timeout: float) -> Object:
        with _translated():
            return self._admin.request(method, path, body, content_type, timeout=timeout)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        kind = _KINDS.get(error.status, errors.ApiError)
        raise kind(str(error), status=error.status) from error
    except (OSError, http.client.HTTPException) as error:
        raise errors.ApiUnavailable(str(error)) from error


class FakeKubelet(cluster_kubelet.FakeKubelet):
    """The kubelet of node `name`; `api` must log in as ``system:node:name``."""

    def __init__(
        self, name: str, api: Admin, *, capacity: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None, lease_seconds: float = 10.0,
    ) -> None:
        super().__init__(name, AdminApi(api), capacity=capacity, labels=labels, lease_seconds=lease_seconds)
