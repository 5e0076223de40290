"""Draining, as the written-down case C48 has it."""

from typing import Any

import pytest

from nodeguard.model.errors import ApiNotFound, ApiUnavailable
from nodeguard.remediation.views import node_view

from .field import DAEMONS, JOB, REPLICAS, STATEFUL, eviction, one_node
from .rig import EVICT, POLICY


def test_c48_a_pod_is_waited_for_until_it_is_gone() -> None:
    """The node is not drained while it still ends."""
    rig = one_node()
    uid = rig.cluster.pod("t1", "a")
    rig.cluster.stuck.add(uid)
    rig.run()
    rig.cluster.fault("a", EVICT)
    rig.run(20)
    assert (rig.state("a"), rig.evictions()) == ("draining", ["t1"])
    rig.cluster.stuck.clear()
    rig.run()
    assert rig.state("a") == "repairing"


def test_c48_a_pod_that_moved_is_never_evicted_on_its_new_node() -> None:
    """429 twice, then the name is another pod's elsewhere: one with that UID was never asked for."""
    rig = one_node("b")
    first = rig.cluster.pod("s-0", "a", owner=STATEFUL)
    rig.cluster.blocked.add("training/s-0")
    rig.run()
    rig.cluster.fault("a", EVICT)
    rig.run()
    rig.run(0.5)
    assert len(rig.evictions()) == 2
    rig.cluster.blocked.clear()
    rig.cluster.remove("/api/v1/namespaces/training/pods/s-0")
    second = rig.cluster.pod("s-0", "b", owner=STATEFUL)
    rig.run(60)
    asked = {one.body["deleteOptions"]["preconditions"]["uid"] for one in rig.cluster.requests
             if one.method == "POST" and one.path.endswith("/eviction") and one.body}
    assert asked == {first}
    assert rig.cluster.pods()["training/s-0"]["metadata"]["uid"] == second
    assert rig.state("a") == "repairing"


def test_c48_a_stale_view_does_not_evict_the_namesake() -> None:
    """The watch has not told yet that the pod moved: the UID in the request keeps the new one."""
    rig = one_node("b")
    rig.cluster.pod("s-0", "a", owner=STATEFUL)
    rig.run()
    rig.cluster.remove("/api/v1/namespaces/training/pods/s-0")
    second = rig.cluster.pod("s-0", "b", owner=STATEFUL)
    rig.cluster.fault("a", EVICT)
    for name, body in rig.cluster.nodes().items():
        rig.loop.node_changed(name, None, node_view(body))
    for _ in range(6):
        rig.loop.turn()
    assert rig.evictions() == ["s-0"]
    pod = rig.cluster.pods()["training/s-0"]
    assert (pod["metadata"]["uid"], "deletionTimestamp" in pod["metadata"]) == (second, False)


def test_c48_daemon_set_mirror_and_finished_pods_are_left() -> None:
    """And the drain does not wait for them."""
    rig = one_node()
    rig.cluster.pod("d", "a", owner=DAEMONS)
    rig.cluster.pod("m", "a", annotations={"kubernetes.io/config.mirror": "x"})
    rig.cluster.pod("done", "a", phase="Succeeded")
    rig.cluster.pod("failed", "a", phase="Failed")
    rig.run()
    rig.cluster.fault("a", EVICT)
    rig.run()
    assert (rig.evictions(), rig.state("a")) == ([], "repairing")


def test_c48_a_pod_that_ends_already_is_waited_for_without_a_call() -> None:
    """Its eviction would be answered with 429."""
    rig = one_node()
    rig.cluster.stuck.add(rig.cluster.pod("t1", "a"))
    rig.cluster._end("/api/v1/namespaces/training/pods/t1")  # noqa: SLF001 # the test's own cluster
    rig.run()
    rig.cluster.fault("a", EVICT)
    rig.run(60)
    assert (rig.evictions(), rig.state("a")) == ([], "draining")


def test_c48_a_budget_that_never_allows_is_reported_and_not_forced() -> None:
    """Asked ever more slowly; after the deadline "drain blocked by PDB"; no deletion; it goes on when allowed."""
    rig = one_node()
    rig.cluster.pod("crashing", "a", owner=REPLICAS)
    rig.cluster.blocked.add("training/crashing")
    rig.run()
    rig.cluster.fault("a", EVICT)
    for _ in range(12):
        rig.run(POLICY.drain.pdb_deadline / 12 + 1, rounds=3)
    assert rig.state("a") == "stuck"
    record = rig.record("a")
    assert record is not None
    assert record["reason"].startswith("drain blocked by PDB")
    assert "training/crashing" in record["reason"]
    assert len(rig.evictions()) < 30
    assert [one for one in rig.cluster.requests if one.method == "DELETE"] == []
    rig.cluster.blocked.clear()
    rig.run(15).run(15)
    assert rig.state("a") == "repairing"


def test_c48_a_budget_over_a_gang_keeps_it_from_being_suspended() -> None:
    """Suspending passes budgets by, so they are asked before; reported after the same deadline."""
    rig = one_node("b", "spare")
    rig.cluster.job("llm", ("a", "b"))
    rig.cluster.add("/apis/policy/v1/namespaces/training/poddisruptionbudgets/strict", {
        "metadata": {"name": "strict", "namespace": "training", "labels": {}}, "spec": {"selector": {}},
        "status": {"disruptionsAllowed": 0}})
    rig.run()
    rig.cluster.fault("a", EVICT)
    for _ in range(12):
        rig.run(POLICY.drain.pdb_deadline / 12 + 1, rounds=3)
    record = rig.record("a")
    assert record is not None
    assert (record["state"], "training/strict" in record["reason"]) == ("stuck", True)
    assert rig.cluster.writes(JOB) == []


@pytest.mark.parametrize(("error", "asked"), [(ApiNotFound("gone", status=404), 1),
                                              (ApiUnavailable("broken", status=500), 2)])
def test_c48_404_is_done_and_500_is_tried_again(error: Any, asked: int) -> None:
    """Drained only when the pod is gone from the view."""
    rig = one_node()
    rig.cluster.pod("t1", "a")
    rig.run()
    rig.cluster.fail("POST", eviction("t1"), error)
    rig.cluster.fault("a", EVICT)
    rig.run(2)
    assert len(rig.evictions()) == asked
    assert rig.state("a") == ("draining" if asked == 1 else "repairing")

