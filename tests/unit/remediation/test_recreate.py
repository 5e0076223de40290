"""Jobs with ranks that failed by themselves are made anew where the policy says so, and never lost on the way."""

import dataclasses
import json
from typing import Any

import pytest

from nodeguard.app import cleanup
from nodeguard.kube.api import Object
from nodeguard.model.errors import ApiConflict, ApiRefused, ApiUnavailable
from nodeguard.model.policy import Gangs
from nodeguard.remediation import recreate

from .rig import EVICT, POLICY, Rig
from .test_crash import Killed, Mortal, MortalCluster, MortalLedger

JOB = "/apis/batch/v1/namespaces/training/jobs/llm"
STORE = f"/api/v1/namespaces/nodeguard/configmaps/{recreate.CONFIG_MAP}"
RECREATE = dataclasses.replace(POLICY, gangs=Gangs(recreate_failed_jobs=True))


def failed_job(rig: Rig, **spec: Any) -> None:
    """A Job of two ranks under ``Never``, one of which has failed before, on a node that now falls ill."""
    for name in ("a", "b", "spare"):
        rig.cluster.node(name)
        rig.cluster.fault(name)
    rig.cluster.job("llm", ("a", "b"), restart_policy="Never", labels={"team": "x", "job-name": "llm"}, **spec)

    def fail(job: Object) -> None:
        job["status"] = {"failed": 1}
        job["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": "job-llm"}}
        job["spec"]["template"]["metadata"] = {"labels": {"controller-uid": "job-llm", "app": "llm"}}
        job["metadata"]["annotations"] = {"note": "kept"}
    rig.cluster.edit(JOB, fail)
    rig.run()
    rig.cluster.fault("a", EVICT)


def stored(rig: Rig) -> Object:
    """What is kept of Jobs on their way."""
    return {uid: json.loads(text) for uid, text in rig.cluster.read(STORE)["data"].items()}


def deletions(rig: Rig) -> int:
    """How many Jobs were deleted."""
    return sum(1 for one in rig.cluster.writes(JOB) if one.method == "DELETE")


def test_it_is_made_anew_as_a_person_would() -> None:
    """Without the Job controller's words, with everybody else's; on healthy nodes; nothing stays stored."""
    rig = Rig(policy=RECREATE)
    failed_job(rig)
    rig.run()
    job = rig.cluster.read(JOB)
    assert job["metadata"]["uid"] != "job-llm"
    assert (job["metadata"]["labels"], job["metadata"]["annotations"]) == ({"team": "x"}, {"note": "kept"})
    assert "selector" not in job["spec"]
    assert job["spec"]["template"]["metadata"] == {"labels": {"app": "llm"}}
    assert {pod["spec"]["nodeName"] for pod in rig.cluster.pods().values()} == {"b", "spare"}
    assert stored(rig) == {}
    assert (deletions(rig), rig.happened("suspended", "resumed")) == (1, ["suspended", "resumed"])


@pytest.mark.parametrize("why", ["off", "none failed", "owned", "queued", "done", "suspended"])
def test_others_are_left_to_the_ordinary_way(why: str) -> None:
    """Without the opt-in; without failed ranks; with an owner or a queue; ended or suspended Jobs."""
    rig = Rig(policy=POLICY if why == "off" else RECREATE)
    failed_job(rig)
    top = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "set", "controller": True}
    if why == "owned":
        rig.cluster.add("/apis/jobset.x-k8s.io/v1alpha2/namespaces/training/jobsets/set", {
            "kind": "JobSet", "metadata": {"name": "set", "namespace": "training", "uid": "set", "labels": {}},
            "spec": {}})

    def change(job: Object) -> None:
        job["metadata"]["ownerReferences"] = [top] if why == "owned" else []
        job["metadata"]["labels"].update({"kueue.x-k8s.io/queue-name": "q"} if why == "queued" else {})
        job["status"] = {"failed": 0 if why == "none failed" else 1,
                         "conditions": [{"type": "Complete", "status": "True"}] if why == "done" else []}
        job["spec"]["suspend"] = why == "suspended"
    rig.cluster.edit(JOB, change)
    fresh = Rig(rig.cluster, policy=rig.policy)
    fresh.run()
    assert deletions(fresh) == 0


@pytest.mark.parametrize("lost", ["delete", "create", "store"])
def test_a_lost_answer_loses_no_job(lost: str) -> None:
    """Whichever answer does not arrive: the Job is there in the end, once."""
    rig = Rig(policy=RECREATE)
    failed_job(rig)
    method, path = {"delete": ("DELETE", JOB), "create": ("POST", JOB.rpartition("/")[0]),
                    "store": ("POST", STORE.rpartition("/")[0])}[lost]
    rig.cluster.lose(method, path)
    rig.run(40).run(40)
    assert rig.cluster.read(JOB)["metadata"]["uid"] != "job-llm"
    assert stored(rig) == {}
    assert deletions(rig) in (1, 2)


def test_another_loop_makes_what_a_dying_one_deleted() -> None:
    """From what is stored, at its start."""
    rig = Rig(policy=RECREATE)
    failed_job(rig)
    rig.cluster.fail("POST", JOB.rpartition("/")[0], ApiUnavailable("down"), times=99)
    rig.run()
    assert rig.cluster.under(JOB.rpartition("/")[0]) == []
    rig.cluster.heal()
    other = Rig(rig.cluster, policy=POLICY, ledger=rig.ledger).run()
    assert other.cluster.read(JOB)["metadata"]["uid"].startswith("made-")
    assert stored(other) == {}


def test_one_that_somebody_else_made_is_kept() -> None:
    """A pipeline that creates the Job again meanwhile has what it wants."""
    rig = Rig(policy=RECREATE)
    failed_job(rig)
    rig.cluster.fail("POST", JOB.rpartition("/")[0], ApiUnavailable("down"), times=99)
    rig.run()
    rig.cluster.heal()
    rig.cluster.job("llm", ())
    rig.run(2)
    assert rig.cluster.read(JOB)["metadata"]["uid"] == "job-llm"
    assert rig.cluster.read(JOB)["spec"]["completions"] == 0


@pytest.mark.parametrize(("error", "suspended"), [
    (ApiRefused("forbidden", status=403), 1), (ApiConflict("changed", status=409), 0)])
def test_a_refused_deletion_leaves_nothing_stored(error: Any, suspended: int) -> None:
    """Else a Job that its owner deletes later would come back. Without the right, it is restarted as others are."""
    rig = Rig(policy=RECREATE)
    failed_job(rig)
    rig.cluster.fail("DELETE", JOB, error)
    rig.run(rounds=4, settle=False)
    assert stored(rig) == {}
    assert len(rig.happened("suspended")) == suspended


def test_cleanup_makes_the_job_before_it_drops_what_is_stored() -> None:
    """And keeps it stored while the Job cannot be made."""
    rig = Rig(policy=RECREATE)
    failed_job(rig)
    rig.cluster.fail("POST", JOB.rpartition("/")[0], ApiUnavailable("down"), times=99)
    rig.run()
    found = [mark for mark in cleanup.find(rig.cluster, "nodeguard", failed=lambda _: None, note=lambda _: None)
             if mark.kind in ("Job", "ConfigMap")]
    assert [mark.name for mark in found] == ["training/llm", "nodeguard/nodeguard-recreate"]
    with pytest.raises(ApiConflict):
        found[1].remove()
    rig.cluster.heal()
    for mark in found:
        mark.remove()
    assert rig.cluster.read(JOB)["metadata"]["uid"].startswith("made-")
    with pytest.raises(KeyError):
        rig.cluster.read(STORE)


@pytest.mark.parametrize("after", range(1, 12))
def test_killed_after_any_write_the_job_is_there_in_the_end(after: int) -> None:
    """Stored, deleted, made: whichever write is the last one, another loop ends with one Job that runs."""
    cluster, ledger = MortalCluster(), MortalLedger()
    rig = Rig(cluster, policy=RECREATE, ledger=ledger)
    failed_job(rig)
    cluster.mortal = ledger.mortal = Mortal(after)
    try:
        rig.run()
    except Killed:
        cluster.mortal = ledger.mortal = None
        rig = Rig(cluster, policy=RECREATE, ledger=ledger).run().run(31)
    job = cluster.read(JOB)
    assert job["metadata"]["uid"].startswith("made-")
    assert not job["spec"].get("suspend")
    assert deletions(rig) == 1
    assert stored(rig) == {}
    assert {pod["spec"]["nodeName"] for pod in cluster.pods().values()} == {"b", "spare"}
