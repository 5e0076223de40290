"""One client connection of the fault proxy: read requests, forward, break on demand.

A connection is served by one thread, which alone closes the sockets, because a reset
(`SO_LINGER` 0) is sent only when nobody else still holds the descriptor. Whoever wants
it ended calls `Relay.end`, which wakes the thread wherever it waits.
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from .faults import Break, Fault, Seen, status_answer

if TYPE_CHECKING:
    import ssl

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}
_PIECE = 65536


class Control(Protocol):
    """What a relay asks of its proxy."""

    def arrived(self, seen: Seen) -> Fault | None:
        """Record a request; the fault that is meant for it, if any."""

    def answered(self, seen: Seen, status: int) -> None:
        """Record the status that the client is about to be given."""

    @property
    def delay(self) -> float:
        """Seconds to wait before each request is handled."""


class Ended(Exception):  # noqa: N818  # an ending, not an error
    """The connection is over; reset it rather than close it if `reset`."""

    def __init__(self, *, reset: bool = True) -> None:
        super().__init__()
        self.reset = reset


class Relay:
    """One connection from a client, and the one to the server behind it."""

    def __init__(
        self,
        raw: socket.socket,
        serving: ssl.SSLContext,
        upstream: str,
        upstream_tls: ssl.SSLContext,
        control: Control,
    ) -> None:
        self._raw: socket.socket = raw
        self._serving = serving
        self._upstream_url = urlsplit(upstream)
        self._upstream_tls = upstream_tls
        self._control = control
        self._server: http.client.HTTPSConnection | None = None
        self._wake, self._woken = socket.socketpair()
        self._ending = threading.Event()
        self._silent = threading.Event()
        self._doomed = threading.Event()

    def end(self) -> None:
        """Reset the connection, from any thread."""
        self._ending.set()
        with contextlib.suppress(OSError):
            self._wake.send(b"x")
        server = self._server
        if server is not None and server.sock is not None:
            with contextlib.suppress(OSError):
                # Not SSLSocket.shutdown: it takes the TLS object from under the reader.
                socket.socket.shutdown(server.sock, socket.SHUT_RDWR)

    def end_on_data(self) -> None:
        """Reset the connection once the client has sent something.

        Sooner, some Pythons' TLS would leak a socket on the client's side.
        """
        self._doomed.set()

    def fall_silent(self) -> None:
        """Answer nothing from now on, and keep the connection open."""
        self._silent.set()

    def serve(self) -> None:
        """Serve the connection to its end."""
        reset = True
        try:
            self._readable()
            self._raw.settimeout(10)
            client = self._serving.wrap_socket(self._raw, server_side=True)
            self._raw = client
            client.settimeout(None)
            reader = client.makefile("rb")
            while self._one_request(client, reader):
                pass
        except Ended as end:
            reset = end.reset
        except (OSError, http.client.HTTPException, ValueError):
            return  # either side went away: so does the other
        finally:
            self._close(reset=reset)

    def _one_request(self, client: ssl.SSLSocket, reader: _Reader) -> bool:
        if not client.pending():
            self._readable()
        request = _read_request(reader)
        if request is None:
            raise Ended(reset=False)
        seen, headers = request
        fault = self._control.arrived(seen)
        if self._control.delay:
            self._ending.wait(self._control.delay)
        if fault is None:
            return self._forward(client, seen, headers, None)
        if isinstance(fault.does, int):
            self._control.answered(seen, fault.does)
            client.sendall(status_answer(seen, fault.does, fault.retry_after))
            return True
        if fault.does is Break.RESET:
            raise Ended
        if fault.does is Break.HANG:
            self._silent.set()
            self._hold_if_silent()
        return self._forward(client, seen, headers, fault.does)

    def _forward(
        self, client: ssl.SSLSocket, seen: Seen, headers: list[tuple[str, str]], how: Break | None
    ) -> bool:
        server = self._connected()
        server.putrequest(seen.method, seen.target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            server.putheader(name, value)
        if seen.body or seen.method in ("POST", "PUT", "PATCH"):
            server.putheader("Content-Length", str(len(seen.body)))
        server.endheaders(seen.body or None)
        answer = server.getresponse()
        self._hold_if_silent()
        if how is Break.CUT_AFTER:
            answer.read()
            raise Ended
        self._control.answered(seen, answer.status)
        streams = answer.length is None
        with _Hangup(client, server) if streams else contextlib.nullcontext():
            self._send_answer(client, answer, truncate=how is Break.TRUNCATE)
        # read1 does not mark a body of known length as read: without this, no next request.
        answer.close()
        return not answer.will_close

    def _send_answer(
        self, client: ssl.SSLSocket, answer: http.client.HTTPResponse, *, truncate: bool
    ) -> None:
        chunked = answer.length is None
        head = [f"HTTP/1.1 {answer.status} {answer.reason}"]
        head += [f"{k}: {v}" for k, v in answer.getheaders() if k.lower() not in _HOP_BY_HOP]
        head.append("Transfer-Encoding: chunked" if chunked else f"Content-Length: {answer.length}")
        client.sendall("\r\n".join(head).encode("latin-1") + b"\r\n\r\n")
        while piece := answer.read1(_PIECE):
            self._hold_if_silent()
            framed = b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece
            if truncate:
                client.sendall(framed[: len(framed) // 2])
                raise Ended
            client.sendall(framed)
        if self._ending.is_set():
            raise Ended
        if chunked:
            client.sendall(b"0\r\n\r\n")

    def _connected(self) -> http.client.HTTPSConnection:
        server = self._server
        if server is not None and server.sock is not None and not _closed_by_peer(server.sock):
            return server
        if server is not None:
            server.close()
        host, port = self._upstream_url.hostname or "", self._upstream_url.port
        server = http.client.HTTPSConnection(host, port, context=self._upstream_tls)
        self._server = server
        server.connect()
        server.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server

    def _readable(self) -> None:
        """Wait until the client sends something."""
        self._hold_if_silent()
        ready, _, _ = select.select([self._raw, self._woken], [], [])
        if self._woken in ready or self._ending.is_set() or self._doomed.is_set():
            raise Ended
        self._hold_if_silent()

    def _hold_if_silent(self) -> None:
        if self._silent.is_set():
            self._ending.wait()
            raise Ended
        if self._ending.is_set():
            raise Ended

    def _close(self, *, reset: bool) -> None:
        if self._server is not None:
            self._server.close()
        if reset:
            with contextlib.suppress(OSError):
                linger = struct.pack("ii", 1, 0)
                self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        for one in (self._raw, self._wake, self._woken):
            one.close()


class _Reader(Protocol):
    def readline(self, limit: int = -1, /) -> bytes: ...
    def read(self, size: int = -1, /) -> bytes: ...


class _Hangup:
    """While an answer streams: end the server's side when the client leaves.

    Looks only at the descriptor, since two threads must not share a TLS object.
    """

    def __init__(self, client: ssl.SSLSocket, server: http.client.HTTPSConnection) -> None:
        self._client = client
        self._server = server.sock
        self._over, self._told = socket.socketpair()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.close()
        self._thread.join()
        self._told.close()

    def _watch(self) -> None:
        ready, _, _ = select.select([self._client, self._told], [], [])
        if self._told not in ready:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._server, socket.SHUT_RDWR)


def _closed_by_peer(connection: socket.socket) -> bool:
    """Whether an idle connection has something to read, which can only be its end."""
    return bool(select.select([connection], [], [], 0)[0])


def _read_request(reader: _Reader) -> tuple[Seen, list[tuple[str, str]]] | None:
    line = reader.readline(_PIECE)
    if not line:
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    headers: list[tuple[str, str]] = []
    while (line := reader.readline(_PIECE)) not in (b"\r\n", b"\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name, value.strip()))
    lower = {name.lower(): value for name, value in headers}
    body = _read_body(reader, lower)
    kept = [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP]
    seen = Seen(method, target, lower.get("content-type", ""), body, time.monotonic())
    return seen, kept


def _read_body(reader: _Reader, headers: dict[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", "").lower():
        return _whole(reader, int(headers.get("content-length", "0")))
    pieces = []
    while size := int(reader.readline(_PIECE).split(b";")[0], 16):
        pieces.append(_whole(reader, size))
        reader.readline(_PIECE)
    reader.readline(_PIECE)
    return b"".join(pieces)


def _whole(reader: _Reader, size: int) -> bytes:
    """So many bytes. Ended: the client left before it had sent them, so there is no request to pass on."""
    found = reader.read(size)
    if len(found) < size:
        raise Ended(reset=False)
    return found
