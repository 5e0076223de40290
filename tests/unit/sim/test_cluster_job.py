"""What the imitated Job controller and scheduler decide."""

from typing import Any

from nodeguard.kube.api import Object
from nodeguard.sim import cluster_job
from nodeguard.sim.cluster_stage import training_job

GPU = "nvidia.com/gpu"


def job(**spec: Any) -> Object:
    body = training_job("m")
    body["metadata"] |= {"namespace": "ns", "uid": "j"}
    body["spec"] |= spec
    return body


def rank(index: int, **more: Any) -> Object:
    pod = next(pod for pod in cluster_job.missing(job(), ()) if index_of(pod) == str(index))
    pod["metadata"]["uid"] = f"pod-{index}"
    pod["status"] = {"phase": "Running"}
    pod["metadata"] |= more
    return pod


def index_of(pod: Object) -> str:
    return str(pod["metadata"]["annotations"][cluster_job.INDEX])


def node(name: str, *, gpus: int = 8, ready: str = "True", labels: dict[str, str] | None = None,
         taints: tuple[Object, ...] = (), **spec: Any) -> Object:
    return {"metadata": {"name": name, "labels": {"nodeguard.io/demo": "m"} if labels is None else labels},
            "spec": {"taints": list(taints), **spec},
            "status": {"allocatable": {GPU: str(gpus)}, "conditions": [{"type": "Ready", "status": ready}]}}


def test_a_job_lacks_the_ranks_that_do_not_live() -> None:
    """One that ends is replaced at once (podReplacementPolicy TerminatingOrFailed); each carries owner and labels."""
    assert [index_of(pod) for pod in cluster_job.missing(job(), ())] == ["0", "1"]
    ending = rank(1, deletionTimestamp="2026-01-01T00:00:00Z")
    (pod,) = cluster_job.missing(job(), [rank(0), ending])
    assert (index_of(pod), cluster_job.owner_uid(pod)) == ("1", "j")
    assert pod["metadata"]["labels"]["nodeguard.io/demo"] == "m"
    assert cluster_job.missing(job(), [rank(0), rank(1)]) == []


def test_a_suspended_job_keeps_no_pod_and_wants_none() -> None:
    """Its living pods go, those that end already are left; a Job that is gone is the same."""
    ending = rank(1, deletionTimestamp="2026-01-01T00:00:00Z")
    suspended = job(suspend=True)
    assert cluster_job.missing(suspended, ()) == []
    for owner in (suspended, None):
        assert [index_of(pod) for pod in cluster_job.surplus(owner, [rank(0), ending])] == ["0"]
    assert cluster_job.surplus(job(), [rank(0)]) == []
    told = cluster_job.status(suspended, [ending])
    assert (told["active"], told["conditions"]) == (0, [{"type": "Suspended", "status": "True"}])


def test_a_pod_goes_where_there_is_room() -> None:
    """Not to a full node, an unready, cordoned or foreign one; the emptiest of the rest."""
    there = rank(0)
    there["spec"] = {**there["spec"], "nodeName": "full"}
    nodes = [node("full"), node("unready", ready="False"), node("cordoned", unschedulable=True),
             node("foreign", labels={}), node("small", gpus=4), node("open")]
    assert cluster_job.place(rank(1), nodes, [there]) == "open"
    assert cluster_job.place(rank(1), nodes[:-1], [there]) is None


def test_taints_keep_pods_away_that_do_not_tolerate_them() -> None:
    """The demo's own taint is tolerated; nodeguard's is not, but a mere preference is no obstacle."""
    own = {"key": "nodeguard.io/demo", "value": "m", "effect": "NoSchedule"}
    ill = {"key": "nodeguard.io/unhealthy", "value": "GpuLost", "effect": "NoSchedule"}
    soft = {"key": "anything", "effect": "PreferNoSchedule"}
    assert cluster_job.place(rank(1), [node("a", taints=(own, soft))], ()) == "a"
    assert cluster_job.place(rank(1), [node("a", taints=(own, ill))], ()) is None
    valued = rank(1)
    valued["spec"] = {**valued["spec"], "tolerations": [{"key": "nodeguard.io/unhealthy", "value": "GpuLost"}]}
    assert cluster_job.place(valued, [node("a", taints=(ill,))], ()) == "a"
    assert cluster_job.place(valued, [node("a", taints=({**ill, "value": "GpuThermal"},))], ()) is None
