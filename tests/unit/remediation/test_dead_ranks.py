"""A broken GPU has killed its rank before anybody acts: the gang hangs without it, and is restarted whole."""

import pytest

from nodeguard.kube.patches import rfc3339

from .rig import EVICT, Rig
from .test_loop import JOB, gang

DEVICE: dict[str, object] = {**EVICT, "scope": "device", "pods": []}
"""The agent names no pod: the processes on the GPU are gone."""


def fail(rig: Rig, pod: str, ago: float = 1.0) -> None:
    """The pod's container has ended, and its restart policy lets it."""
    ended = {"state": {"terminated": {"exitCode": 1, "finishedAt": rfc3339(rig.cluster.now - ago)}}}
    rig.cluster.edit(f"/api/v1/namespaces/training/pods/{pod}", lambda body: body.update(
        status={"phase": "Failed", "containerStatuses": [ended]}))


@pytest.mark.parametrize("fault", [EVICT, DEVICE])
def test_the_gang_of_a_dead_rank_is_restarted_once(fault: dict[str, object]) -> None:
    """The job controller would only make the one rank anew, while the others wait for it in a collective."""
    rig = Rig()
    gang(rig, "a", "b", restart_policy="Never")
    fail(rig, "llm-0")
    rig.cluster.fault("a", fault)
    rig.run(settle=False)
    assert rig.cluster.read(JOB)["spec"]["suspend"] is True
    rig.run(40)
    assert rig.cluster.read(JOB)["spec"]["suspend"] is False
    assert rig.happened("suspended") == ["suspended"]
    assert rig.state("a") == "repairing"
    alive = {pod["spec"].get("nodeName") for pod in rig.cluster.pods().values() if pod["status"]["phase"] != "Failed"}
    assert alive == {"b", "spare"}
    assert rig.evictions() == []


def test_what_failed_long_before_is_no_victim() -> None:
    """An old crash on the node says nothing of its gang."""
    rig = Rig()
    gang(rig, "a", "b", restart_policy="Never")
    fail(rig, "llm-0", ago=3600)
    rig.run(settle=False)
    rig.cluster.fault("a", DEVICE)
    rig.run(settle=False)
    assert rig.happened("suspended") == []
    assert rig.state("a") == "repairing"


def test_only_gangs_miss_a_dead_rank() -> None:
    """A lone rank, and a pod of a kind that makes its own again, are not touched; a finished one is no dead one."""
    rig = Rig()
    gang(rig, "a")
    replicas = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs"}
    rig.cluster.add("/apis/apps/v1/namespaces/training/replicasets/rs", {"metadata": {
        "name": "rs", "namespace": "training", "uid": "rs"}})
    rig.cluster.pod("serving", "a", owner=replicas)
    rig.cluster.pod("done", "a", owner=replicas, phase="Succeeded")
    rig.run(settle=False)
    fail(rig, "llm-0")
    fail(rig, "serving")
    rig.cluster.fault("a", EVICT)
    rig.run(settle=False)
    assert (rig.happened("suspended"), rig.evictions()) == ([], [])
    assert rig.state("a") == "repairing"


def test_a_gang_that_a_person_suspended_does_not_keep_the_node() -> None:
    """It is asked once, left alone, and the node goes on."""
    rig = Rig()
    gang(rig, "a", "b", restart_policy="Never")
    fail(rig, "llm-0")
    rig.cluster.edit(JOB, lambda job: job["spec"].update(suspend=True))
    rig.cluster.fault("a", EVICT)
    rig.run(40)
    assert rig.cluster.writes(JOB) == []
    assert rig.state("a") == "repairing"
