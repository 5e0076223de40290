"""The same raw access over connections that are kept, as every real client of the API server keeps it."""

from __future__ import annotations

import http.client
import json
import socket
from collections import deque
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .admin import Admin, ApiError, Object

if TYPE_CHECKING:
    from collections.abc import Mapping


class KeptAdmin(Admin):
    """An :class:`Admin` for those who ask often, from several threads. Close it at the end.

    A connection that died while it was idle costs a second try.
    """

    def __init__(self, like: Admin) -> None:
        self.__dict__.update(like.__dict__)
        self._netloc = urlsplit(self.url).netloc
        self._idle: deque[http.client.HTTPSConnection] = deque()
        self._closed = False

    def request(self, method: str, path: str, body: object = None, content_type: str = "application/json", *,
                timeout: float = 10.0) -> Object:
        """See :class:`Admin`."""
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers if data is None else {**self._headers, "Content-Type": content_type}
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            try:
                return self._ask(connection, method, path, data, headers)
            except (http.client.RemoteDisconnected, ConnectionError):
                continue
        connection = http.client.HTTPSConnection(self._netloc, timeout=timeout, context=self._tls)
        try:
            connection.connect()
        except OSError:
            connection.close()
            raise
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._ask(connection, method, path, data, headers)

    def close(self) -> None:
        """Close what is idle, and what a late request leaves."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _ask(self, connection: http.client.HTTPSConnection, method: str, path: str, data: bytes | None,
             headers: Mapping[str, str]) -> Object:
        try:
            connection.request(method, path, data, dict(headers))
            answer = connection.getresponse()
            text = answer.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        if self._closed:
            self.close()
        found: Object = json.loads(text)
        if answer.status >= 400:
            raise ApiError(answer.status, str(found.get("message", found)))
        return found
