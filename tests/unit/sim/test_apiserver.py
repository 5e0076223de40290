"""The embedded API server keeps the promises of Kubernetes on objects that nodeguard leans on, over plain HTTP."""

import threading
from typing import Any
from urllib.parse import urlencode

import pytest

from nodeguard.sim.apiserver import EmbeddedApiServer

from .client import FAULT, MERGE, NODE, OURS, PODS, READY, STATUS, STRATEGIC, THEIRS, Client, version_of


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


def test_a_kubelet_ends_the_pod_that_it_means(server: EmbeddedApiServer, call: Client) -> None:
    """A deletion with another UID is refused; a second eviction does not give more time; a watcher sees both steps."""
    _, listed = call("GET", PODS)
    pod = server.create(PODS, {"metadata": {"name": "p"}, "spec": {"nodeName": "gpu-7"}})
    own = {"preconditions": {"uid": pod["metadata"]["uid"]}}
    assert call("POST", PODS + "/p/eviction", {"deleteOptions": {**own, "gracePeriodSeconds": 5}})[0] == 201
    assert call("POST", PODS + "/p/eviction", {"deleteOptions": own})[0] == 201
    _, ending = call("GET", PODS + "/p")
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 5
    assert call("DELETE", PODS + "/p", {"gracePeriodSeconds": 0, "preconditions": {"uid": "former"}})[0] == 409
    assert call("DELETE", PODS + "/p", {"gracePeriodSeconds": 0, **own})[0] == 200
    assert call("POST", PODS + "/p/eviction", {"deleteOptions": own})[0] == 404
    events = call.watch(PODS, 100, resourceVersion=version_of(listed), timeoutSeconds=1)
    told = [(event["type"], "deletionTimestamp" in event["object"]["metadata"]) for event in events]
    assert (told[0], told[1], told[-1]) == (("ADDED", False), ("MODIFIED", True), ("DELETED", True))


def test_a_pod_that_runs_nowhere_is_gone_at_once(server: EmbeddedApiServer, call: Client) -> None:
    """No kubelet would end it: a pod without a node, or one that has finished, is given no grace."""
    server.create(PODS, {"metadata": {"name": "pending"}})
    server.create(PODS, {"metadata": {"name": "done"}, "spec": {"nodeName": "gpu-7"}})
    call("PATCH", PODS + "/done/status", {"status": {"phase": "Succeeded"}}, MERGE)
    for name in ("pending", "done"):
        assert call("POST", f"{PODS}/{name}/eviction", {})[0] == 201
        assert call("GET", f"{PODS}/{name}")[0] == 404


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


def test_a_group_tells_its_preferred_version(call: Client) -> None:
    """As clients ask before they use a kind that not every cluster serves; an unknown group is 404."""
    _, group = call("GET", "/apis/batch")
    assert (group["kind"], group["name"]) == ("APIGroup", "batch")
    assert group["preferredVersion"]["groupVersion"] == "batch/v1"
    assert call("GET", "/apis/jobset.x-k8s.io")[0] == 404


@pytest.mark.parametrize("path", ["/apis/policy/v1/poddisruptionbudgets", "/apis/resource.k8s.io/v1/resourceclaims"])
def test_what_the_loop_only_lists_is_there_and_empty(call: Client, path: str) -> None:
    """Disruption budgets and resource claims."""
    status, found = call("GET", path)
    assert (status, found["items"]) == (200, [])
