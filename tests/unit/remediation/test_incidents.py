"""Incidents: the timeline and the decision record."""

import dataclasses

import pytest

from nodeguard.kube.fake import FakeApi
from nodeguard.model.clock import FakeClock
from nodeguard.remediation.happenings import Happening
from nodeguard.remediation.incidents import Incidents
from nodeguard.remediation.incidents_entry import PHASES
from nodeguard.remediation.recall import recall
from nodeguard.remediation.record import Record

from .incident_rig import PATH, finished, happening, incidents_of, written
from .rig import EVICT, POLICY, Rig
from .test_loop import gang


def test_a_gang_s_life_has_every_phase_in_order() -> None:
    """From the fault to the release, with what the decision rested on."""
    rig = Rig(policy=dataclasses.replace(POLICY, hash="policy-1"))
    gang(rig, "a", "b")
    rig.cluster.fault("a", {**EVICT, "evidence": "Xid 95, uncontained"})
    rig.pass_time(0.25)
    rig.run()
    rig.cluster.fault("a")
    rig.run(rig.policy.release.healthy_for + 1)
    one = finished(rig)
    assert [phase for phase in PHASES if phase in one.stamps] == [
        "detected", "conditioned", "quarantined", "suspended", "gone", "resumed", "bound", "running", "repaired",
        "verified", "released"]
    assert list(one.stamps.values()) == sorted(one.stamps.values())
    assert one.since_detected("quarantined") == pytest.approx(0.25)
    assert (one.outcome, one.machine, one.node, one.uid) == ("released", "sim://a", "a", "uid-a")
    assert (one.action, one.rules, one.rule_set, one.policy) == ("reset_gpu", (EVICT["rule"],), "r1", "policy-1")
    (fault,) = one.faults
    assert (fault["hash"], fault["evidence"]) == (EVICT["hash"], "Xid 95, uncontained")
    assert one.owners == {"job-llm": "Job training/llm"}


def test_restarts_outlive_the_node_s_marks() -> None:
    """The next leader reads from the ring when each owner was restarted, also after the release."""
    rig = Rig()
    gang(rig, "a", "b")
    rig.cluster.fault("a", EVICT)
    rig.run()
    rig.cluster.fault("a")
    rig.run(rig.policy.release.healthy_for + 1)
    incidents_of(rig).close()
    (restart,) = recall(rig.cluster, "nodeguard")
    assert (restart.owner, restart.name) == ("job-llm", "Job training/llm")
    again = Rig(cluster=rig.cluster)
    again.loop.restarts.remember([restart])
    assert again.loop.restarts.history()["job-llm"] == (restart.at,)


def test_pods_evicted_one_by_one_are_named() -> None:
    """With their number; a bare pod is no owner."""
    rig = Rig()
    rig.cluster.node("a")
    rig.cluster.pod("one", "a", gpus=4)
    rig.cluster.pod("two", "a", gpus=4)
    rig.run()
    rig.cluster.fault("a", EVICT)
    rig.run()
    one = finished(rig)
    assert (sorted(one.pods), one.evicted, one.owners) == (["training/one", "training/two"], 2, {})
    assert "evicted" in one.stamps
    assert one.outcome == ""


def test_ranks_that_failed_before_are_a_phase() -> None:
    """The Job controller's back-off is nodeguard's to tell, not to hide."""
    rig = Rig()
    gang(rig, "a", "b", restart_policy="Never")
    rig.cluster.edit("/apis/batch/v1/namespaces/training/jobs/llm", lambda job: job.update(status={"failed": 1}))
    rig.cluster.fault("a", EVICT)
    rig.run()
    one = finished(rig)
    assert one.stamps["job-backoff"] == one.stamps["suspended"]


def test_what_was_waited_for_stays_known() -> None:
    """Why a gang was not restarted at once."""
    rig = Rig()
    gang(rig, "a", "b", spare=())
    rig.cluster.fault("a", EVICT)
    rig.run(2)
    one = finished(rig)
    assert [text for _, text in one.waited] == ["no spare seats for Job training/llm"]


def test_a_node_that_is_deleted_keeps_its_incident() -> None:
    """Keyed by the machine, so that its Node made anew is known again."""
    rig = Rig()
    gang(rig, "a", "b")
    rig.cluster.fault("a", EVICT)
    rig.run()
    rig.cluster.remove("/api/v1/nodes/a")
    rig.run()
    one = finished(rig)
    assert (one.outcome, one.node) == ("node-deleted", "a")
    assert one.key == f"sim___a.{one.id}"
    assert one.key in rig.cluster.read(PATH)["data"]


def test_a_repair_that_does_not_last_is_taken_back() -> None:
    """The node is at fault again while it proves itself."""
    rig = Rig()
    gang(rig, "a", "b")
    rig.cluster.fault("a", EVICT)
    rig.run()
    rig.cluster.fault("a")
    rig.run(5)
    assert "repaired" in finished(rig).stamps
    rig.cluster.fault("a", EVICT)
    rig.run()
    assert "repaired" not in finished(rig).stamps


def test_an_older_incident_of_the_machine_ends_with_a_new_one() -> None:
    """Its end was lost with the leader that saw it."""
    api = FakeApi()
    incidents = Incidents(api, FakeClock(), "nodeguard")
    incidents.take(happening("i1", at=10.0))
    incidents.take(happening("i2", at=20.0))
    incidents.take(happening("i3", at=20.0, node="b"))
    incidents.close()
    assert [(one.id, one.outcome) for one in written(api)] == [("i1", "superseded"), ("i2", ""), ("i3", "")]


def test_the_same_work_begun_again_begins_a_new_timeline() -> None:
    """As after a person's hold; its restarts stay known."""
    api = FakeApi()
    incidents = Incidents(api, FakeClock(), "nodeguard")
    incidents.take(happening("i1", at=10.0))
    incidents.take(happening("i1", at=10.5, what="suspended"))
    incidents.take(happening("i1", at=11.0, what="closed", text="cancelled"))
    incidents.close()
    taken = incidents.take(happening("i1", at=50.0))
    assert taken is not None
    assert (taken.incident.outcome, taken.incident.begun) == ("", 50.0)
    assert set(taken.reached) == {"quarantined"}
    incidents.close()
    other = Incidents(api, FakeClock(), "nodeguard")
    other.take(happening("i1", at=60.0, what="gone"))
    other.close()
    (one,) = written(api)
    assert set(one.stamps) == {"quarantined", "gone"}


def test_what_belongs_to_no_incident_is_none() -> None:
    """A storm, or the end of work on a Node that nobody knows."""
    incidents = Incidents(FakeApi(), FakeClock(), "nodeguard")
    assert incidents.take(Happening(what="storm", at=1.0)) is None
    gone = Happening(what="closed", at=1.0, record=Record(state="quarantined", incident="i", since=0.0))
    assert incidents.take(gone) is None
    assert incidents.unwritten == 0
