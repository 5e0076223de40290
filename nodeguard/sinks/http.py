"""The status port: /metrics, /healthz and /readyz over plain HTTP, for Prometheus and the kubelet's probes.

Guarantees: a client that connects and says nothing, or reads slowly, never keeps a probe waiting; at most
``MAX_CONNECTIONS`` open connections; :meth:`StatusServer.stop` ends within a second.
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer, TCPServer
from typing import Any, Protocol, Self

from nodeguard.model.errors import UserError

MAX_CONNECTIONS = 16
"""Above it the oldest connection gives way to the newest, so silent clients cannot use the port up."""

CLIENT_TIMEOUT = 2.0
"""Seconds that one read from, or write to, a client may take."""

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PLAIN_TYPE = "text/plain; charset=utf-8"

Check = Callable[[], tuple[bool, str]]
"""Whether all is well, and one plain line that says why (not)."""


class Page(Protocol):
    """What /metrics shows."""

    def render(self) -> bytes:
        """The whole page."""
        ...


class TrackedServer(ThreadingHTTPServer):
    """An HTTP server that knows its connections: it can limit them, and end them all when it stops."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], limit: int) -> None:
        self._limit = limit
        self._open: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without asking DNS for the machine's own name, which HTTPServer does and which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start the connection's thread; with too many open, cut the oldest."""
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), name="http-connection", daemon=True)
        with self._lock:
            oldest = next(iter(self._open)) if len(self._open) >= self._limit else None
            if oldest is not None:
                del self._open[oldest]
            self._open[request] = thread
        if oldest is not None:
            _cut(oldest)
        thread.start()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that is done."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - as socketserver calls it
        """A client that went away is no news; anything else is a defect and goes to the thread's hook."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            raise  # noqa: PLE0704 - socketserver calls this inside its except block

    def finish(self, seconds: float) -> None:
        """End every connection and wait for their threads, for at most ``seconds``. Call it when serving has ended."""
        deadline = time.monotonic() + seconds
        with self._lock:
            left = list(self._open.items())
        for connection, _ in left:
            _cut(connection)
        for _, thread in left:
            thread.join(max(0.0, deadline - time.monotonic()))


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # its own thread closed it first
        return


class StatusServer:
    """Serves the status pages from :meth:`start` to :meth:`stop`; also a context manager.

    Raises :class:`UserError` when it cannot listen. ``alive`` and ``ready`` are called on a
    connection's thread and must only look, never wait: each probe that hangs in one keeps its thread.
    """

    def __init__(self, listen: tuple[str, int], metrics: Page, alive: Check, ready: Check) -> None:
        self._pages: dict[str, Callable[[], tuple[HTTPStatus, str, bytes]]] = {
            "/metrics": lambda: (HTTPStatus.OK, METRICS_TYPE, metrics.render()),
            "/healthz": lambda: _probe(alive),
            "/readyz": lambda: _probe(ready),
        }
        self._server = _listen(listen, self.page)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="status-server", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on, also when 0 was asked for."""
        return int(self._server.server_port)

    def page(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Status, content type and body of a path."""
        make = self._pages.get(path.partition("?")[0])
        if make is None:
            return HTTPStatus.NOT_FOUND, PLAIN_TYPE, b"not found: try /metrics, /healthz or /readyz\n"
        return make()

    def start(self) -> Self:
        """Begin to answer."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop answering, end every connection and free the port."""
        if self._thread.ident is not None:
            self._server.shutdown()
        self._server.server_close()
        self._server.finish(0.5)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _probe(check: Check) -> tuple[HTTPStatus, str, bytes]:
    well, line = check()
    status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
    return status, PLAIN_TYPE, " ".join(line.split()).encode() + b"\n"


def _listen(address: tuple[str, int], page: Callable[[str], tuple[HTTPStatus, str, bytes]]) -> TrackedServer:
    def handler(request: Any, client_address: Any, server: BaseServer) -> _Handler:
        return _Handler(request, client_address, server, page)

    try:
        return TrackedServer(address, handler, MAX_CONNECTIONS)  # type: ignore[arg-type]
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
        raise UserError(
            f"cannot listen on {address[0]}:{address[1]}: {reason}; give another address with --listen") from error


class _Handler(BaseHTTPRequestHandler):
    timeout = CLIENT_TIMEOUT
    server_version = "nodeguard"
    sys_version = ""

    def __init__(self, request: Any, client_address: Any, server: BaseServer,
                 page: Callable[[str], tuple[HTTPStatus, str, bytes]]) -> None:
        self._page = page
        super().__init__(request, client_address, server)

    def do_GET(self) -> None:
        self._answer(*self._page(self.path))

    do_HEAD = do_GET  # noqa: N815 - the name http.server looks up

    def _refuse(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, PLAIN_TYPE, b"only GET and HEAD\n")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse  # noqa: N815 - as above

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the parameter overridden
        """Requests are not logged: a probe every few seconds is no news."""
