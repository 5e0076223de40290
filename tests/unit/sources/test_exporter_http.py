"""One page over HTTP on loopback: a deadline, a limit, no way to another machine."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from nodeguard.config.mappings import shipped_mapping
from nodeguard.model.errors import SourceError
from nodeguard.model.sample import Missed, SourceState
from nodeguard.sources.exporter import ExporterPages, ExporterPoll
from nodeguard.sources.exporter_http import MAX_BYTES, Endpoint

Answer = Callable[[BaseHTTPRequestHandler], None]


def text(body: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
    return answer


@contextmanager
def serving(answers: dict[str, Answer]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers[self.path](self)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def refusal(url: str, deadline: float = 5.0) -> str:
    with pytest.raises(SourceError) as caught:
        Endpoint(url).fetch(deadline)
    return str(caught.value)


def test_a_page() -> None:
    """As text, whatever its bytes; path and query as given."""
    with serving({"/m?a=1": text("Wärme 1\n".encode() + b"\xff\n")}) as url:
        assert Endpoint(f"{url}/m?a=1").fetch(5.0) == "Wärme 1\n\ufffd\n"


def test_a_redirect_is_followed_at_home_only() -> None:
    """Once, and on the same host and port."""
    with serving({"/": text(b"", 302, Location="/metrics"), "/metrics": text(b"x 1\n"),
                  "/away": text(b"", 301, Location="http://127.0.0.2:9/metrics"),
                  "/twice": text(b"", 302, Location="/")}) as url:
        assert Endpoint(url).fetch(5.0) == "x 1\n"
        assert refusal(f"{url}/away") == f"{url}/away sends elsewhere, to 127.0.0.2:9, which is not followed"
        assert refusal(f"{url}/twice") == f"{url}/twice answered with status 302"


def test_another_status_is_no_page() -> None:
    """Its body is not read."""
    with serving({"/": text(b"x 1\n", 503)}) as url:
        assert refusal(url) == f"{url} answered with status 503"


def test_a_page_has_a_limit() -> None:
    """It is not read to its end."""
    with serving({"/": text(b"x" * (MAX_BYTES + 1))}) as url:
        assert refusal(url) == "the page is larger than 8 MiB"


def test_c24b_an_endpoint_that_takes_the_call_and_says_nothing() -> None:
    """After the deadline it is unreachable."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/metrics"
        assert refusal(url, 0.1) == f"{url} did not answer within 0.1 s"


def test_an_endpoint_that_answers_drop_by_drop() -> None:
    """The deadline is for the whole page, not for each piece of it."""
    release = threading.Event()

    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while not release.wait(0.02):
            try:
                request.wfile.write(b"x")
            except OSError:
                return

    with serving({"/": drip}) as url:
        assert refusal(url, 0.2) == f"{url} did not answer within 0.2 s"
        release.set()


def test_nobody_there() -> None:
    """The system's own words."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    assert refusal(f"http://127.0.0.1:{port}/") == f"http://127.0.0.1:{port}/ cannot be read: Connection refused"


def test_what_is_no_http() -> None:
    """A SourceError as any other."""
    with socket.create_server(("127.0.0.1", 0)) as odd:
        url = f"http://127.0.0.1:{odd.getsockname()[1]}/"

        def answer() -> None:
            connection, _ = odd.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"SSH-2.0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert refusal(url).startswith(f"{url} cannot be read: ")
        thread.join()


def test_the_poll_reads_pages_and_tells_when_there_is_none() -> None:
    """Every ten seconds; a failure is a blind source, never an error."""
    with serving({"/": text(b'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 50\n')}) as url:
        poll = ExporterPoll(ExporterPages("mine", shipped_mapping("dcgm")), url)
        assert (poll.name, poll.period) == ("exporter/mine", 10.0)
        assert {sample.device for sample in poll.poll(0.0).samples} == {"gpu/GPU-a"}
    facts = poll.poll(10.0).facts
    assert facts == (SourceState(up=False, reason=f"{url} cannot be read: Connection refused"), Missed())
