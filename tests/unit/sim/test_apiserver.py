"""The embedded API server keeps the promises of Kubernetes that nodeguard leans on, over plain HTTP."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPResponse, RemoteDisconnected
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from nodeguard.sim.apiserver import EmbeddedApiServer

NODE = "/api/v1/nodes/gpu-7"
STATUS = NODE + "/status"
PODS = "/api/v1/namespaces/default/pods"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
FAULT = {"type": "GpuFault", "status": "True", "reason": "Xid79"}
OURS = {"key": "nodeguard.io/unhealthy", "effect": "NoSchedule", "value": "GpuFault"}
THEIRS = {"key": "other/taint", "effect": "NoExecute"}


class Client:
    """One connection a request."""

    def __init__(self, server: EmbeddedApiServer, token: str | None = None) -> None:
        self._address = server.url.removeprefix("http://")
        self._token = server.token if token is None else token

    def open(self, method: str, path: str, body: object = None, kind: str = "application/json",
             **query: str | int) -> tuple[HTTPConnection, HTTPResponse]:
        connection = HTTPConnection(self._address, timeout=5)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        sent = None if body is None else json.dumps(body)
        connection.request(method, f"{path}?{urlencode(query)}" if query else path, sent, headers)
        return connection, connection.getresponse()

    def __call__(self, method: str, path: str, body: object = None, kind: str = "application/json",
                 **query: str | int) -> tuple[int, dict[str, Any]]:
        connection, response = self.open(method, path, body, kind, **query)
        try:
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def watch(self, path: str, most: int = 100, **query: str | int) -> list[dict[str, Any]]:
        """The events of a watch until the server ends it, or as many as asked for."""
        connection, response = self.open("GET", path, None, "application/json", watch="true", **query)
        try:
            return [json.loads(line) for line in islice(response, most)]
        finally:
            connection.close()


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    """A server with one node."""
    with EmbeddedApiServer(history=50) as running:
        running.create("/api/v1/nodes", {
            "metadata": {"name": "gpu-7", "labels": {"pool": "a"}}, "spec": {"taints": [THEIRS]},
            "status": {"conditions": [READY]}})
        yield running


@pytest.fixture
def call(server: EmbeddedApiServer) -> Client:
    """A client with the right token."""
    return Client(server)


def version_of(item: Mapping[str, Any]) -> str:
    version: str = item["metadata"]["resourceVersion"]
    return version


def test_strategic_merge_of_one_condition_keeps_the_others(call: Client) -> None:
    """A condition is merged by its type: another writer's stays, our own is replaced, and one can be deleted."""
    call("PATCH", STATUS, {"status": {"conditions": [FAULT]}}, STRATEGIC)
    _, node = call("PATCH", STATUS, {"status": {"conditions": [{"type": "GpuFault", "status": "False"}]}}, STRATEGIC)
    assert node["status"]["conditions"] == [READY, {**FAULT, "status": "False"}]
    _, node = call("PATCH", STATUS, {"status": {"conditions": [{"type": "GpuFault", "$patch": "delete"}]}}, STRATEGIC)
    assert node["status"]["conditions"] == [READY]


@pytest.mark.parametrize("kind", [STRATEGIC, MERGE])
def test_taints_are_replaced_whole(call: Client, kind: str) -> None:
    """spec.taints is an atomic list: a patch that names one taint loses every other."""
    _, node = call("PATCH", NODE, {"spec": {"taints": [OURS]}}, kind)
    assert node["spec"]["taints"] == [OURS]


def test_merge_patch_replaces_lists_and_null_removes(call: Client) -> None:
    """RFC 7396: a list is a value, and null deletes a key."""
    _, node = call("PATCH", STATUS, {"status": {"conditions": [FAULT]}, "metadata": {"labels": {"pool": None}}}, MERGE)
    assert node["status"]["conditions"] == [FAULT]
    assert node["metadata"]["labels"] == {}


def test_status_and_spec_are_written_apart(call: Client) -> None:
    """nodes/status writes status and annotations but no spec; nodes writes no status."""
    both = {"metadata": {"annotations": {"a": "1"}}, "spec": {"taints": []}, "status": {"conditions": [FAULT]}}
    _, node = call("PATCH", STATUS, both, STRATEGIC)
    assert (node["metadata"]["annotations"], node["spec"]["taints"]) == ({"a": "1"}, [THEIRS])
    assert FAULT in node["status"]["conditions"]
    _, node = call("PATCH", NODE, {"spec": {"taints": []}, "status": {"conditions": [{**FAULT, "status": "Unknown"}]}},
                   STRATEGIC)
    assert node["spec"]["taints"] == []
    assert FAULT in node["status"]["conditions"]


def test_stale_version_conflicts(call: Client) -> None:
    """A patch or an update that names a version other than the newest is refused with 409 and changes nothing."""
    _, old = call("GET", NODE)
    _, new = call("PATCH", NODE, {"metadata": {"labels": {"x": "1"}}}, MERGE)
    stale = {"metadata": {"resourceVersion": version_of(old)}, "spec": {"taints": [OURS]}}
    for status, body in (call("PATCH", NODE, stale, STRATEGIC), call("PUT", NODE, old)):
        assert (status, body["reason"], body["kind"], body["code"]) == (409, "Conflict", "Status", 409)
    assert call("GET", NODE)[1] == new
    fresh = {"metadata": {"resourceVersion": version_of(new)}, "spec": {"taints": [OURS]}}
    assert call("PATCH", NODE, fresh, STRATEGIC)[0] == 200


def test_a_write_that_changes_nothing_has_no_new_version(call: Client) -> None:
    """As in etcd3, an equal object is no write: no version, no watch event."""
    _, old = call("GET", NODE)
    _, new = call("PATCH", STATUS, {"status": {"conditions": [READY]}}, STRATEGIC)
    assert version_of(new) == version_of(old)


def test_identity_is_the_servers(call: Client) -> None:
    """uid and creationTimestamp are given at creation, and a patch cannot change them."""
    _, old = call("GET", NODE)
    ours = {"metadata": {"creationTimestamp": "2000-01-01T00:00:00Z", "labels": {"x": "1"}}}
    _, new = call("PATCH", NODE, ours, MERGE)
    assert new["metadata"]["uid"] == old["metadata"]["uid"] != ""
    assert new["metadata"]["creationTimestamp"] == old["metadata"]["creationTimestamp"]
    assert int(version_of(new)) > int(version_of(old))


@pytest.mark.parametrize(("request_", "answer"), [
    (("GET", "/api/v1/nodes/none"), (404, "NotFound")),
    (("GET", "/api/v1/gadgets"), (404, "NotFound")),
    (("POST", "/api/v1/nodes", {"metadata": {"name": "gpu-7"}}), (409, "AlreadyExists")),
    (("POST", "/api/v1/nodes", {}), (422, "Invalid")),
    (("POST", "/api/v1/namespaces/none/pods", {"metadata": {"name": "p"}}), (404, "NotFound")),
    (("PATCH", NODE, {}, "application/json-patch+json"), (415, "UnsupportedMediaType")),
    (("PATCH", NODE, [], MERGE), (400, "BadRequest")),
    (("PUT", "/api/v1/nodes", {}), (405, "MethodNotAllowed")),
])
def test_refusals_are_status_objects(call: Client, request_: tuple[Any, ...], answer: tuple[int, str]) -> None:
    """Every refusal has the HTTP status and the reason that Kubernetes gives."""
    status, told = call(*request_)
    assert (status, told["reason"]) == answer
    assert (told["kind"], told["status"], told["code"]) == ("Status", "Failure", status)


def test_a_wrong_token_is_refused(server: EmbeddedApiServer) -> None:
    """Without the token of the kubeconfig nothing is answered."""
    assert Client(server, "wrong")("GET", NODE)[0] == 401


def test_lists_are_selected_and_paged(server: EmbeddedApiServer, call: Client) -> None:
    """Field and label selectors choose, limit and continue walk, and items carry no kind."""
    for number in range(5):
        server.create(PODS, {"metadata": {"name": f"p{number}", "labels": {"n": str(number)}},
                             "spec": {"nodeName": f"gpu-{number % 2}"}})

    def names(**query: str) -> list[str]:
        return [item["metadata"]["name"] for item in call("GET", "/api/v1/pods", **query)[1]["items"]]

    assert names(fieldSelector="spec.nodeName=gpu-1") == ["p1", "p3"]
    assert names(fieldSelector="metadata.name!=p0,spec.nodeName=gpu-0") == ["p2", "p4"]
    assert names(labelSelector="n in (1,2),n!=2") == ["p1"]
    assert names(labelSelector="!n") == []
    _, first = call("GET", PODS, limit=3)
    assert (len(first["items"]), first["metadata"]["remainingItemCount"]) == (3, 2)
    assert "kind" not in first["items"][0]
    _, second = call("GET", f"{PODS}?{urlencode({'continue': first['metadata']['continue']})}")
    assert [item["metadata"]["name"] for item in second["items"]] == ["p3", "p4"]
    assert call("GET", PODS, labelSelector="a b c")[0] == 400


def test_events_are_found_by_their_object(server: EmbeddedApiServer, call: Client) -> None:
    """kubectl describe asks for Events with involvedObject selectors."""
    for name in ("gpu-7", "gpu-8"):
        server.create("/api/v1/namespaces/default/events", {
            "metadata": {"generateName": "e-"}, "involvedObject": {"kind": "Node", "name": name}})
    _, found = call("GET", "/api/v1/events", fieldSelector="involvedObject.kind=Node,involvedObject.name=gpu-7")
    assert [item["involvedObject"]["name"] for item in found["items"]] == ["gpu-7"]


def test_a_watch_delivers_and_resumes(call: Client) -> None:
    """A watch from a version tells what came after it, each once, and resumes from the last version it told."""
    _, node = call("GET", NODE)
    for number in range(3):
        call("PATCH", NODE, {"metadata": {"labels": {"n": str(number)}}}, MERGE)
    events = call.watch("/api/v1/nodes", 3, resourceVersion=version_of(node))
    assert [(e["type"], e["object"]["metadata"]["labels"]["n"]) for e in events] == [
        ("MODIFIED", "0"), ("MODIFIED", "1"), ("MODIFIED", "2")]
    call("DELETE", NODE)
    later = call.watch("/api/v1/nodes", 2, resourceVersion=version_of(events[1]["object"]))
    assert [event["type"] for event in later] == ["MODIFIED", "DELETED"]


def test_a_running_watch_is_told_at_once(server: EmbeddedApiServer, call: Client) -> None:
    """A change reaches an open watch without waiting for a poll; without a version the watch starts with what is."""
    connection, response = call.open("GET", "/api/v1/nodes", watch="1", timeoutSeconds=5)
    try:
        assert json.loads(response.readline())["type"] == "ADDED"
        server.create("/api/v1/nodes", {"metadata": {"name": "gpu-8"}})
        event = json.loads(response.readline())
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "gpu-8")
    finally:
        connection.close()


def test_a_watch_follows_its_selector(server: EmbeddedApiServer, call: Client) -> None:
    """An object that begins or ceases to meet the selector is ADDED or DELETED; others are never seen."""
    _, listed = call("GET", PODS)
    server.create(PODS, {"metadata": {"name": "p"}})
    server.create(PODS, {"metadata": {"name": "other"}})
    call("POST", PODS + "/p/binding", {"target": {"name": "gpu-7"}})
    call("DELETE", PODS + "/other")
    call("PATCH", PODS + "/p/status", {"status": {"phase": "Failed"}}, MERGE)
    running = "spec.nodeName=gpu-7,status.phase!=Failed"
    events = call.watch(PODS, 2, fieldSelector=running, resourceVersion=version_of(listed))
    told = [(event["type"], event["object"]["metadata"]["name"]) for event in events]
    assert told == [("ADDED", "p"), ("DELETED", "p")]


def test_a_forgotten_version_is_gone(server: EmbeddedApiServer, call: Client) -> None:
    """When the history no longer reaches back, a watch gets one ERROR with 410 and a continued list HTTP 410."""
    server.create("/api/v1/nodes", {"metadata": {"name": "gpu-8"}})
    _, page = call("GET", "/api/v1/nodes", limit=1)
    for number in range(60):
        call("PATCH", NODE, {"metadata": {"labels": {"n": str(number)}}}, MERGE)
    events = call.watch("/api/v1/nodes", resourceVersion=version_of(page), timeoutSeconds=5)
    assert [(event["type"], event["object"]["code"], event["object"]["reason"]) for event in events] == [
        ("ERROR", 410, "Expired")]
    token = {"continue": page["metadata"]["continue"]}
    assert call("GET", f"/api/v1/nodes?{urlencode(token)}")[0] == 410


def test_compaction_makes_every_version_gone(server: EmbeddedApiServer, call: Client) -> None:
    """compact() is how a test brings about 410 at will."""
    _, old = call("GET", NODE)
    call("PATCH", NODE, {"metadata": {"labels": {"n": "1"}}}, MERGE)
    server.compact()
    events = call.watch("/api/v1/nodes", resourceVersion=version_of(old), timeoutSeconds=5)
    assert events[0]["object"]["code"] == 410


def test_bookmarks_carry_the_version_of_other_changes(server: EmbeddedApiServer, call: Client) -> None:
    """Whoever asks for bookmarks learns how far the watch has come even if nothing of its kind changed."""
    _, listed = call("GET", PODS)
    server.create("/api/v1/nodes", {"metadata": {"name": "gpu-8"}})
    (event,) = call.watch(PODS, allowWatchBookmarks="true", resourceVersion=version_of(listed), timeoutSeconds=1)
    assert event["type"] == "BOOKMARK"
    assert int(version_of(event["object"])) > int(version_of(listed))


def test_concurrent_writers_lose_nothing(server: EmbeddedApiServer) -> None:
    """Two threads that patch different conditions and annotations of one node all the time each find all of theirs."""
    def write(name: str) -> None:
        call = Client(server)
        for number in range(40):
            patch = {"metadata": {"annotations": {f"{name}-{number}": "x"}},
                     "status": {"conditions": [{"type": f"{name}{number}", "status": "True"}]}}
            assert call("PATCH", STATUS, patch, STRATEGIC)[0] == 200

    threads = [threading.Thread(target=write, args=(name,)) for name in ("Gpu", "Other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    node = server.objects[NODE]
    assert len(node["metadata"]["annotations"]) == 80
    types = [condition["type"] for condition in node["status"]["conditions"]]
    assert len(types) == len(set(types)) == 81


def test_optimistic_taint_writers_lose_nothing(server: EmbeddedApiServer) -> None:
    """Read, add, patch with the version, retry on 409: the way to write an atomic list with others around."""
    def add(name: str) -> None:
        call = Client(server)
        for number in range(15):
            status = 0
            while status != 200:
                _, node = call("GET", NODE)
                taints = [*node["spec"]["taints"], {"key": f"{name}/{number}", "effect": "NoSchedule"}]
                patch = {"metadata": {"resourceVersion": version_of(node)}, "spec": {"taints": taints}}
                status, _ = call("PATCH", NODE, patch, STRATEGIC)

    threads = [threading.Thread(target=add, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(server.objects[NODE]["spec"]["taints"]) == 31


def test_a_running_pod_is_deleted_with_grace(server: EmbeddedApiServer, call: Client) -> None:
    """Eviction marks a bound pod and leaves it to its kubelet, which ends it with grace 0; a wrong UID is refused."""
    server.create(PODS, {"metadata": {"name": "p"}, "spec": {"nodeName": "gpu-7", "terminationGracePeriodSeconds": 7}})
    wrong = {"deleteOptions": {"preconditions": {"uid": "other"}}}
    assert call("POST", PODS + "/p/eviction", wrong)[0] == 409
    assert call("POST", PODS + "/p/eviction", {"metadata": {"name": "p"}})[0] == 201
    _, pod = call("GET", PODS + "/p")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 7
    assert pod["status"]["conditions"][0]["reason"] == "EvictionByEvictionAPI"
    assert call("DELETE", PODS + "/p", {"gracePeriodSeconds": 0})[0] == 200
    assert call("GET", PODS + "/p")[0] == 404


def test_finalizers_keep_an_object(server: EmbeddedApiServer, call: Client) -> None:
    """A deleted object with finalizers stays until the last one is taken off."""
    path = "/api/v1/namespaces/default/configmaps"
    server.create(path, {"metadata": {"name": "c", "finalizers": ["x/y"]}})
    _, kept = call("DELETE", path + "/c")
    assert kept["metadata"]["deletionTimestamp"]
    call("PATCH", path + "/c", {"metadata": {"finalizers": None}}, MERGE)
    assert call("GET", path + "/c")[0] == 404


def test_a_lease_is_not_updated_blindly(server: EmbeddedApiServer, call: Client) -> None:
    """An update of a Lease must name the version it read (Kubernetes refuses others with 422)."""
    path = "/apis/coordination.k8s.io/v1/namespaces/nodeguard/leases"
    lease = server.create(path, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})
    blind = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "b"}}
    assert call("PUT", path + "/l", blind)[0] == 422
    assert call("PUT", path + "/l", {**lease, "spec": {"holderIdentity": "b"}})[0] == 200


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
