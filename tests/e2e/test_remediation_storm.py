"""Storms on the real control plane: never more than the budget, nothing replayed, also with racing replicas (C47)."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from .agent_nodes import faults, own_taints, status
from .agents import eventually, keep
from .loops import LEASE, LoopProcess, fault, installed, loop_taint, say_faults, slots
from .storms import Agents, NodeObjects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .controlplane.admin import Admin
    from .controlplane.cluster import Cluster

ALL, ILL, LIMIT = 288, 77, 5
BUDGET = {"maxUnavailable": "5%", "maxNodes": LIMIT, "window": "10m"}


@pytest.fixture(scope="module")
def shipped(control_plane: Cluster) -> Iterator[None]:
    """Everything shipped is installed."""
    with installed(control_plane):
        yield


@pytest.fixture(autouse=True)
def new_ledger(admin: Admin, shipped: None) -> None:
    """What another test has begun does not count."""
    admin.delete(LEASE)


def acted_on(nodes: NodeObjects) -> list[str]:
    """Nodes with the loop's taint."""
    return sorted(node["metadata"]["name"] for node in nodes.nodes() if loop_taint(node))


@pytest.mark.timeout(240, func_only=True)
def test_c47_of_77_nodes_of_288_at_once_exactly_five_are_acted_on(
    control_plane: Cluster, admin: Admin, namespace: str, unique: str, tmp_path: Path, shipped: None
) -> None:
    """True conditions on all 77; recoveries go on meanwhile; after the storm nobody is acted on for the past."""
    policy = {"budget": BUDGET, "storm": {"nodes": 10, "percent": "10%", "within": "4s", "cooldown": "8s"}}
    with NodeObjects(control_plane, namespace, unique, ALL) as nodes:
        ill = nodes.names[:ILL]
        with Agents(control_plane, ill) as agents, LoopProcess(control_plane, tmp_path, policy) as loop:
            nodes.each(agents.healthy, ill)
            loop.wait_leading()
            began = time.monotonic()
            nodes.each(agents.xid, ill)
            took = time.monotonic() - began
            eventually(lambda: len(nodes.ending()) == LIMIT, "five pods are evicted", 10, loop.output)
            first = acted_on(nodes)
            assert first == nodes.ending()
            loop.wait_said('"storm"')
            found = {node["metadata"]["name"]: node for node in nodes.nodes()}
            assert {status(found[name], "GpuMemoryFault") for name in ill} == {"True"}
            assert all(faults(found[name]) and own_taints(found[name]) for name in ill)
            _recovers(admin, agents, nodes, first[0])
            nodes.each(agents.repaired, ill)
            keep("storm.txt", f"{ILL} of {ALL} nodes told of their fault within {took:.1f} s; acted on: {len(first)}\n"
                              + loop.output())
            loop.wait_said('"storm-over"', 30)
            time.sleep(1.0)
            assert sorted(nodes.ending()) == first[1:]
            assert set(acted_on(nodes)) <= set(first)
    assert took < 3.0


def _recovers(admin: Admin, agents: Agents, nodes: NodeObjects, name: str) -> None:
    """While the storm holds, one of the five ends its pod, is repaired and given back."""
    admin.delete(f"/api/v1/namespaces/{nodes.namespace}/pods/p-{name}", grace=0)
    admin.wait_for(f"/api/v1/nodes/{name}", lambda one: loop_taint(one) == "repairing")
    agents.repaired(name)
    admin.wait_for(f"/api/v1/nodes/{name}", lambda one: loop_taint(one) is None)
    eventually(lambda: name not in slots(admin), "its slot is free")


@pytest.mark.timeout(240, func_only=True)
def test_c47_two_racing_replicas_and_a_paused_leader_stay_within_the_budget(
    control_plane: Cluster, admin: Admin, namespace: str, unique: str, tmp_path: Path, shipped: None
) -> None:
    """The leader is stopped in the middle (SIGSTOP), the other takes over, the first goes on: five in all."""
    with NodeObjects(control_plane, namespace, unique, 60) as nodes, \
            LoopProcess(control_plane, tmp_path, {"budget": {**BUDGET, "maxUnavailable": "50%"}}) as one:
        one.wait_leading()
        with LoopProcess(control_plane, tmp_path, {"budget": {**BUDGET, "maxUnavailable": "50%"}},
                         identity="two") as two:
            two.wait_ready()
            write = nodes.admin
            for name in nodes.names[:3]:
                say_faults(write, name, fault())
            eventually(lambda: len(nodes.ending()) >= 2, "the leader has begun")
            one.signal(signal.SIGSTOP)
            nodes.each(lambda name: say_faults(write, name, fault()), nodes.names[3:40])
            two.wait_leading(60)
            one.signal(signal.SIGCONT)
            eventually(lambda: len(acted_on(nodes)) == LIMIT, "the limit is reached", 20, two.output)
            nodes.each(lambda name: say_faults(write, name, fault()), nodes.names[40:])
            time.sleep(3.0)
            keep("race.txt", one.output() + two.output())
            assert len(acted_on(nodes)) == LIMIT
            assert nodes.ending() == acted_on(nodes) == slots(admin)
            assert (one.metrics()["nodeguard_remediation_leading"], two.metrics()["nodeguard_remediation_leading"]) == (
                0, 1)
