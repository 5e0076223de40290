"""Somebody else writes taints and conditions of the same Node all the time: nobody's entry is lost or doubled."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

import pytest

from nodeguard.kube.client import KubeClient
from nodeguard.model.clock import SystemClock
from nodeguard.model.device import Device
from nodeguard.model.fault import Fault
from nodeguard.model.intent import Condition, Intent
from nodeguard.sinks.node import NodeWriter, Pace

from .agent_nodes import NodeStates, condition, document, own_taints, status
from .agents import FULL, RESET_DONE, RESET_DUE, Rig, eventually, keep
from .controlplane.admin import MERGE_PATCH, STRATEGIC_PATCH, ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .controlplane.admin import Admin, Object
    from .controlplane.cluster import Cluster
    from .controlplane.kubelet import FakeKubelet

ROUNDS = 500 if FULL else 150
_KEPT = 3


class Neighbour:
    """Adds and removes taints and conditions of its own, as careful as any controller. A context manager."""

    def __init__(self, admin: Admin, node: str) -> None:
        self._admin = admin
        self._path = f"/api/v1/nodes/{node}"
        self._stop = threading.Event()
        self._wrong: list[BaseException] = []
        self._threads = [threading.Thread(target=self._repeat, args=(act,)) for act in (self._taint, self._condition)]
        self.taints: list[str] = []
        self.conditions: list[str] = []
        self.rounds = self.conflicts = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._wrong:
            raise self._wrong[0]

    def check(self, node: Object) -> None:
        """The Node holds exactly the entries that this one left there."""
        assert taints_of(node) == self.taints
        assert sorted(conditions_of(node)) == sorted(self.conditions)

    def _repeat(self, act: Callable[[int], None]) -> None:
        number = 0
        try:
            while not self._stop.wait(0.02):
                act(number)
                number += 1
        except (AssertionError, ApiError, OSError) as error:
            self._wrong.append(error)

    def _taint(self, number: int) -> None:
        node = self._admin.get(self._path)
        assert taints_of(node) == self.taints, "somebody touched the neighbour's taints"
        wanted = [*self.taints, f"t{number}"][-_KEPT:]
        others = [taint for taint in node["spec"].get("taints", ()) if taint["key"] != "neighbour.example/t"]
        # own ones first, last and in the middle, so that a list put together by position would be noticed
        mine = [{"key": "neighbour.example/t", "value": value, "effect": effect}
                for value, effect in zip(wanted, ("NoSchedule", "PreferNoSchedule", "NoExecute"), strict=False)]
        patch = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
                 "spec": {"taints": [*mine[:number % 3], *others, *mine[number % 3:]]}}
        try:
            self._admin.patch(self._path, patch, MERGE_PATCH)
        except ApiError as error:
            if error.status != 409:
                raise
            self.conflicts += 1
            return
        self.taints = wanted
        self.rounds += 1

    def _condition(self, number: int) -> None:
        wanted = [*self.conditions, f"Neighbour{number}"]
        gone, wanted = wanted[:-_KEPT], wanted[-_KEPT:]
        entries = [*({"type": kind, "status": "True", "reason": "Busy", "message": f"{number}"} for kind in wanted),
                   *({"type": kind, "$patch": "delete"} for kind in gone)]
        self._admin.patch(self._path + "/status", {"status": {"conditions": entries}}, STRATEGIC_PATCH)
        self.conditions = wanted


def taints_of(node: Object) -> list[str]:
    """The neighbour's taints, in their order."""
    return [taint["value"] for taint in node["spec"].get("taints", ()) if taint["key"] == "neighbour.example/t"]


def conditions_of(node: Object) -> list[str]:
    """The neighbour's conditions."""
    return [one["type"] for one in node["status"]["conditions"] if one["type"].startswith("Neighbour")]


def check_once(states: list[Object]) -> None:
    """In every state nodeguard's entries are there at most once."""
    for node in states:
        assert len(own_taints(node)) <= 1
        condition(node, "GpuDriverFault")
        taints = [(taint["key"], taint["effect"]) for taint in node["spec"].get("taints", ())]
        assert len(set(taints)) == len(taints)


@pytest.mark.slow
@pytest.mark.timeout(300, func_only=True)
def test_writer_beside_a_busy_neighbour(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet) -> None:
    """Hundreds of times the writer adds its taint, condition and annotation, and takes them away again."""
    api = KubeClient.from_kubeconfig(control_plane.kubeconfig)
    writer = NodeWriter(api, kubelet.name, SystemClock(), pace=Pace(burst=10 * ROUNDS, per_second=10.0 * ROUNDS))
    stop = threading.Event()
    thread = threading.Thread(target=writer.run, args=(stop,))
    thread.start()
    with NodeStates(admin, kubelet.name) as states:
        with Neighbour(admin, kubelet.name) as neighbour:
            try:
                for number in range(ROUNDS):
                    writer.publish(_intent(number, broken=True))
                    states.wait_now(lambda node: own_taints(node) and status(node, "GpuDriverFault") == "True", "added")
                    writer.publish(_intent(number, broken=False))
                    states.wait_now(lambda node: not own_taints(node) and status(node, "GpuDriverFault") == "False",
                                    "removed")
            finally:
                stop.set()
                thread.join()
        node = admin.get(f"/api/v1/nodes/{kubelet.name}")
        neighbour.check(node)
        assert not own_taints(node)
        assert document(node)["faults"] == []
        check_once(states.all)
        fared = writer.status
        keep("contest.txt", f"{ROUNDS} times added and removed: {fared.writes_total} writes, {fared.conflicts_total} "
             f"conflicts, {fared.errors_total} errors; the neighbour: {neighbour.rounds} taint writes, "
             f"{neighbour.conflicts} conflicts; {len(states.all)} states of the Node seen\n")
        assert fared.errors_total == 0


def test_agent_beside_a_busy_neighbour(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet) -> None:
    """The whole agent, through kernel lines, as often as its pace allows without a wait."""
    with Rig(kubelet.name, control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        rig.start()
        rig.wait_ready()
        slot = rig.hardware.slots[0]
        with Neighbour(admin, rig.node) as neighbour:
            for _ in range(2):
                rig.hardware.log.xid(slot, 154, RESET_DUE)
                states.wait_now(own_taints, "the taint comes", 20)
                rig.hardware.log.xid(slot, 154, RESET_DONE)
                states.wait_now(lambda node: not own_taints(node), "the taint goes", 20)
            eventually(lambda: neighbour.rounds > 20, "the neighbour is busy")
        neighbour.check(admin.get(f"/api/v1/nodes/{rig.node}"))
        check_once(states.all)


def _intent(number: int, *, broken: bool) -> Intent:
    fault = Fault(
        rule="gpu-xid-stopped", device=Device("gpu/0000:1b:00.0"), pci="0000:1b:00.0", severity="critical",
        action="reset_gpu", effect="evict", would=None, scope="device", condition="GpuDriverFault",
        message=f"round {number}", runbook=None, since=float(number), last=float(number), count=1, evidence={})
    told = Condition(type="GpuDriverFault", status="True" if broken else "False", reason="GpuXidStopped" if broken else
                     "NoFault", message=f"round {number}", since=float(number) if broken else None)
    return Intent(boot_id="b1", rules_hash="r1", conditions=(told,), faults=(fault,) if broken else (),
                  taint="GpuDriverFault" if broken else None, ready=True)
