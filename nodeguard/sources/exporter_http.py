"""One page over HTTP, with a deadline and a limit on its size; ``http.client``, so no proxy and no cookie."""

import socket
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import SplitResult, urljoin, urlsplit

from nodeguard.model.errors import SourceError

MAX_BYTES = 8 << 20
"""Bytes of one page; 8 GPUs with 60 metrics have 141 kB."""

_ACCEPT = "text/plain;version=0.0.4;q=1,*/*;q=0.1"
_REDIRECTS = (301, 302, 303, 307, 308)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_CHUNK = 64 << 10


@dataclass(slots=True)
class Endpoint:
    """Where one exporter serves its page."""

    url: str
    _parts: SplitResult = field(init=False)

    def __post_init__(self) -> None:
        self._parts = urlsplit(self.url)

    def fetch(self, deadline: float) -> str:
        """The page, within ``deadline`` seconds. SourceError with one sentence when there is none.

        A redirect is followed once, and only on the same host and port: what a page elsewhere says is about
        another machine.
        """
        end = time.monotonic() + deadline
        try:
            status, body, location = _get(self._parts, end)
            if status in _REDIRECTS:
                status, body, _ = _get(self._redirected(location), end)
        except TimeoutError as error:
            raise SourceError(f"{self.url} did not answer within {deadline:g} s") from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise SourceError(f"{self.url} cannot be read: {reason}") from error
        if status != 200:
            raise SourceError(f"{self.url} answered with status {status}")
        return body.decode("utf-8", errors="replace")

    def _redirected(self, location: str) -> SplitResult:
        target = urlsplit(urljoin(self.url, location))
        if (target.scheme, target.netloc) != (self._parts.scheme, self._parts.netloc):
            raise SourceError(f"{self.url} sends elsewhere, to {target.netloc or location}, which is not followed")
        return target


def _get(parts: SplitResult, end: float) -> tuple[int, bytes, str]:
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 80)
    connection = kind(parts.hostname or "", port, timeout=_left(end))
    try:
        connection.connect()
        wire: socket.socket = connection.sock
        wire.settimeout(_left(end))
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers={"Accept": _ACCEPT, "Connection": "close"})
        with connection.getresponse() as response:
            return response.status, _body(response, wire, end), response.headers.get("Location", "")
    finally:
        connection.close()


def _body(response: HTTPResponse, wire: socket.socket, end: float) -> bytes:
    if response.status != 200:
        return b""
    chunks: list[bytes] = []
    size = 0
    while chunk := response.read1(_CHUNK):
        size += len(chunk)
        if size > MAX_BYTES:
            raise SourceError(f"the page is larger than {MAX_BYTES >> 20} MiB")
        chunks.append(chunk)
        left = _left(end)
        if wire.fileno() >= 0:  # the last chunk closes it
            wire.settimeout(left)
    return b"".join(chunks)


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
