"""HTTP for the embedded API server: one thread a connection, JSON in and out, watches as chunked streams."""

import json
import select
import socket
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlsplit

from nodeguard.sim.apiserver.api import Answer, Call
from nodeguard.sim.apiserver.errors import Refusal
from nodeguard.sim.apiserver.faults import CutOff
from nodeguard.sim.apiserver.watching import Event


class Request(NamedTuple):
    """One request that was answered. ``path`` includes the query, ``at`` is time.monotonic() of the answer."""

    method: str
    path: str
    content_type: str
    status: int
    at: float


class Backend(Protocol):
    """What the handler needs of the server."""

    def admit(self, call: Call, authorization: str) -> None:
        """Wait while paused; raise what the request is to be refused with."""
        ...

    def answer(self, call: Call) -> Answer:
        """Carry out a call that is no watch."""
        ...

    def watch(self, call: Call) -> Iterator[Event | None]:
        """Begin a watch."""
        ...

    def record(self, request: Request) -> None:
        """Remember a request."""
        ...


class Handler(BaseHTTPRequestHandler):
    """One connection. Subclassed with ``backend`` set."""

    backend: Backend
    protocol_version = "HTTP/1.1"
    server_version = "nodeguard-sim"
    sys_version = ""
    disable_nagle_algorithm = True
    timeout = 300

    def do_GET(self) -> None:
        """Answer a request of any method."""
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content_type = (self.headers.get("Content-Type") or "application/json").partition(";")[0].strip()
        call = Call(self.command, url.path, query, content_type, body)
        try:
            self.backend.admit(call, self.headers.get("Authorization") or "")
            if call.method == "GET" and query.get("watch") in {"true", "True", "1"}:
                self._stream(self.backend.watch(call))
            else:
                self._send(self.backend.answer(call))
        except Refusal as refusal:
            self._send(Answer(refusal.status, refusal.body()), refusal.retry_after)
        except CutOff:
            self._note(0)
            self.close_connection = True

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - http.server's names

    def _send(self, answer: Answer, retry_after: int | None = None) -> None:
        body = json.dumps(answer.body, separators=(",", ":")).encode()
        self._note(answer.status)
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if retry_after is not None:
            self.send_header("Retry-After", str(retry_after))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: Iterator[Event | None]) -> None:
        self._note(200)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            if event is not None:
                self._chunk(event)
            elif self._client_gone():
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, event: Mapping[str, Any]) -> None:
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def _client_gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _note(self, status: int) -> None:
        content_type = self.headers.get("Content-Type") or ""
        self.backend.record(Request(self.command, self.path, content_type, status, time.monotonic()))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the parameter overridden
        """Requests are recorded, not printed."""
