"""Raw access to an API server with the standard library only.

The tests judge nodeguard's own client, so they must not use it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from .certs import KeyPair

Object = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
_POLL_SECONDS = 0.02
_PIECE = 65536


class ApiError(Exception):
    """The API server answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class Admin:
    """An identity at an API server. One connection per request, nothing is retried."""

    def __init__(
        self,
        url: str,
        ca: Path | None,
        *,
        pair: KeyPair | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._headers = dict(headers or {})
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._tls = ssl.create_default_context(cafile=None if ca is None else str(ca))
        if pair is not None:
            self._tls.load_cert_chain(str(pair.cert), str(pair.key))
        https = urllib.request.HTTPSHandler(context=self._tls)
        # An empty ProxyHandler: no http_proxy of the machine between test and server.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = "application/json",
        *,
        timeout: float = 10.0,
    ) -> Object:
        """One request; the answer's JSON object. Raises `ApiError`, or `OSError` below HTTP."""
        with self._open(method, path, body, content_type, timeout) as answer:
            result: Object = json.load(answer)
        return result

    def text(self, path: str, *, timeout: float = 5.0) -> str:
        """GET something that is no JSON, such as ``/readyz`` or ``/metrics``."""
        with self._open("GET", path, None, "", timeout) as answer:
            return answer.read().decode()

    def get(self, path: str) -> Object:
        """GET an object or a list."""
        return self.request("GET", path)

    def create(self, path: str, body: Object) -> Object:
        """POST `body` to the collection `path`."""
        return self.request("POST", path, body)

    def patch(self, path: str, body: object, content_type: str = MERGE_PATCH) -> Object:
        """PATCH the object at `path`."""
        return self.request("PATCH", path, body, content_type)

    def delete(self, path: str, *, grace: int | None = None, uid: str | None = None) -> None:
        """DELETE the object at `path`; one that is already gone is fine."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            self.request("DELETE", path, options)
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(self, path: str, *, timeout: float = 10.0) -> Watch:
        """A watch (give ``watch=1`` in `path`) that ends when `timeout` passes in silence."""
        return Watch(self.url, path, self._headers, self._tls, timeout)

    def wait_for(
        self,
        path: str,
        until: Callable[[Object], object],
        *,
        seconds: float = 10.0,
        tolerate: Collection[int] = (404,),
    ) -> Object:
        """GET `path` until `until(object)` holds; statuses to `tolerate` count as "not yet"."""
        latest: object = None
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                latest = found = self.get(path)
            except ApiError as error:
                if error.status not in tolerate:
                    raise
                latest = error
            else:
                if until(found):
                    return found
            time.sleep(_POLL_SECONDS)
        raise AssertionError(f"not within {seconds} s: {path}; last: {latest}")

    def wait_gone(self, path: str, *, seconds: float = 10.0) -> None:
        """GET `path` until it is 404."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                self.get(path)
            except ApiError as error:
                if error.status == 404:
                    return
                raise
            time.sleep(_POLL_SECONDS)
        raise AssertionError(f"still there after {seconds} s: {path}")

    def _open(
        self, method: str, path: str, body: object, content_type: str, timeout: float
    ) -> http.client.HTTPResponse:
        data = None if body is None else json.dumps(body).encode()
        headers = dict(self._headers)
        if data is not None:
            headers["Content-Type"] = content_type
        url = self.url + path
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310  # ours
        try:
            answer: http.client.HTTPResponse = self._opener.open(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(error.code, _message(error.read())) from None
        return answer


class Watch:
    """A stream of events to iterate over, once; `close` ends it from any thread.

    A stream that breaks off raises `OSError` or `http.client.IncompleteRead`: a reset
    under TLS reaches Python as a mere end of data.
    """

    def __init__(
        self,
        url: str,
        path: str,
        headers: Mapping[str, str],
        tls: ssl.SSLContext,
        timeout: float,
    ) -> None:
        netloc = urlsplit(url).netloc
        self._connection = http.client.HTTPSConnection(netloc, timeout=timeout, context=tls)
        self._closed = False
        try:
            self._connection.connect()
            # The connection forgets its socket once the answer owns it.
            self._socket: socket.socket = self._connection.sock
            self._connection.request("GET", path, headers=dict(headers))
            self._answer = self._connection.getresponse()
            body = b"" if self._answer.status == 200 else self._answer.read()
        except BaseException:
            self._connection.close()
            raise
        if self._answer.status != 200:
            self._connection.close()
            raise ApiError(self._answer.status, _message(body))

    def __iter__(self) -> Iterator[Object]:
        try:
            rest = b""
            # Not readline: it takes a stream that was cut for one that has ended.
            while piece := self._answer.read1(_PIECE):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    event: Object = json.loads(line)
                    yield event
        except TimeoutError:
            return
        except (OSError, http.client.HTTPException):
            if not self._closed:
                raise
        finally:
            self._connection.close()

    def close(self) -> None:
        """End the stream; whoever iterates sees its end."""
        self._closed = True
        with contextlib.suppress(OSError):
            # Not SSLSocket.shutdown: it takes the TLS object from under the reader.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _message(body: bytes) -> str:
    try:
        status = json.loads(body)
    except ValueError:
        return body.decode(errors="replace")[:500]
    return str(status.get("message", status)) if isinstance(status, dict) else str(status)
