"""The loop is killed (SIGKILL) at every single write of a whole story, and another process goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .agents import eventually, keep
from .deadly import DeadlyProxy
from .loops import (
    LOOP_ACCOUNT,
    RESTART,
    LoopProcess,
    Nodes,
    brief_pods,
    create,
    discard,
    fault,
    installed,
    job,
    loop_taint,
    pods,
    record,
    say_faults,
    slots,
    wait_running,
)
from .manifests import NAMESPACE
from .storms import pinned_pod

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .controlplane.admin import Admin
    from .controlplane.cluster import Cluster

MOST = 30
"""More writes than the story has."""


@pytest.fixture
def deadly(control_plane: Cluster) -> Iterator[DeadlyProxy]:
    """The proxy between the loop and the API server, with everything shipped installed behind it."""
    with installed(control_plane), DeadlyProxy(control_plane) as proxy:
        yield proxy


class Story:
    """A gang of two and a lone pod; the node that has a rank and the pod falls ill, is drained, and recovers.

    As a kubelet would, it starts the loop again whenever it has died.
    """

    def __init__(self, cluster: Cluster, nodes: Nodes, namespace: str, deadly: DeadlyProxy, directory: Path) -> None:
        self._cluster, self._nodes, self._namespace = cluster, nodes, namespace
        self._deadly, self._directory, self._admin = deadly, directory, cluster.admin
        self._config = cluster.kubeconfig_for_token(
            cluster.token(NAMESPACE, LOOP_ACCOUNT), server=deadly.url, ca=deadly.ca)
        self._loop = self._start()

    def close(self) -> None:
        """End the loop."""
        self._loop.kill()

    def run(self, number: int, *, before: bool) -> bool:
        """Kill at write ``number``; whether there was such a write."""
        admin, place, namespace = self._admin, self._nodes.place, self._namespace
        gang = create(admin, namespace, job(f"gang-{number}-{int(before)}", place, gpus=6))
        sick = wait_running(admin, namespace, place, 2)[0]["spec"]["nodeName"]
        lone = pinned_pod("lone", sick)
        lone["metadata"]["labels"] = {"e2e-place": place}
        lone["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "2"}
        create(admin, namespace, lone)
        old = wait_running(admin, namespace, place, 3)
        self._until(lambda: self._loop.said("nodes and pods are known"), "the loop knows everything")
        self._deadly.begin(self._loop, number, before=before)
        say_faults(admin, sick, fault())
        self._until(lambda: self._moved(sick), "the pods are elsewhere")
        say_faults(admin, sick)
        self._until(lambda: self._given_back(sick), "the node is given back")
        killed = self._deadly.victim is None
        self._deadly.spare()
        self._judge(gang, [pod["metadata"]["uid"] for pod in old if pod["metadata"]["name"] == "lone"])
        discard(admin, namespace, [gang], place)
        eventually(lambda: not pods(admin, namespace, place), "the pods are gone")
        return killed

    def _start(self) -> LoopProcess:
        return LoopProcess(self._cluster, self._directory, kubeconfig=self._config)

    def _until(self, holds: object, what: str) -> None:
        assert callable(holds)

        def look() -> bool:
            if not self._loop.running():
                self._loop = self._start()
            return bool(holds())

        eventually(look, what, 30, lambda: (self._loop.output(), brief_pods(self._pods()), self._deadly.brief()))

    def _pods(self) -> list[dict[str, object]]:
        return pods(self._admin, self._namespace, self._nodes.place)

    def _moved(self, sick: str) -> bool:
        found = pods(self._admin, self._namespace, self._nodes.place)
        elsewhere = [pod for pod in found if pod["status"].get("phase") == "Running"
                     and pod["spec"].get("nodeName") not in (None, sick)]
        return len(found) == len(elsewhere) == 2

    def _given_back(self, sick: str) -> bool:
        node = self._admin.get(f"/api/v1/nodes/{sick}")
        return record(node) is None and loop_taint(node) is None and not slots(self._admin)

    def _judge(self, gang: str, lone: list[str]) -> None:
        deeds = self._deadly.brief()
        assert self._deadly.evictions() == lone, deeds
        assert (self._deadly.suspensions(gang), self._deadly.suspensions(gang, suspend=False)) == (1, 1), deeds
        standing = self._admin.get(gang)
        assert standing["spec"]["suspend"] is False, deeds
        assert RESTART not in {**standing["metadata"].get("labels", {}), **standing["metadata"].get("annotations", {})}


@pytest.mark.timeout(600, func_only=True)
@pytest.mark.parametrize("before", [False, True], ids=["answer lost", "not sent"])
def test_killed_at_every_write_nothing_is_done_twice_and_nothing_stays(
    control_plane: Cluster, admin: Admin, namespace: str, tmp_path: Path, deadly: DeadlyProxy, before: bool  # noqa: FBT001
) -> None:
    """One round a write: one eviction, one suspension, one resumption; no owner suspended, no mark, no slot left."""
    with Nodes(control_plane, 3) as nodes:
        story = Story(control_plane, nodes, namespace, deadly, tmp_path)
        try:
            number = next(number for number in range(1, MOST) if not story.run(number, before=before))
        finally:
            story.close()
        when = "before" if before else "after"
        keep(f"killed-{when}.txt", f"killed {when} each of {number - 1} writes:\n{deadly.brief()}")
        assert number - 1 >= 9
