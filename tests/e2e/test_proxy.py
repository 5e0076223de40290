"""The fault proxy breaks what it is told to, and nothing else.

Aspects: plain forwarding; statuses; a cut before and after the server; truncation;
refuse, reset and hang; watches, their interruption and their expiry.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.parse import urlsplit

import pytest

from .controlplane.admin import Admin, ApiError, Object
from .controlplane.faults import Break

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .controlplane.cluster import Cluster
    from .controlplane.proxy import FaultProxy

CUT = (OSError, http.client.HTTPException)


@pytest.fixture
def via(control_plane: Cluster, proxy: FaultProxy) -> Admin:
    """An administrator that goes through the proxy, by token."""
    client = Admin(proxy.url, proxy.ca, token=control_plane.admin_token())
    # The binding may be a moment old.
    client.wait_for("/api/v1/nodes", lambda _: True, tolerate={403})
    proxy.forget_requests()
    return client


def _annotate(client: Admin, node: str, value: str, timeout: float = 10.0) -> None:
    body = {"metadata": {"annotations": {"nodeguard.io/test": value}}}
    kind = "application/merge-patch+json"
    client.request("PATCH", f"/api/v1/nodes/{node}", body, kind, timeout=timeout)


def _annotation(client: Admin, node: str) -> str | None:
    annotations = client.get(f"/api/v1/nodes/{node}")["metadata"].get("annotations", {})
    value: str | None = annotations.get("nodeguard.io/test")
    return value


def _follow(client: Admin, node: str, timeout: float = 10.0) -> list[str]:
    """The types of the events of `node` until the stream ends."""
    selector = f"fieldSelector=metadata.name%3D{node}"
    watch = client.watch(f"/api/v1/nodes?watch=1&{selector}", timeout=timeout)
    return [event["type"] for event in watch]


def _telling(events: Iterator[Object], word: str) -> Iterator[Object]:
    """Those of `events` that mention `word`: the node lifecycle controller writes too."""
    return (event for event in events if word in str(event))


def test_requests_pass_and_are_recorded(
    via: Admin, proxy: FaultProxy, admin: Admin, node: str
) -> None:
    """A patch through the proxy arrives, under the token's identity, and is on record."""
    _annotate(via, node, "through")
    assert _annotation(admin, node) == "through"
    (seen,) = proxy.requests("PATCH")
    assert seen.path == f"/api/v1/nodes/{node}"
    assert seen.content_type == "application/merge-patch+json"
    assert b"through" in seen.body
    assert proxy.answers() == [(seen, 200)]


def test_connection_is_kept(control_plane: Cluster, proxy: FaultProxy) -> None:
    """Many requests, an injected status among them, pass over one connection."""
    tls = ssl.create_default_context(cafile=str(proxy.ca))
    connection = http.client.HTTPSConnection(urlsplit(proxy.url).netloc, context=tls)
    headers = {"Authorization": f"Bearer {control_plane.admin_token()}"}
    connection.connect()
    own_port = connection.sock.getsockname()
    proxy.fail_next(status=500, path="/version?2")
    statuses = []
    for number in range(5):
        connection.request("GET", f"/version?{number}", headers=headers)
        with connection.getresponse() as answer:
            answer.read()
            statuses.append(answer.status)
        assert connection.sock.getsockname() == own_port
    connection.close()
    assert statuses == [200, 200, 500, 200, 200]


def test_status_for_matching_requests_only(
    via: Admin, proxy: FaultProxy, admin: Admin, node: str
) -> None:
    """The next two PATCHes get 429; a GET between them does not, nor the third PATCH."""
    proxy.fail_next(status=429, count=2, methods={"PATCH"}, retry_after=1)
    for _ in range(2):
        with pytest.raises(ApiError) as refused:
            _annotate(via, node, "no")
        assert refused.value.status == 429
        via.get(f"/api/v1/nodes/{node}")
    assert _annotation(admin, node) is None
    _annotate(via, node, "third")
    assert _annotation(admin, node) == "third"


def test_reset_before_the_server(via: Admin, proxy: FaultProxy, admin: Admin, node: str) -> None:
    """A request that is reset has not happened."""
    proxy.break_next(Break.RESET, methods={"PATCH"})
    with pytest.raises(CUT):
        _annotate(via, node, "lost")
    assert _annotation(admin, node) is None


def test_cut_after_the_server(via: Admin, proxy: FaultProxy, admin: Admin, node: str) -> None:
    """The client sees a broken connection although the server has done it."""
    proxy.break_next(Break.CUT_AFTER, methods={"PATCH"})
    with pytest.raises(CUT):
        _annotate(via, node, "done")
    assert _annotation(admin, node) == "done"


def test_truncated_answer(via: Admin, proxy: FaultProxy, node: str) -> None:
    """An answer that breaks off in its middle is no answer."""
    proxy.break_next(Break.TRUNCATE, methods={"GET"})
    with pytest.raises(CUT):
        via.get(f"/api/v1/nodes/{node}")
    via.get(f"/api/v1/nodes/{node}")


def test_one_request_hangs(via: Admin, proxy: FaultProxy, admin: Admin, node: str) -> None:
    """A hanging request runs into the client's timeout; the next one passes."""
    proxy.break_next(Break.HANG, methods={"PATCH"})
    with pytest.raises(TimeoutError):
        _annotate(via, node, "never", timeout=0.3)
    _annotate(via, node, "next")
    assert _annotation(admin, node) == "next"


def test_refuse_and_return(via: Admin, proxy: FaultProxy, node: str) -> None:
    """Nothing listens while refused; the address is the same after."""
    for _ in range(3):
        proxy.mode = "refuse"
        with pytest.raises(URLError, match="refused"):
            _annotate(via, node, "x")
        proxy.mode = "ok"
        _annotate(via, node, "y")


def test_reset_mode(via: Admin, proxy: FaultProxy, node: str) -> None:
    """Connections are accepted and reset."""
    proxy.mode = "reset"
    with pytest.raises(CUT):
        _annotate(via, node, "x")
    proxy.heal()
    _annotate(via, node, "y")


def test_hang_mode(via: Admin, proxy: FaultProxy, node: str) -> None:
    """Connections are accepted and never answered; those made after it are."""
    proxy.mode = "hang"
    began = time.monotonic()
    with pytest.raises(OSError, match="timed out"):
        _annotate(via, node, "x", timeout=0.3)
    assert time.monotonic() - began >= 0.3
    proxy.heal()
    _annotate(via, node, "y")


def test_watch_streams_and_is_reset(
    via: Admin, proxy: FaultProxy, admin: Admin, node: str
) -> None:
    """A watch through the proxy tells of a change at once, and breaks when reset."""
    selector = f"fieldSelector=metadata.name%3D{node}"
    watch = via.watch(f"/api/v1/nodes?watch=1&{selector}")
    events = iter(watch)
    assert next(events)["type"] == "ADDED"
    _annotate(admin, node, "change")
    assert next(_telling(events, "change"))["type"] == "MODIFIED"
    proxy.reset_connections()
    with pytest.raises(CUT):
        list(events)


def test_watch_falls_silent(via: Admin, proxy: FaultProxy, admin: Admin, node: str) -> None:
    """A half-open watch tells of nothing, and not of what happened meanwhile either."""
    selector = f"fieldSelector=metadata.name%3D{node}"
    events = iter(via.watch(f"/api/v1/nodes?watch=1&{selector}", timeout=0.5))
    assert next(events)["type"] == "ADDED"
    proxy.mode = "hang"
    _annotate(admin, node, "unseen")
    assert "unseen" not in str(list(events))


def test_expired_watch(via: Admin, proxy: FaultProxy, node: str) -> None:
    """410 on a watch is a stream with one ERROR event, as the API server sends it."""
    proxy.fail_next(status=410, watches=True)
    assert _follow(via, node) == ["ERROR"]


def test_client_that_leaves_ends_its_watch(via: Admin, proxy: FaultProxy, node: str) -> None:
    """A watch whose client went is not kept open at the server."""
    before = threading.active_count()
    events = iter(via.watch(f"/api/v1/nodes?watch=1&fieldSelector=metadata.name%3D{node}"))
    next(events)
    assert threading.active_count() > before
    events.close()  # type: ignore[attr-defined]  # a generator
    end = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < end:
        threading.Event().wait(0.02)
    assert threading.active_count() <= before


def test_delay(via: Admin, proxy: FaultProxy, node: str) -> None:
    """Every request takes the added time."""
    proxy.delay = 0.2
    began = time.monotonic()
    via.get(f"/api/v1/nodes/{node}")
    assert time.monotonic() - began >= 0.2


def test_a_request_that_its_client_did_not_finish_is_none(
    via: Admin, proxy: FaultProxy, node: str
) -> None:
    """A client killed between header and body has asked for nothing: the server is not told, nothing is on record."""
    where = urlsplit(proxy.url)
    context = ssl.create_default_context(cafile=str(proxy.ca))
    client = http.client.HTTPSConnection(str(where.hostname), where.port, context=context)
    client.putrequest("PATCH", f"/api/v1/nodes/{node}")
    client.putheader("Content-Length", "1000")
    client.endheaders(b'{"metadata":')
    client.sock.shutdown(socket.SHUT_WR)
    while client.sock.recv(4096):  # until the proxy has hung up
        continue
    client.close()
    _annotate(via, node, "whole")
    assert [b"whole" in seen.body for seen in proxy.requests("PATCH")] == [True]
