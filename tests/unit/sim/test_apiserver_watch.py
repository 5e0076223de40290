"""Watches of the embedded API server: told at once, each change once, resumed by version, and 410 when too late."""

import json
from urllib.parse import urlencode

from nodeguard.sim.apiserver import EmbeddedApiServer

from .client import MERGE, NODE, PODS, Client, version_of


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
