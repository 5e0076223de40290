"""Kubelet and container runtime: who answers, who does not, and who was never there."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from nodeguard.model.sample import Value
from nodeguard.sources.host_kubelet import Endpoint, KubeletPoll, endpoint_of, kubelet_state, runtime_state
from nodeguard.sources.host_netns import host_network

SETTINGS = bytes((0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 5, 0, 0, 64, 0))


@contextmanager
def kubelet(status: int) -> Iterator[Endpoint]:
    """A health endpoint that answers with this status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the base class calls it so
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Endpoint("127.0.0.1", server.server_port, "/healthz")
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def runtime(path: Path, says: bytes | None) -> Iterator[None]:
    """Whoever listens there and says this to everybody; None: it hangs, and the kernel takes the calls for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()
        if says is None:
            yield
            return
        thread = threading.Thread(target=_speak, args=(server, says))
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _speak(server: socket.socket, says: bytes) -> None:
    while True:
        try:
            caller, _ = server.accept()
        except OSError:
            return
        with caller:
            caller.sendall(says)
            caller.recv(64)


@pytest.mark.parametrize(("status", "state"), [(200, "ok"), (500, "failing"), (404, "failing")])
def test_a_kubelet_that_answers(status: int, state: str) -> None:
    """Well, or not."""
    with kubelet(status) as endpoint:
        assert kubelet_state(endpoint) == state


def test_a_kubelet_that_does_not_answer() -> None:
    """Nobody listens, or whoever listens says nothing, or something else than HTTP."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        assert kubelet_state(Endpoint("127.0.0.1", nobody.getsockname()[1], "/")) == "silent"
        nobody.listen()
        assert kubelet_state(Endpoint("127.0.0.1", nobody.getsockname()[1], "/"), timeout=0.01) == "silent"


@pytest.mark.parametrize(("says", "state"), [
    (SETTINGS, "ok"), (SETTINGS[:9], "ok"), (None, "silent"), (b"", "silent"), (b"HTTP/1.1 400", "silent"),
    (SETTINGS[:5], "silent")])
def test_a_runtime_is_there_when_it_speaks_first(tmp_path: Path, says: bytes | None, state: str) -> None:
    """To be let in is not enough: a hung server's calls are taken by the kernel."""
    with runtime(tmp_path / "r.sock", says):
        assert runtime_state(tmp_path / "r.sock", timeout=0.05 if says is None else 5) == state


def test_a_runtime_that_is_not_there(tmp_path: Path) -> None:
    """No socket, a socket of nobody, a name that is too long for one."""
    with runtime(tmp_path / "old.sock", None):
        pass
    for path in (tmp_path / "none", tmp_path / "old.sock", tmp_path / ("x" * 120)):
        assert runtime_state(path) == "silent"


def states(poll: KubeletPoll) -> list[Value | None]:
    return [one.value for one in poll.poll(0).samples]


def test_what_is_not_asked_and_what_was_never_there_is_unknown(tmp_path: Path) -> None:
    """The first socket that is there is the runtime's from then on; without it, it is silent."""
    poll = KubeletPoll(tmp_path, None, ("/run/a.sock", "/run/b.sock"))
    assert states(poll) == [None, None]
    with runtime(tmp_path / "1/root/run/b.sock", SETTINGS):
        assert states(poll) == [None, "ok"]
    (tmp_path / "1/root/run/b.sock").unlink()
    assert states(poll) == [None, "silent"]


def test_both_are_asked(tmp_path: Path) -> None:
    """In one poll."""
    with kubelet(200) as endpoint, runtime(tmp_path / "1/root/run/a.sock", SETTINGS):
        assert states(KubeletPoll(tmp_path, endpoint, ("/run/a.sock",))) == ["ok", "ok"]


@pytest.mark.parametrize(("url", "endpoint"), [
    ("", None), ("http://127.0.0.1:10248/healthz", Endpoint("127.0.0.1", 10248, "/healthz")),
    ("http://[::1]", Endpoint("::1", 80, "/"))])
def test_an_address_in_parts(url: str, endpoint: Endpoint | None) -> None:
    """As the settings have it."""
    assert endpoint_of(url) == endpoint


def test_the_network_of_the_host_that_cannot_be_entered_is_left_alone(tmp_path: Path) -> None:
    """Not there, not a namespace, or the same one."""
    (tmp_path / "1/ns").mkdir(parents=True)
    own = Path("/proc/thread-self/ns/net").readlink()
    for root in (tmp_path / "none", tmp_path, Path("/proc")):
        with host_network(root):
            assert Path("/proc/thread-self/ns/net").readlink()
        (tmp_path / "1/ns/net").touch()
    assert Path("/proc/thread-self/ns/net").readlink() == own
