"""The writer of the agent's Lease: soon, never a flood, through every outage."""

import threading

import pytest

from nodeguard.kube.fake import FakeApi
from nodeguard.kube.pace import spread_of
from nodeguard.model.clock import FakeClock
from nodeguard.model.errors import ApiRefused, ApiUnavailable
from nodeguard.sinks.lease import LeaseWriter

NODES, NODE = "/api/v1/nodes", "/api/v1/nodes/gpu-7"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/nodeguard/leases"
LEASE = f"{LEASES}/gpu-7"


class Rig:
    """A writer, its API and its clock, in a cluster of so many nodes."""

    def __init__(self, nodes: int = 1) -> None:
        self.api, self.clock = FakeApi(), FakeClock()
        self.api.add(NODE, {"metadata": {"name": "gpu-7", "uid": "u1"}})
        self.resize(nodes)
        self.reports: list[tuple[str, str]] = []
        self.writer = LeaseWriter(self.api, "gpu-7", "nodeguard", self.clock,
                                  report=lambda *told: self.reports.append(told))

    def resize(self, nodes: int) -> None:
        """Let the list of Nodes say another number."""
        self.api.add(NODES, {"items": [{}], "metadata": {"remainingItemCount": nodes - 1}})

    def turn(self) -> float:
        """Renew, and let the wait pass; how long it was."""
        wait = self.writer.turn()
        self.clock.advance(wait)
        return wait

    def run(self, seconds: float) -> None:
        """Turn for so long."""
        end = self.clock.boot() + seconds
        while self.clock.boot() < end:
            self.turn()


@pytest.mark.parametrize(("nodes", "period"), [(1, 2.0), (400, 2.0), (1000, 5.0)])
def test_renews_in_the_cluster_s_period(nodes: int, period: float) -> None:
    """Created at once; then one small write a period, which is spread by the node's name."""
    rig = Rig(nodes)
    wait = rig.turn()
    assert wait == pytest.approx(period * (1 + 0.1 * spread_of("gpu-7")))
    first = rig.api.read(LEASE)["spec"]["renewTime"]
    writes = len(rig.api.writes())
    rig.run(60.0)
    assert len(rig.api.writes()) - writes == pytest.approx(60.0 / wait, abs=1)
    assert rig.api.read(LEASE)["spec"]["renewTime"] > first
    assert rig.api.read(LEASE)["metadata"]["ownerReferences"][0]["uid"] == "u1"


def test_nodes_are_counted_each_ten_minutes() -> None:
    """A cluster that grew is told so by its agents writing less often."""
    rig = Rig(1)
    rig.turn()
    rig.resize(2000)
    rig.run(500.0)
    assert rig.api.read(LEASE)["spec"]["leaseDurationSeconds"] == 6
    rig.run(200.0)
    assert rig.api.read(LEASE)["spec"]["leaseDurationSeconds"] == 30


def test_a_count_that_fails_does_not_silence_it() -> None:
    """It renews in the last known period, and asks again after a minute, not each time."""
    rig = Rig(1000)
    rig.turn()
    rig.api.fail("GET", NODES, ApiRefused("no right to list", status=403), times=1000)
    rig.run(700.0)
    renewed = rig.writer.status.renewals_total
    rig.run(300.0)
    assert rig.writer.status.renewals_total - renewed >= 50
    assert rig.writer.status.errors_total <= 7
    assert rig.api.read(LEASE)["spec"]["leaseDurationSeconds"] == 15


def test_outage_is_outlived_without_a_flood() -> None:
    """One try a period while the server is away, one report for it and one for its end."""
    rig = Rig()
    rig.turn()
    rig.api.fail("*", LEASES, ApiUnavailable("no answer"), times=10_000)
    tries = len(rig.api.requests)
    rig.run(3600.0)
    assert len(rig.api.requests) - tries <= 3600 / 1.8 + 10
    rig.api.heal()
    rig.turn()
    assert [what for what, _ in rig.reports] == ["failing", "recovered"]
    assert rig.writer.status.last_error is None
    assert rig.writer.status.renewed_at is not None


def test_server_may_ask_for_patience() -> None:
    """Retry-After is honoured, up to a minute."""
    rig = Rig()
    rig.api.fail("PATCH", LEASE, ApiUnavailable("busy", status=429, retry_after=30.0))
    rig.api.fail("PATCH", LEASE, ApiUnavailable("busy", status=429, retry_after=86_400.0), times=2)
    assert rig.writer.turn() in (30.0, 60.0)
    assert rig.writer.turn() == 60.0


def test_lease_that_is_gone_is_created_for_the_node_as_it_is_now() -> None:
    """After its Node was deleted and registered anew."""
    rig = Rig()
    rig.turn()
    rig.api.remove(LEASE)
    rig.api.edit(NODE, lambda node: node["metadata"].update(uid="u2"))
    rig.turn()
    assert rig.api.read(LEASE)["metadata"]["ownerReferences"][0]["uid"] == "u2"


def test_run_ends_when_told() -> None:
    """While it waits, too."""
    rig, stop = Rig(), threading.Event()
    rig.api.before("PATCH", LEASE, stop.set)
    rig.writer.run(stop)
    assert rig.writer.status.renewals_total == 1
