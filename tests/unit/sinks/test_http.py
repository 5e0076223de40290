"""The status port answers probes whatever its clients do, and stops at once."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest

from nodeguard.model.errors import UserError
from nodeguard.sinks.http import CLIENT_TIMEOUT, MAX_CONNECTIONS, StatusServer


class Page:
    """A metrics page."""

    def render(self) -> bytes:
        return b"up 1\n"


def server_for(alive: tuple[bool, str] = (True, "ok"), ready: tuple[bool, str] = (True, "ok")) -> StatusServer:
    return StatusServer(("127.0.0.1", 0), Page(), lambda: alive, lambda: ready)


@pytest.fixture
def server() -> Iterator[StatusServer]:
    """Alive but not ready."""
    with server_for(ready=(False, "kmsg: not\ncaught up")) as running:
        yield running


def ask(server: StatusServer, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize(("path", "method", "status", "body"), [
    ("/metrics", "GET", 200, b"up 1\n"),
    ("/healthz", "GET", 200, b"ok\n"),
    ("/readyz?verbose", "GET", 503, b"kmsg: not caught up\n"),
    ("/healthz", "HEAD", 200, b""),
    ("/healthz", "POST", 405, b"only GET and HEAD\n"),
    ("/", "GET", 404, b"not found: try /metrics, /healthz or /readyz\n"),
])
def test_pages(server: StatusServer, path: str, method: str, status: int, body: bytes) -> None:
    """Each path has its page; a probe is 200 or 503 with one plain line; only GET and HEAD are served."""
    assert ask(server, path, method) == (status, body)


def test_the_page_has_prometheus_content_type(server: StatusServer) -> None:
    """Prometheus 3 refuses a page whose type it does not know."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request("GET", "/metrics")
    assert connection.getresponse().headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    connection.close()


def test_silent_clients_do_not_delay_a_probe(server: StatusServer) -> None:
    """More clients than there are places connect and say nothing: liveness is still answered at once."""
    address = ("127.0.0.1", server.port)
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(address)) for _ in range(2 * MAX_CONNECTIONS)]
        begin = time.monotonic()
        assert ask(server, "/healthz")[0] == 200
        assert time.monotonic() - begin < CLIENT_TIMEOUT / 2
        for oldest in silent[:MAX_CONNECTIONS]:  # gave way to a newer one, long before the client timeout
            oldest.settimeout(CLIENT_TIMEOUT / 2)
            assert oldest.recv(1) == b""
        silent[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            silent[-1].recv(1)


def test_stop_is_quick_and_leaves_no_thread() -> None:
    """With a silent client connected, everything ends within a second and the port is free."""
    before = set(threading.enumerate())
    server = server_for().start()
    with socket.create_connection(("127.0.0.1", server.port)) as silent:
        ask(server, "/healthz")
        begin = time.monotonic()
        server.stop()
        assert time.monotonic() - begin < 1.0
        assert silent.recv(1) == b""
    for thread in set(threading.enumerate()) - before:
        thread.join(1.0)  # it was told to end and may be at its last line
    assert set(threading.enumerate()) == before
    with StatusServer(("127.0.0.1", server.port), Page(), lambda: (True, ""), lambda: (True, "")) as second:
        assert second.port == server.port


def test_a_hung_check_does_not_hold_up_the_stop() -> None:
    """A readiness check that does not return keeps neither liveness nor the end waiting."""
    release, entered = threading.Event(), threading.Event()

    def hung() -> tuple[bool, str]:
        entered.set()
        release.wait(10)
        return True, "ok"

    server = StatusServer(("127.0.0.1", 0), Page(), lambda: (True, "ok"), hung).start()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert entered.wait(5)
        assert ask(server, "/healthz")[0] == 200
        begin = time.monotonic()
        server.stop()
        assert time.monotonic() - begin < 1.0
        release.set()


def test_a_port_in_use_is_a_sentence(server: StatusServer) -> None:
    """Who starts a second agent is told which address, why, and what to do."""
    with pytest.raises(UserError, match=rf"cannot listen on 127\.0\.0\.1:{server.port}: address already in use; give"):
        StatusServer(("127.0.0.1", server.port), Page(), lambda: (True, ""), lambda: (True, ""))


def test_a_server_never_started_can_be_stopped() -> None:
    """A start that failed half way cleans up without a special case."""
    server_for().stop()
