"""What a test can do to the embedded API server, what it can see of it, and that nothing of it stays."""

import json
import threading
import time
from http.client import HTTPConnection, RemoteDisconnected
from pathlib import Path

import pytest

from nodeguard.sim.apiserver import EmbeddedApiServer

from .client import MERGE, NODE, STATUS, STRATEGIC, Client


def test_injected_failures_meet_the_next_fitting_requests(server: EmbeddedApiServer, call: Client) -> None:
    """fail_next answers as many fitting requests as told, with Retry-After, and no other."""
    server.fail_next(method="PATCH", path_prefix=NODE, status=429, retry_after=3, count=2)
    assert call("GET", NODE)[0] == 200
    connection, response = call.open("PATCH", NODE, {}, MERGE)
    assert (response.status, response.headers["Retry-After"]) == (429, "3")
    connection.close()
    assert call("PATCH", NODE, {}, MERGE)[1]["reason"] == "TooManyRequests"
    assert call("PATCH", NODE, {}, MERGE)[0] == 200
    server.fail_next(status=0)
    with pytest.raises((RemoteDisconnected, ConnectionResetError)):
        call("GET", NODE)


def test_a_paused_server_refuses_and_comes_back(server: EmbeddedApiServer, call: Client) -> None:
    """pause() closes the port; after resume() the objects are there, at the same address."""
    server.pause()
    with pytest.raises(ConnectionRefusedError):
        call("GET", NODE)
    server.resume()
    assert call("GET", NODE)[0] == 200


def test_a_hanging_server_answers_after_it_resumes(server: EmbeddedApiServer, call: Client) -> None:
    """pause("hang") takes the request and answers nothing until resume()."""
    answers: list[int] = []
    server.pause("hang")
    thread = threading.Thread(target=lambda: answers.append(call("GET", NODE)[0]))
    thread.start()
    thread.join(0.1)
    assert answers == []
    server.resume()
    thread.join(5)
    assert answers == [200]


def test_requests_are_recorded(server: EmbeddedApiServer, call: Client) -> None:
    """Method, path, content type and status of each request, in order."""
    call("GET", NODE)
    call("PATCH", STATUS, {}, STRATEGIC)
    told = [(seen.method, seen.path.partition("?")[0], seen.content_type, seen.status) for seen in server.requests]
    assert told == [("GET", NODE, "application/json", 200), ("PATCH", STATUS, STRATEGIC, 200)]
    assert server.requests[0].at <= server.requests[1].at <= time.monotonic()


def test_the_kubeconfig_names_server_and_token(server: EmbeddedApiServer, tmp_path: Path) -> None:
    """It is valid JSON (so YAML), for this user only, and has what a client needs."""
    path = tmp_path / "kubeconfig"
    server.write_kubeconfig(path)
    config = json.loads(path.read_text())
    assert config["clusters"][0]["cluster"]["server"] == server.url
    assert config["users"][0]["user"]["token"] == server.token
    assert path.stat().st_mode & 0o077 == 0


def test_stop_leaves_no_thread() -> None:
    """With a watch open and a connection idle, leaving the context ends every thread of the server."""
    before = set(threading.enumerate())
    with EmbeddedApiServer() as server:
        call = Client(server)
        watching, _ = call.open("GET", "/api/v1/nodes", watch="true")
        idle = HTTPConnection(server.url.removeprefix("http://"), timeout=5)
        idle.connect()
        call("GET", "/api/v1/nodes")
    assert set(threading.enumerate()) == before
    watching.close()
    idle.close()
