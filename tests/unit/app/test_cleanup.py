"""What cleanup finds and removes, above a cluster in memory."""

import json
from collections.abc import Mapping

import pytest

from nodeguard.app.cleanup import PAGE, find
from nodeguard.kube import brake
from nodeguard.kube.api import READ_TIMEOUT, Object
from nodeguard.kube.fake import FakeApi
from nodeguard.kube.lease import leases_path
from nodeguard.model.errors import ApiConflict, ApiNotFound, ApiRefused
from nodeguard.remediation import incidents_ring, restart

NODES = "/api/v1/nodes"
JOB = "/apis/batch/v1/namespaces/training/jobs/llm"
LEASES = leases_path("nodeguard")


class Paged(FakeApi):
    """Also lists, page by page."""

    def get(self, path: str, params: Mapping[str, str] | None = None, timeout: float = READ_TIMEOUT) -> Object:
        """A page of a collection, or an object."""
        if path == "/apis/batch":
            return {"preferredVersion": {"groupVersion": "batch/v1"}}
        if path in (NODES, LEASES):
            return self._page(path, params or {})
        if path == "/apis/batch/v1/jobs":
            found = self.under("/apis/batch/v1/namespaces")
            return {"items": [job for job in found if "nodeguard.io/restart" in job["metadata"].get("labels", {})]}
        return super().get(path, params, timeout)

    def _page(self, path: str, params: Mapping[str, str]) -> Object:
        try:
            super().get(path)  # it is recorded, and what is planned for it happens
        except ApiNotFound:
            found = self.under(path)
        start, size = int(params.get("continue", "0")), int(params["limit"])
        more = {"continue": str(start + size)} if start + size < len(found) else {}
        return {"items": found[start:start + size], "metadata": more}


def node(api: FakeApi, name: str, *, annotations: Object, taints: list[Object], conditions: list[str]) -> None:
    """A Node with these marks."""
    api.add(f"{NODES}/{name}", {
        "metadata": {"name": name, "annotations": annotations}, "spec": {"taints": taints, "unschedulable": True},
        "status": {"conditions": [{"type": word, "status": "False"} for word in conditions]}})


def faults(*types: str, version: int = 1) -> str:
    """The agent's annotation."""
    return json.dumps({"v": version, "faults": [], "types": types})


def clean(api: FakeApi) -> tuple[list[str], list[str], list[str]]:
    """Find and remove everything: what was removed, what failed, what was noted."""
    failed: list[str] = []
    notes: list[str] = []
    found = list(find(api, "nodeguard", failed=failed.append, note=notes.append))
    for mark in found:
        mark.remove()
    return [str(mark) for mark in found], failed, notes


def test_only_own_marks_leave_a_node() -> None:
    """Taints, conditions and annotations of others stay, and so does a cordon."""
    api = Paged()
    standing = ["Ready", "GpuMemoryFault", "GpuOther"]
    foreign = [{"key": "theirs", "effect": "NoSchedule"}, {"key": "nodeguard.io/unhealthy", "effect": "NoExecute"},
               {"key": "nodeguard.io/remediation", "value": "odd", "effect": "NoSchedule"}]
    own = [{"key": "nodeguard.io/unhealthy", "value": "GpuMemoryFault", "effect": "NoSchedule"},
           {"key": "nodeguard.io/remediation", "value": "draining", "effect": "NoSchedule"}]
    node(api, "a", annotations={"nodeguard.io/faults": faults("GpuMemoryFault", "Ready", "GpuLost"), "theirs": "x",
                                "nodeguard.io/remediation": "{}", "nodeguard.io/hold": "2030-01-01T00:00:00Z"},
         taints=[foreign[0], own[0], foreign[1], own[1], foreign[2]], conditions=standing)
    removed, failed, notes = clean(api)
    assert [word.split("; ") for word in removed] == [[
        "Node a: annotations nodeguard.io/faults, nodeguard.io/remediation",
        "taints nodeguard.io/unhealthy=GpuMemoryFault, nodeguard.io/remediation=draining",
        "conditions GpuMemoryFault"]]
    assert (failed, len(notes)) == ([], 2)
    left = api.read(f"{NODES}/a")
    assert left["spec"] == {"taints": foreign, "unschedulable": True}
    assert left["metadata"]["annotations"] == {"theirs": "x", "nodeguard.io/hold": "2030-01-01T00:00:00Z"}
    assert [one["type"] for one in left["status"]["conditions"]] == ["Ready", "GpuOther"]


def test_nothing_is_written_where_nothing_stands() -> None:
    """And the second run finds nothing."""
    api = Paged()
    node(api, "a", annotations={"theirs": "x"}, taints=[{"key": "t", "effect": "NoExecute"}], conditions=["GpuLost"])
    node(api, "b", annotations={"nodeguard.io/faults": faults()}, taints=[], conditions=[])
    assert len(clean(api)[0]) == 1
    assert [one.path for one in api.writes()] == [f"{NODES}/b/status"]
    assert clean(api) == ([], [], [])


def test_thousands_of_nodes_are_read_page_by_page() -> None:
    """No page is left out, and none asked for twice."""
    api = Paged()
    for number in range(2 * PAGE + 3):
        node(api, f"n{number:04}", annotations={"nodeguard.io/faults": faults()}, taints=[], conditions=[])
    removed, failed, _ = clean(api)
    assert (len(removed), failed) == (2 * PAGE + 3, [])
    assert sum(one.method == "GET" and one.path == NODES for one in api.requests) == 3


def test_a_taint_added_meanwhile_is_not_lost() -> None:
    """The Node changes between the read and the write."""
    api = Paged()
    own = {"key": "nodeguard.io/unhealthy", "value": "GpuLost", "effect": "NoSchedule"}
    node(api, "a", annotations={}, taints=[own], conditions=[])
    theirs = {"key": "theirs", "effect": "NoSchedule"}
    api.before("PATCH", f"{NODES}/a", lambda: api.edit(f"{NODES}/a", lambda one: one["spec"]["taints"].append(theirs)))
    clean(api)
    assert api.read(f"{NODES}/a")["spec"]["taints"] == [theirs]


def test_conditions_of_another_generation_stay_and_are_told() -> None:
    """What an annotation that is not understood lists is nobody's business."""
    api = Paged()
    node(api, "a", annotations={"nodeguard.io/faults": faults("GpuLost", version=9)}, taints=[], conditions=["GpuLost"])
    removed, _, notes = clean(api)
    assert removed == ["Node a: annotations nodeguard.io/faults"]
    assert notes == ["Node a: the annotation nodeguard.io/faults is not understood, so conditions stay"]
    assert len(api.read(f"{NODES}/a")["status"]["conditions"]) == 1


def test_a_suspended_job_is_resumed_first_and_a_person_s_is_left() -> None:
    """Only the label says that nodeguard suspended it."""
    api = Paged()
    metadata = {"name": "llm", "namespace": "training", "uid": "u", "labels": {"theirs": "x"}, "annotations": {}}
    api.add(JOB, {"kind": "Job", "metadata": metadata, "spec": {"suspend": False}})
    begun = restart.Restart(id="i1-1", nodes=("a",), at=1.0, deadline=2.0)
    api.patch(JOB, restart.suspend(api.read(JOB), "suspend", begun), "application/merge-patch+json")
    api.add(f"{JOB}-2", {"kind": "Job", "metadata": {**metadata, "name": "llm-2"}, "spec": {"suspend": True}})
    node(api, "a", annotations={"nodeguard.io/faults": faults()}, taints=[], conditions=[])
    removed, _, _ = clean(api)
    assert removed[0] == "Job training/llm: suspension and marks of its restart"
    job = api.read(JOB)
    assert (job["spec"]["suspend"], job["metadata"]["labels"], job["metadata"]["annotations"]) == (
        False, {"theirs": "x"}, {})
    assert api.read(f"{JOB}-2")["spec"]["suspend"] is True


def test_leases_and_config_maps_of_others_stay() -> None:
    """An agent's Lease is owned by the Node of its name; living agents are told of."""
    api = Paged()
    api.add(f"{LEASES}/a", {"metadata": {"ownerReferences": [{"kind": "Node", "name": "a"}]}, "spec": {
        "holderIdentity": "a", "renewTime": "2099-01-01T00:00:00.000000Z", "leaseDurationSeconds": 6}})
    api.add(f"{LEASES}/nodeguard-remediate", {"metadata": {}, "spec": {"holderIdentity": None}})
    api.add(f"{LEASES}/theirs", {"metadata": {}, "spec": {"holderIdentity": "theirs"}})
    for path in (brake.path("nodeguard"), incidents_ring.path("nodeguard")):
        api.add(path, {"data": {}})
    api.add(f"{brake.collection('nodeguard')}/theirs", {"data": {}})
    removed, _, notes = clean(api)
    assert [one.partition(": ")[0] for one in removed] == [
        "Lease nodeguard/a", "Lease nodeguard/nodeguard-remediate", "ConfigMap nodeguard/nodeguard-brake",
        "ConfigMap nodeguard/nodeguard-incidents"]
    assert [note.partition(",")[0] for note in notes] == ["1 agents or loops seem to run still"]
    assert len(api.under(LEASES)) == 1
    assert len(api.under(brake.collection("nodeguard"))) == 1


def test_a_refused_list_costs_only_itself() -> None:
    """It is told, and everything else is cleaned up."""
    api = Paged()
    api.add(brake.path("nodeguard"), {"data": {}})
    api.fail("GET", NODES, ApiRefused("GET /api/v1/nodes: 403 Forbidden", status=403))
    removed, failed, _ = clean(api)
    assert removed == ["ConfigMap nodeguard/nodeguard-brake: all of it"]
    assert failed == ["not all marks could be looked for: GET /api/v1/nodes: 403 Forbidden"]


def test_what_is_gone_already_is_no_failure_and_what_races_is() -> None:
    """The object was deleted, or changes without end, between the plan and the removal."""
    api = Paged()
    for name in ("a", "b"):
        node(api, name, annotations={"nodeguard.io/remediation": "{}"}, taints=[], conditions=[])
    api.add(brake.path("nodeguard"), {"data": {}})
    first, second, third = find(api, "nodeguard", failed=print, note=print)
    api.remove(f"{NODES}/a")
    api.remove(brake.path("nodeguard"))
    first.remove()
    third.remove()
    api.fail("PATCH", f"{NODES}/b", ApiConflict("409", status=409), times=10)
    with pytest.raises(ApiConflict, match="the Node b changes faster"):
        second.remove()
