"""The same raw access over a connection that is kept, one a thread, as every real client of the API server keeps it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .admin import Admin, ApiError, Object

if TYPE_CHECKING:
    from collections.abc import Mapping


class KeptAdmin(Admin):
    """An :class:`Admin` for those who ask often. A connection that died while it was idle costs a second try."""

    def __init__(self, like: Admin) -> None:
        self.__dict__.update(like.__dict__)
        self._netloc = urlsplit(self.url).netloc
        self._mine = threading.local()

    def request(self, method: str, path: str, body: object = None, content_type: str = "application/json", *,
                timeout: float = 10.0) -> Object:
        """See :class:`Admin`."""
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers if data is None else {**self._headers, "Content-Type": content_type}
        kept = getattr(self._mine, "connection", None)
        if kept is not None:
            try:
                return self._ask(kept, method, path, data, headers)
            except (http.client.RemoteDisconnected, ConnectionError, BrokenPipeError):
                kept.close()
        self._mine.connection = http.client.HTTPSConnection(self._netloc, timeout=timeout, context=self._tls)
        self._mine.connection.connect()
        self._mine.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._ask(self._mine.connection, method, path, data, headers)

    def _ask(self, connection: http.client.HTTPSConnection, method: str, path: str, data: bytes | None,
             headers: Mapping[str, str]) -> Object:
        try:
            connection.request(method, path, data, dict(headers))
            answer = connection.getresponse()
            text = answer.read()
        except BaseException:
            connection.close()
            self._mine.connection = None
            raise
        found: Object = json.loads(text)
        if answer.status >= 400:
            raise ApiError(answer.status, str(found.get("message", found)))
        return found
