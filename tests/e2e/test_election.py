"""The leader's Lease on a real API server: two replicas race, one of them is paused in the middle and goes on."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess  # noqa: TID251  # runs the replicas
import sys
import threading
import time
from typing import TYPE_CHECKING, Self

import pytest

from nodeguard.kube.client import KubeClient
from nodeguard.kube.election import DURATION, LEDGER, RENEW_EVERY, LeaderLease
from nodeguard.kube.informer import Informer
from nodeguard.model.clock import FakeClock, SystemClock
from nodeguard.model.errors import ApiUnavailable

from .agents import ROOT, eventually, reaper

if TYPE_CHECKING:
    from pathlib import Path

    from .controlplane.admin import Admin, Object
    from .controlplane.cluster import Cluster

NAME = "election"


class Elector:
    """A replica as a process. A context manager: leaving it kills what still runs."""

    def __init__(self, cluster: Cluster, namespace: str, identity: str, directory: Path) -> None:
        self._out, self._err = directory / f"{identity}.out", directory / f"{identity}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.elector", str(cluster.kubeconfig), namespace, NAME, identity],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        reaper().watch(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        reaper().forget(self._process.pid)

    def marks(self) -> list[str]:
        """What it wrote, as far as it was acknowledged."""
        return self._out.read_text().split()

    def trouble(self) -> str:
        """What it could not write, and its traces."""
        return self._err.read_text()

    def tell(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end."""
        return self._process.wait(20)

    def wait_more(self, seconds: float = 30.0) -> None:
        """Wait until it has written more than now."""
        before = len(self.marks())
        eventually(lambda: len(self.marks()) > before + 3, "it writes the ledger", seconds, self.trouble)


def ledger_of(admin: Admin, namespace: str) -> Object:
    """What stands on the Lease."""
    lease = admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{NAME}")
    found: Object = json.loads(lease["metadata"]["annotations"][LEDGER])
    return found


def test_a_paused_leader_is_replaced_and_writes_nothing_when_it_goes_on(
    control_plane: Cluster, admin: Admin, namespace: str, tmp_path: Path
) -> None:
    """Terms follow each other in the ledger, what was acknowledged stands there once, a clean end costs no waiting."""
    with Elector(control_plane, namespace, "a", tmp_path) as a:
        a.wait_more()
        with Elector(control_plane, namespace, "b", tmp_path) as b:
            time.sleep(2 * RENEW_EVERY)
            assert b.marks() == []
            a.tell(signal.SIGSTOP)
            b.wait_more(DURATION + 4 * RENEW_EVERY)
            paused = a.marks()
            a.tell(signal.SIGCONT)
            b.wait_more()
            time.sleep(2 * RENEW_EVERY)
            assert a.marks() == paused, "it wrote although it had been replaced"
            b.tell(signal.SIGTERM)
            assert b.wait() == 0
            a.wait_more(2 * RENEW_EVERY + 2.0)
            a.tell(signal.SIGTERM)
            assert a.wait() == 0
    marks: list[str] = ledger_of(admin, namespace)["marks"]
    terms = [holder for holder, _ in itertools.groupby(mark[0] for mark in marks)]
    assert terms == ["a", "b", "a"]
    assert len(set(marks)) == len(marks)
    assert set(a.marks() + b.marks()) <= set(marks)
    # a write that was under way when it was paused may have been done without its being told
    assert len(marks) - len(a.marks()) - len(b.marks()) <= 1


def test_a_stale_leaders_write_is_refused_by_the_server(control_plane: Cluster, namespace: str, admin: Admin) -> None:
    """Even one whose own clock stood still and that believes in itself cannot change the ledger."""
    api, clock = KubeClient.from_kubeconfig(control_plane.kubeconfig), FakeClock()
    stale = LeaderLease(api, namespace, NAME, "stale", FakeClock())
    heir = LeaderLease(api, namespace, NAME, "heir", clock)
    assert stale.turn(), stale.failure
    stale.update_ledger(lambda _: {"by": "stale"})
    assert not heir.turn()
    clock.advance(DURATION)
    assert heir.turn(), heir.failure
    assert stale.leading()
    with pytest.raises(ApiUnavailable, match="heir leads"):
        stale.update_ledger(lambda ledger: {**ledger, "twice": True})
    assert not stale.leading()
    heir.update_ledger(lambda ledger: {**ledger, "heir": True})
    assert ledger_of(admin, namespace) == {"by": "stale", "heir": True}
    heir.release()
    assert stale.turn(), stale.failure
    api.close()


def test_an_informer_follows_pages_and_changes_of_a_real_server(
    control_plane: Cluster, admin: Admin, namespace: str
) -> None:
    """More than a page of objects, each told once; then changes, and an object that leaves the selection."""
    api, count = KubeClient.from_kubeconfig(control_plane.kubeconfig), 503
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for number in range(count):
        admin.create(path, {"metadata": {"name": f"c{number}", "labels": {"test": "yes"}}, "data": {"v": "1"}})
    told: dict[str, list[tuple[str | None, str | None]]] = {}
    informer: Informer[str] = Informer(
        api, path, SystemClock(), reduce=lambda one: one["data"]["v"], params={"labelSelector": "test=yes"})
    stop = threading.Event()
    thread = threading.Thread(target=informer.run, args=(
        lambda key, old, new: told.setdefault(key, []).append((old, new)), stop))
    thread.start()
    assert informer.synced.wait(30)
    assert set(map(tuple, told.values())) == {((None, "1"),)}
    assert (len(told), informer.healthy(SystemClock().boot())) == (count, True)
    admin.patch(f"{path}/c1", {"data": {"v": "2"}}, "application/merge-patch+json")
    admin.patch(f"{path}/c2", {"metadata": {"labels": {"test": "no"}}}, "application/merge-patch+json")
    admin.delete(f"{path}/c3")
    eventually(lambda: len(told[f"{namespace}/c3"]) > 1, "the deletion is told", 10)
    stop.set()
    thread.join(10)
    assert [told[f"{namespace}/c{number}"][1:] for number in (1, 2, 3)] == [[("1", "2")], [("1", None)], [("1", None)]]
    api.close()
