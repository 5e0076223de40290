"""Everything that listens to the loop, behind one ``tell``."""

import threading
from collections import Counter
from typing import Any

from nodeguard.kube.api import Object
from nodeguard.kube.fake import FakeApi
from nodeguard.model.clock import FakeClock, SystemClock
from nodeguard.model.errors import ApiRefused
from nodeguard.model.policy import Budget, Policy
from nodeguard.remediation.happenings import Happening
from nodeguard.remediation.outlets import Outlets
from nodeguard.sinks.remediation_metrics import RemediationMetrics

from .incident_rig import PATH, happening, written
from .rig import EVICT, Rig
from .test_loop import gang


class Told:
    """A loop whose happenings go through outlets, and the Events that came of them."""

    def __init__(self, **rig: Any) -> None:
        self.rig = Rig(**rig)
        self.metrics = RemediationMetrics()
        self.outlets = Outlets(self.rig.cluster, self.rig.clock, "nodeguard", "replica-1", self.metrics)

    def events(self) -> list[Object]:
        """Every Event, once the outlets have told all."""
        for told in self.rig.told:
            self.outlets.tell(told)
        self.rig.told.clear()
        self.outlets.close()
        return [body for body in self.rig.cluster.under("/api/v1/namespaces") if "reason" in body]

    def about(self, kind: str) -> list[str]:
        """Reasons of the Events about objects of a kind."""
        return [one["reason"] for one in self.events() if one["involvedObject"]["kind"] == kind]


def test_a_gang_s_restart_is_told_on_the_node_and_on_its_owner() -> None:
    """Where whoever runs the training looks, in its namespace, and where whoever runs the cluster looks."""
    told = Told()
    gang(told.rig, "a", "b")
    told.rig.cluster.fault("a", EVICT)
    told.rig.run()
    told.rig.cluster.fault("a")
    told.rig.run(told.rig.policy.release.healthy_for + 1)
    assert told.about("Job") == ["GangSuspended", "GangResumed"]
    assert told.about("Node") == ["RemediationBegun", "GangSuspended", "GangResumed", "RemediationEnded"]
    of_job = next(one for one in told.events() if one["involvedObject"]["kind"] == "Job")
    assert (of_job["metadata"]["namespace"], of_job["involvedObject"]["uid"]) == ("training", "job-llm")
    assert of_job["message"] == "suspended to be restarted on healthy nodes for node a"
    assert (of_job["reportingComponent"], of_job["reportingInstance"]) == ("nodeguard-remediate", "replica-1")
    assert Counter(one["metadata"]["namespace"] for one in told.events()) == {"training": 2, "default": 4}


def test_an_owner_hears_once_that_two_nodes_wanted_its_restart() -> None:
    """Each node's wish is told, the resuming is one."""
    told = Told()
    gang(told.rig, "a", "b", spare=("s1", "s2"))
    told.rig.cluster.fault("a", EVICT)
    told.rig.cluster.fault("b", EVICT)
    told.rig.run()
    assert Counter(told.about("Job")) == {"GangSuspended": 2, "GangResumed": 1}
    assert told.metrics.counters()["remediation_restarts_total", (("kind", "Job"),)] == 1.0
    assert told.metrics.counters()["remediation_begun_total", ()] == 2.0


def test_stuck_pods_are_told_once() -> None:
    """With their names, as a warning."""
    told = Told()
    told.rig.cluster.node("a")
    told.rig.cluster.stuck.add(told.rig.cluster.pod("one", "a"))
    told.rig.run()
    told.rig.cluster.fault("a", EVICT)
    told.rig.run(told.rig.policy.drain.deadline + 1)
    told.rig.run(60)
    stuck = [one for one in told.events() if one["reason"] == "RemediationStuck"]
    assert [(one["type"], one["message"].split(": ", 1)[1]) for one in stuck] == [
        ("Warning", "1 pods do not leave: training/one")]


def test_a_storm_is_told_in_nodeguard_s_namespace() -> None:
    """It concerns no node more than another."""
    told = Told()
    told.outlets.tell(Happening(what="storm", at=1.0, count=77, text="77 nodes newly at fault"))
    told.outlets.tell(Happening(what="storm-over", at=2.0))
    told.outlets.tell(Happening(what="braked", at=3.0, count=11, text="gpu-hot"))
    events = told.events()
    assert {one["metadata"]["namespace"] for one in events} == {"nodeguard"}
    assert [one["message"].partition(":")[0] for one in events] == [
        "77 nodes newly at fault", "nodes at fault are worked on again", "the rule gpu-hot tainted 11 nodes"]


def test_a_dry_run_says_what_it_would_do_and_says_it_once() -> None:
    """Told again by the next replica, it is the same Event."""
    told = Told(policy=Policy(budget=Budget(max_unavailable_percent=50), dry_run=True))
    gang(told.rig, "a", "b")
    told.rig.cluster.fault("a", EVICT)
    told.rig.run()
    first = told.rig.told[:]
    assert told.about("Node") == ["RemediationWould"]
    told.rig.told += first
    assert told.about("Node") == ["RemediationWould"]
    assert PATH not in [one.path for one in told.rig.cluster.writes()]


def test_phases_become_histograms() -> None:
    """Seconds since the fault was detected; each phase once for an incident."""
    told = Told()
    gang(told.rig, "a", "b")
    told.rig.cluster.fault("a", EVICT)
    told.rig.pass_time(0.25)
    told.rig.run()
    told.events()
    one = told.metrics.histograms()["remediation_phase_seconds", (("phase", "suspended"),)]
    assert [count for limit, count in one.counts if limit in ("0.2", "0.3", "+Inf")] == [0.0, 1.0, 1.0]
    assert round(one.total, 3) == 0.25


def test_tell_does_not_wait_for_the_api() -> None:
    """The deciding thread goes on while the API server hangs; everything is told when it answers again."""
    api, hangs, stop = FakeApi(), threading.Event(), threading.Event()

    def hang() -> None:
        hangs.wait(10.0)

    api.before("*", "/api", hang, times=100)
    outlets = Outlets(api, SystemClock(), "nodeguard", "replica-1", RemediationMetrics())
    threads = [threading.Thread(target=run, args=(stop,), name=name) for name, run in outlets.runs.items()]
    for thread in threads:
        thread.start()
    for number in range(50):
        outlets.tell(happening(f"i{number}", at=float(number), node=f"n{number}"))
    assert not api.under("/api/v1/namespaces")
    hangs.set()
    stop.set()
    for thread in threads:
        thread.join(10.0)
        assert not thread.is_alive()
    outlets.close()
    assert outlets.waiting == 0
    assert len(written(api)) == 50


def test_events_that_are_refused_stop_nothing() -> None:
    """Such as in a namespace that is being deleted."""
    api = FakeApi()
    outlets = Outlets(api, FakeClock(), "nodeguard", "replica-1", RemediationMetrics())
    api.fail("POST", "/api/v1/namespaces/default/events", ApiRefused("403", status=403))
    outlets.tell(happening("i1", at=1.0))
    outlets.tell(happening("i2", at=2.0, node="b"))
    outlets.close()
    assert outlets.events.status.refused_total == 1
    assert outlets.events.status.written_total == 1
    assert len(written(api)) == 2
