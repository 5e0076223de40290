"""The HTTP client against servers on loopback: what it sends, and what it makes of answers."""

import json
import os
import socket
import subprocess  # noqa: TID251 (a fresh interpreter shows what an import loads)
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pytest

from nodeguard import __version__
from nodeguard.kube.api import MERGE_PATCH, STRATEGIC_PATCH
from nodeguard.kube.client import KubeClient, connect
from nodeguard.model.errors import (
    ApiConflict,
    ApiError,
    ApiGone,
    ApiNotFound,
    ApiRefused,
    ApiUnavailable,
    UserError,
)

NODE = "/api/v1/nodes/n1"
HEAD_OF_STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Script:
    """A server that answers each request, over all connections, with the next of ``answers``: bytes, or None to hang.

    An answer that is empty closes the connection without a word. ``seen`` are the requests' heads.
    """

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.seen: list[str] = []
        self.done = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Cut every connection and end every thread."""
        if self.done.is_set():
            return
        self.done.set()
        for end in (self._listener, *self._connections):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    @property
    def connections(self) -> int:
        """How many were opened."""
        return len(self._connections)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as stream:
            while request := self._request(stream):
                self.seen.append(request)
                answer = self.answers.pop(0) if self.answers else OK
                if answer == b"":
                    return
                connection.sendall(answer or b"")
                if answer is None or answer.startswith(HEAD_OF_STREAM):
                    self.done.wait(10)

    @staticmethod
    def _request(stream: BinaryIO) -> str:
        lines = list(iter(stream.readline, b"\r\n")) if stream.peek(1) else []  # type: ignore[attr-defined]
        lengths = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length")]
        return (b"".join(lines) + stream.read(sum(lengths))).decode()


@pytest.fixture
def serve() -> Iterator[Callable[..., Script]]:
    """Start scripted servers that end with the test."""
    started: list[Script] = []

    def start(*answers: bytes | None) -> Script:
        started.append(Script(*answers))
        return started[-1]

    yield start
    for one in started:
        one.close()


def kubeconfig(folder: Path, server: str) -> Path:
    """A kubeconfig with a token."""
    path = folder / "kubeconfig"
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "secret"}}]}))
    return path


def answer(status: int, reason: str = "Reason", headers: str = "", **body: object) -> bytes:
    """A whole HTTP answer with a JSON body."""
    text = json.dumps(body)
    return (f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\n{headers}"
            f"Content-Length: {len(text)}\r\n\r\n{text}").encode()


def stream(*lines: str) -> bytes:
    """The beginning of a chunked answer that never ends."""
    chunks = "".join(f"{len(line):x}\r\n{line}\r\n" for line in lines)
    return HEAD_OF_STREAM + chunks.encode()


def test_sends_method_path_type_token_and_body(tmp_path: Path, serve: Callable[..., Script]) -> None:
    """Each request carries the Authorization header, the exact content type and who asks."""
    server = serve()
    client = KubeClient.from_kubeconfig(kubeconfig(tmp_path, server.url))
    client.patch(NODE + "/status", {"status": {}}, STRATEGIC_PATCH)
    client.patch(NODE, {"spec": {"taints": None}}, MERGE_PATCH)
    client.post("/api/v1/namespaces/default/events", {"a": "b"})
    client.put(NODE, {"a": "b"})
    client.delete(NODE, {"kind": "DeleteOptions"})
    client.get("/api/v1/nodes", {"labelSelector": "a=b,c"})
    heads = [head.splitlines() for head in server.seen]
    assert [lines[0] for lines in heads] == [
        f"PATCH {NODE}/status HTTP/1.1", f"PATCH {NODE} HTTP/1.1", "POST /api/v1/namespaces/default/events HTTP/1.1",
        f"PUT {NODE} HTTP/1.1", f"DELETE {NODE} HTTP/1.1", "GET /api/v1/nodes?labelSelector=a%3Db%2Cc HTTP/1.1"]
    for lines in heads:
        low = [line.lower() for line in lines]
        assert "authorization: bearer secret" in low
        assert f"user-agent: nodeguard/{__version__}" in low
    assert "content-type: application/strategic-merge-patch+json" in [line.lower() for line in heads[0]]
    assert "content-type: application/merge-patch+json" in [line.lower() for line in heads[1]]
    assert heads[1][-1] == '{"spec": {"taints": null}}'
    assert server.connections == 1


@pytest.mark.parametrize(("status", "kind"), [
    (401, ApiRefused), (403, ApiRefused), (404, ApiNotFound), (409, ApiConflict), (410, ApiGone), (422, ApiRefused),
    (429, ApiUnavailable), (500, ApiUnavailable), (503, ApiUnavailable),
])
def test_failures_are_translated_once(
    tmp_path: Path, serve: Callable[..., Script], status: int, kind: type[ApiError]
) -> None:
    """Each status becomes one of our errors, with the server's sentence and its wish to wait, and is not repeated."""
    server = serve(answer(status, headers="Retry-After: 7\r\n", message="so it is"))
    client = KubeClient.from_kubeconfig(kubeconfig(tmp_path, server.url))
    with pytest.raises(kind, match="so it is") as caught:
        client.get(NODE)
    assert (type(caught.value), caught.value.status, caught.value.retry_after) == (kind, status, 7.0)
    assert len(server.seen) == 1


def test_no_server_is_unavailable(tmp_path: Path, serve: Callable[..., Script]) -> None:
    """A refused connection fails at once."""
    server = serve()
    server.close()
    client = KubeClient.from_kubeconfig(kubeconfig(tmp_path, server.url))
    began = time.monotonic()
    with pytest.raises(ApiUnavailable, match="no answer"):
        client.get(NODE)
    assert time.monotonic() - began < 1


def test_silent_server_is_unavailable_after_the_timeout(tmp_path: Path, serve: Callable[..., Script]) -> None:
    """A half-open connection costs the timeout, not for ever."""
    client = KubeClient.from_kubeconfig(kubeconfig(tmp_path, serve(None).url))
    with pytest.raises(ApiUnavailable):
        client.get(NODE, timeout=0.2)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff"])
def test_answer_that_is_no_object_is_unavailable(tmp_path: Path, serve: Callable[..., Script], body: bytes) -> None:
    """A login page in place of an API server is said so."""
    server = serve(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    with pytest.raises(ApiUnavailable, match="is it an API server"):
        KubeClient.from_kubeconfig(kubeconfig(tmp_path, server.url)).get(NODE)


def test_connection_that_died_idle_costs_no_error(tmp_path: Path, serve: Callable[..., Script]) -> None:
    """A kept connection that the server closed is replaced silently, once, for requests that may be repeated."""
    server = serve(OK, b"", OK, b"", OK, b"", b"", b"")
    client = KubeClient.from_kubeconfig(kubeconfig(tmp_path, server.url))
    client.get(NODE)
    client.get(NODE)
    client.patch(NODE, {}, MERGE_PATCH)
    with pytest.raises(ApiUnavailable):
        client.get(NODE)
    with pytest.raises(ApiUnavailable):
        client.post(NODE, {})
    assert len(server.seen) == 8


def test_watch_tells_lines_however_they_are_cut(tmp_path: Path, serve: Callable[..., Script]) -> None:
    """Events arrive as they come; 410 inside the stream is ApiGone."""
    server = serve(stream('{"type":"ADDED","obj', 'ect":{"a":1}}\n{"type":"BOOKMARK","object":{}}\n',
                          '{"type":"ERROR","object":{"code":410}}\n'))
    client = KubeClient.from_kubeconfig(kubeconfig(tmp_path, server.url))
    events = client.watch("/api/v1/nodes", {"resourceVersion": "7"}, threading.Event())
    assert next(events) == {"type": "ADDED", "object": {"a": 1}}
    assert next(events)["type"] == "BOOKMARK"
    with pytest.raises(ApiGone):
        next(events)
    assert "watch=true&allowWatchBookmarks=true&resourceVersion=7" in server.seen[0]


def test_watch_ends_soon_after_stop_though_nothing_arrives(tmp_path: Path, serve: Callable[..., Script]) -> None:
    """A read that blocks is ended from another thread, without an error."""
    server = serve(stream('{"type":"ADDED","object":{}}\n'))
    client = KubeClient.from_kubeconfig(kubeconfig(tmp_path, server.url))
    stop, first = threading.Event(), threading.Event()

    def follow() -> None:
        for _ in client.watch("/api/v1/nodes", {}, stop):
            first.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert first.wait(5)
    stop.set()
    thread.join(2)
    assert not thread.is_alive()


def test_watch_cut_by_the_server_is_an_error(tmp_path: Path, serve: Callable[..., Script]) -> None:
    """A stream that breaks off is unavailable, not a silent end."""
    server = serve(stream('{"type":"ADDED","object":{}}\n'))
    client = KubeClient.from_kubeconfig(kubeconfig(tmp_path, server.url))
    events = client.watch("/api/v1/nodes", {}, threading.Event())
    next(events)
    server.close()
    with pytest.raises(ApiUnavailable):
        next(events)


@pytest.mark.parametrize(("text", "why"), [
    ("", "is empty"), ("[]", "not a usable"), ("{", "not a usable"), ("a: b", "current-context"),
    ("{current-context: c, contexts: [{name: c, context: {cluster: x}}], clusters: [], users: []}", "x"),
    ("{current-context: c, contexts: [{name: c, context: {cluster: x}}], clusters: [{name: x, cluster: {a: b}}]}",
     "no server"),
    ("{current-context: c, contexts: [{name: c, context: {cluster: x}}], "  # noqa: ISC004 (one long text)
     "clusters: [{name: x, cluster: {server: 'https://h', certificate-authority: /missing}}]}", "/missing"),
])
def test_bad_kubeconfig_is_one_sentence(tmp_path: Path, text: str, why: str) -> None:
    """Whatever is wrong in the file, the user reads which file and why, on one line."""
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(UserError, match=why) as caught:
        KubeClient.from_kubeconfig(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_kubeconfig_and_no_pod(tmp_path: Path) -> None:
    """Neither a file nor a service account is a user's mistake, said plainly."""
    with pytest.raises(UserError, match="No such file"):
        connect(tmp_path / "missing")
    with pytest.raises(UserError, match="not in a pod"):
        KubeClient.in_cluster(tmp_path, {})
    with pytest.raises(UserError, match=r"ca\.crt"):
        KubeClient.in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"})


def test_import_stays_small() -> None:
    """No typed model, no API class and no optional library is loaded: they would cost 25 MB and more."""
    check = ("import sys, nodeguard.kube.client as c; from pathlib import Path; "
             "bad = [n for n in sys.modules if n.startswith(('kubernetes.client.models.', 'aiohttp', 'rich')) "
             "or n.endswith('core_v1_api')]; print(bad)")
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=15,
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])})
    assert done.stdout.strip() == "[]"
