"""The loop is killed after every single write, and another one goes on."""

from collections.abc import Callable
from typing import Any

import pytest

from .cluster import NODES, Cluster
from .rig import EVICT, FakeLedger, Rig

JOB = "/apis/batch/v1/namespaces/training/jobs/llm"


class Killed(BaseException):
    """No code of ours may catch it, as none can catch SIGKILL."""


class Mortal:
    """Counts writes to the API and to the ledger, and dies after the n-th."""

    def __init__(self, after: int) -> None:
        self.after, self.count = after, 0

    def written(self) -> None:
        """One more write has been done."""
        self.count += 1
        if self.count == self.after:
            raise Killed


class MortalCluster(Cluster):
    """Its writes are counted while a loop is alive."""

    mortal: Mortal | None = None

    def _deadly(self, write: Callable[..., Any], *args: Any) -> Any:
        done = write(*args)
        if self.mortal is not None:
            self.mortal.written()
        return done

    def patch(self, *args: Any) -> Any:
        """See :class:`Cluster`."""
        return self._deadly(super().patch, *args)

    def post(self, *args: Any) -> Any:
        """See :class:`Cluster`."""
        return self._deadly(super().post, *args)


    def delete(self, *args: Any) -> Any:
        """See :class:`Cluster`."""
        return self._deadly(super().delete, *args)


class MortalLedger(FakeLedger):
    """Likewise."""

    mortal: Mortal | None = None

    def update_ledger(self, change: Callable[[Any], Any]) -> Any:
        """See :class:`FakeLedger`."""
        done = super().update_ledger(change)
        if done is not None and self.mortal is not None:
            self.mortal.written()
        return done


def story(after: int) -> tuple[Rig, MortalCluster, Mortal]:
    """A gang and a lone pod on a node that falls ill and recovers, with one death after the n-th write."""
    cluster, ledger, mortal = MortalCluster(), MortalLedger(), Mortal(after)
    rig = Rig(cluster, ledger=ledger)
    for name in ("a", "b", "c", "d"):
        cluster.node(name)
        cluster.fault(name)
    cluster.job("llm", ("a", "b"))
    cluster.edit("/api/v1/namespaces/training/pods/llm-0", lambda pod: pod["spec"]["containers"][0].update(
        resources={"limits": {"nvidia.com/gpu": "4"}}))
    cluster.pod("lone", "a", gpus=4)
    rig.run()
    cluster.mortal = ledger.mortal = mortal
    cluster.fault("a", EVICT)
    rig = lives(rig, cluster, ledger)
    cluster.fault("a")
    rig = lives(rig, cluster, ledger, seconds=rig.policy.release.healthy_for + 1)
    return rig, cluster, mortal


def lives(rig: Rig, cluster: MortalCluster, ledger: MortalLedger, seconds: float = 0.0) -> Rig:
    """Run on; after a death another loop begins with what stands in the cluster."""
    try:
        return rig.run(seconds)
    except Killed:
        cluster.mortal = ledger.mortal = None
        return Rig(cluster, ledger=ledger).run(seconds).run(61)


def writes_of_a_whole_life() -> int:
    """How many there are without a death."""
    return story(10**6)[2].count


@pytest.mark.parametrize("after", range(1, writes_of_a_whole_life() + 1))
def test_killed_after_a_write_nothing_is_done_twice_and_nothing_stays(after: int) -> None:
    """Evicts nothing twice, restarts nothing twice, leaves no owner suspended and no mark behind."""
    rig, cluster, _ = story(after)
    suspends = [one for one in cluster.writes(JOB) if (one.body or {}).get("spec", {}).get("suspend") is True]
    resumes = [one for one in cluster.writes(JOB) if (one.body or {}).get("spec", {}).get("suspend") is False]
    assert (len(suspends), len(resumes)) == (1, 1)
    assert rig.evictions() == ["lone"]
    job = cluster.read(JOB)
    assert (job["spec"]["suspend"], job["metadata"]["labels"]) == (False, {})
    assert "nodeguard.io/restart" not in job["metadata"]["annotations"]
    assert rig.state("a") is None
    assert not cluster.read(f"{NODES}/a")["spec"].get("taints")
    assert rig.ledger.ledger["slots"] == {}
    assert {pod["spec"]["nodeName"] for pod in cluster.pods().values()} <= {"b", "c", "d"}


def test_the_story_has_every_kind_of_write() -> None:
    """Slot, marks, eviction, suspension, resumption: else the enumeration would prove little."""
    assert writes_of_a_whole_life() >= 9
