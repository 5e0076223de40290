"""Imitated controllers, kubelets and the stage that the demo sets up, on the embedded API server."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nodeguard.kube.api import MERGE_PATCH, Object
from nodeguard.kube.client import KubeClient
from nodeguard.model.errors import NodeguardError
from nodeguard.sim.apiserver import EmbeddedApiServer
from nodeguard.sim.cluster import SimulatedControllers
from nodeguard.sim.cluster_kubelet import FakeKubelet
from nodeguard.sim.cluster_pods import ended, restarts_in_place
from nodeguard.sim.cluster_scope import LABEL
from nodeguard.sim.cluster_stage import JOB, training_job
from nodeguard.sim.cluster_view import ClusterView, Expected, Seen

JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
SECONDS = 10.0


class Rig:
    """A cluster, an administrator's client of it, and somebody who looks."""

    def __init__(self, server: EmbeddedApiServer, api: KubeClient, view: ClusterView) -> None:
        self.server, self.api, self.view = server, api, view

    def wait(self, what: str, holds: Callable[[Seen], Any]) -> None:
        """NodeguardError: not in time."""
        wanted = Expected(what, holds)
        self.view.expect(wanted)
        assert list(self.view.come([wanted], SECONDS)) == [wanted]

    @contextlib.contextmanager
    def kubelets(self, *names: str) -> Iterator[list[FakeKubelet]]:
        """Nodes of the demo."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(FakeKubelet(name, self.api, labels={LABEL: "m"}, boot_id=f"boot-{name}"))
                   for name in names]


@pytest.fixture
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Everything runs."""
    with EmbeddedApiServer() as server:
        path = tmp_path_factory.mktemp("cluster") / "kubeconfig"
        server.write_kubeconfig(path)
        api = KubeClient.from_kubeconfig(path)
        with SimulatedControllers(api), ClusterView(api) as view:
            yield Rig(server, api, view)


def running(seen: Seen) -> list[Object]:
    return [pod for pod in seen.pods.values()
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]]


def test_a_job_runs_is_suspended_and_runs_again(rig: Rig) -> None:
    """Both ranks run on nodes of their own; suspended, they go; resumed, other pods come; deleted, nothing is left."""
    with rig.kubelets("a", "b") as kubelets:
        rig.api.post(JOBS, training_job("m"))
        rig.wait("both run", lambda seen: len(running(seen)) == 2)
        before = rig.view.now(lambda seen: {pod["metadata"]["uid"] for pod in running(seen)})
        assert rig.view.now(lambda seen: {pod["spec"]["nodeName"] for pod in running(seen)}) == {"a", "b"}
        rig.wait("it says so", lambda seen: seen.jobs[f"default/{JOB}"]["status"].get("ready") == 2)
        rig.api.patch(f"{JOBS}/{JOB}", {"spec": {"suspend": True}}, MERGE_PATCH)
        rig.wait("none is left", lambda seen: not seen.pods)
        rig.wait("it says so", lambda seen: seen.jobs[f"default/{JOB}"]["status"]["conditions"][0]["status"] == "True")
        rig.api.patch(f"{JOBS}/{JOB}", {"spec": {"suspend": False}}, MERGE_PATCH)
        rig.wait("others run", lambda seen: len(running(seen)) == 2)
        assert rig.view.now(lambda seen: before & {pod["metadata"]["uid"] for pod in running(seen)}) == set()
        rig.api.delete(f"{JOBS}/{JOB}")
        rig.wait("none is left", lambda seen: not seen.pods and not seen.jobs)
        assert [failure for kubelet in kubelets for failure in kubelet.failures] == []


def test_an_evicted_rank_is_made_again_elsewhere(rig: Rig) -> None:
    """The other rank stays as it is."""
    with rig.kubelets("a", "b", "c"):
        rig.api.post(JOBS, training_job("m"))
        rig.wait("both run", lambda seen: len(running(seen)) == 2)
        pod, other = rig.view.now(running)
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        rig.api.post(f"{PODS}/{name}/eviction", {
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"},
            "deleteOptions": {"preconditions": {"uid": uid}}})
        rig.wait("another runs", lambda seen: len(running(seen)) == 2 and f"default/{name}" not in seen.pods)
        assert other["metadata"]["uid"] in rig.view.now(
            lambda seen: [one["metadata"]["uid"] for one in running(seen)])


def test_a_kubelet_registers_its_node_as_one_does(rig: Rig) -> None:
    """Ready, with capacity, boot ID and Lease; started again after a reboot it tells the new boot ID."""
    with rig.kubelets("a") as (kubelet,):
        rig.wait("ready", lambda seen: "a" in seen.nodes and "nodeInfo" in seen.nodes["a"].get("status", {}))
        node = rig.view.now(lambda seen: seen.nodes["a"])
        assert node["status"]["nodeInfo"]["bootID"] == "boot-a"
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
        lease = rig.api.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a")
        assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == ("a", 40)
        kubelet.stop()
        kubelet.boot_id = "boot-2"
        kubelet.start()
        rig.wait("rebooted", lambda seen: seen.nodes["a"]["status"]["nodeInfo"]["bootID"] == "boot-2")


def test_the_controllers_outlive_an_outage(rig: Rig) -> None:
    """What was due meanwhile is done when the server is back."""
    with rig.kubelets("a", "b"):
        rig.server.fail_next(status=503, count=20, path_prefix="/api/v1/namespaces/default/pods")
        rig.api.post(JOBS, training_job("m"))
        rig.wait("both run", lambda seen: len(running(seen)) == 2)


def test_what_does_not_come_is_told_by_its_name(rig: Rig) -> None:
    """A sentence, after the time that was given; what came before is not lost."""
    never = Expected("pigs fly", lambda seen: False)
    at_once = Expected("something is there", lambda seen: seen.nodes is not None)
    rig.view.expect(never, at_once)
    coming = rig.view.come([never, at_once], 0.01)
    assert next(coming) is at_once
    with pytest.raises(NodeguardError, match="not seen in time: pigs fly"):
        next(coming)


def test_a_state_that_passes_is_seen(rig: Rig) -> None:
    """What is expected before it begins is stamped, also when it has ended before anybody asks; and in its order."""
    first = Expected("labelled", lambda seen: "x" in seen.nodes.get("n", {}).get("metadata", {}).get("labels", {}))
    then = Expected("not any more", lambda seen: "x" not in seen.nodes["n"]["metadata"]["labels"], after=first)
    rig.view.expect(then, first)
    rig.api.post("/api/v1/nodes", {"metadata": {"name": "n", "labels": {"x": "1"}}})
    rig.api.patch("/api/v1/nodes/n", {"metadata": {"labels": {"x": None}}}, MERGE_PATCH)
    assert list(rig.view.come([then, first], SECONDS)) == [first, then]
    assert not rig.view.stays(lambda seen: "x" in seen.nodes["n"]["metadata"]["labels"], 0.01)
    assert rig.view.stays(lambda seen: "n" in seen.nodes, 0.01)


def test_exit_codes_and_restart_policies() -> None:
    """OnFailure restarts in place what failed; what ended for good is Succeeded or Failed by its exit code."""
    pod: Object = {"metadata": {"uid": "u"}, "status": {}, "spec": {
        "restartPolicy": "OnFailure", "containers": [{"name": "c", "image": "i"}]}}
    assert (restarts_in_place(pod, 1), restarts_in_place(pod, 0)) == (True, False)
    assert (ended(pod, 143)["phase"], ended(pod, 0)["phase"]) == ("Failed", "Succeeded")
