"""The fake API answers where it matters as a real API server does."""

import threading
from contextlib import suppress

import pytest

from nodeguard.kube.api import MERGE_PATCH, STRATEGIC_PATCH
from nodeguard.kube.fake import FakeApi
from nodeguard.model.errors import ApiConflict, ApiGone, ApiNotFound, ApiUnavailable

NODE = "/api/v1/nodes/n1"


@pytest.fixture
def api() -> FakeApi:
    """An API with one Node."""
    fake = FakeApi()
    fake.add(NODE, {"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "X"}]},
                    "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    return fake


def test_conditions_merge_by_type_and_delete_by_marker(api: FakeApi) -> None:
    """A strategic merge patch of the status touches only the types it names, and the metadata."""
    api.patch(NODE + "/status", {"metadata": {"annotations": {"a": "1"}}, "spec": {"taints": []}, "status": {
        "conditions": [{"type": "GpuA", "status": "True"}]}}, STRATEGIC_PATCH)
    found = api.read(NODE)
    assert [one["type"] for one in found["status"]["conditions"]] == ["Ready", "GpuA"]
    assert (found["metadata"]["annotations"], found["spec"]["taints"]) == ({"a": "1"}, [{"key": "X"}])
    api.patch(NODE + "/status", {"metadata": {"annotations": {"a": None}}, "status": {
        "conditions": [{"type": "GpuA", "$patch": "delete"}]}}, STRATEGIC_PATCH)
    assert [one["type"] for one in api.read(NODE)["status"]["conditions"]] == ["Ready"]
    assert api.read(NODE)["metadata"]["annotations"] == {}


def test_taints_are_one_list_and_a_stale_version_is_refused(api: FakeApi) -> None:
    """A merge patch replaces the list; with the version of an older state it is a conflict."""
    version = api.get(NODE)["metadata"]["resourceVersion"]
    api.edit(NODE, lambda node: node["spec"]["taints"].append({"key": "Y"}))
    body = {"metadata": {"resourceVersion": version}, "spec": {"taints": []}}
    with pytest.raises(ApiConflict):
        api.patch(NODE, body, MERGE_PATCH)
    with pytest.raises(ApiConflict):
        api.put(NODE, {**api.read(NODE), "metadata": {"resourceVersion": version}})
    assert api.patch(NODE, {"spec": {"taints": [{"key": "Z"}]}}, MERGE_PATCH)["spec"]["taints"] == [{"key": "Z"}]


def test_create_twice_conflicts_and_delete_honours_preconditions(api: FakeApi) -> None:
    """Names are unique in a collection, and a UID says which object is meant."""
    pod = {"metadata": {"name": "p", "uid": "u1"}}
    api.post("/api/v1/namespaces/default/pods", pod)
    with pytest.raises(ApiConflict):
        api.post("/api/v1/namespaces/default/pods", pod)
    with pytest.raises(ApiConflict):
        api.delete("/api/v1/namespaces/default/pods/p", {"preconditions": {"uid": "u2"}})
    api.delete("/api/v1/namespaces/default/pods/p", {"preconditions": {"uid": "u1"}})
    with pytest.raises(ApiNotFound):
        api.get("/api/v1/namespaces/default/pods/p")


def test_planned_failures_and_acts_happen_as_often_as_planned(api: FakeApi) -> None:
    """A failure is raised, an act runs before the request is served, and both are recorded."""
    api.fail("GET", NODE, ApiUnavailable("503"))
    with pytest.raises(ApiUnavailable):
        api.get(NODE)
    api.before("GET", NODE, lambda: api.edit(NODE, lambda node: node["metadata"].update(labels={"a": "b"})))
    assert api.get(NODE)["metadata"]["labels"] == {"a": "b"}
    assert [one.method for one in api.requests] == ["GET", "GET"]


def test_watch_resumes_ends_and_expires(api: FakeApi) -> None:
    """It tells what changed since a version, ends when told, and answers 410 for a forgotten version."""
    stop = threading.Event()
    version = api.get(NODE)["metadata"]["resourceVersion"]
    api.edit(NODE, lambda node: node["metadata"].update(labels={}))
    api.remove(NODE)
    events = api.watch("/api/v1/nodes", {"resourceVersion": version, "fieldSelector": "metadata.name=n1"}, stop)
    assert [next(events)["type"], next(events)["type"]] == ["MODIFIED", "DELETED"]
    stop.set()
    with suppress(StopIteration):
        pytest.fail(str(next(events)))
    api.compact()
    with pytest.raises(ApiGone):
        next(api.watch("/api/v1/nodes", {"resourceVersion": version}, stop))
