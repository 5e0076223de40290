"""One bad number in a ConfigMap, without soak, on 200 nodes at once: the loop puts the brake on by itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from nodeguard.kube import brake
from nodeguard.kube.client import KubeClient
from nodeguard.model.clock import FakeClock

from .agent_nodes import faults, own_taints, status
from .agents import keep
from .fleet import Fleet
from .loops import LoopProcess, installed, loop_taint
from .manifests import NAMESPACE, agent_token
from .mounts import overrides, swap
from .storms import HANDS, NodeObjects

if TYPE_CHECKING:
    from pathlib import Path

    from .controlplane.cluster import Cluster

NODES, GPUS, WARM = 200, 2, 41
MOST = max(5, NODES * 5 // 100)
GOOD = overrides("  gpu-hot: {effect: noschedule}\n")
BAD = overrides("  gpu-hot: {above: 20, effect: noschedule}\n")


@pytest.mark.timeout(240, func_only=True)
def test_a_bad_rule_is_braked_after_a_few_nodes(
    control_plane: Cluster, namespace: str, unique: str, tmp_path: Path
) -> None:
    """At most max(5, 5 %), the one that was too much, and the writers then under way are tainted; none is evicted."""
    mount = tmp_path / "overrides"
    mount.mkdir()
    swap(mount, 1, GOOD)
    with installed(control_plane), NodeObjects(control_plane, namespace, unique, NODES) as nodes:
        clients = {name: KubeClient.from_kubeconfig(control_plane.kubeconfig_for_token(
            agent_token(control_plane, name))) for name in nodes.names}
        with Fleet(clients, mount, FakeClock(wall=time.time()), soak="0s", temperature=WARM) as fleet, LoopProcess(
                control_plane, tmp_path, {"ruleBrake": {"nodes": 5, "percent": "5%", "within": "10m"}}) as loop:
            fleet.pass_time(5)
            fleet.write()
            loop.wait_leading()
            swap(mount, 2, BAD)
            fleet.pass_time(12)
            agents = {agent.node: agent for agent in fleet.agents}
            nodes.each(lambda name: agents[name].write(), nodes.names)
            loop.wait_said('"braked"')
            found = nodes.nodes()
            tainted = sum(bool(own_taints(node)) for node in found)
            held = sum(any(one.get("held") for one in faults(node).values()) for node in found)
            keep("bad-rule.txt", f"{NODES} nodes, {HANDS} writers: brake due after more than {MOST} taints; "
                                 f"{tainted} were tainted, {held} held back\n{loop.output()}")
            assert {status(node, "GpuThermal") for node in found} == {"True"}
            assert tainted + held == NODES
            assert MOST < tainted <= MOST + 1 + 3 * HANDS
            standing = brake.fetch(clients[nodes.names[0]], NAMESPACE)
            assert list(standing.rules) == ["gpu-hot"]
            time.sleep(1.0)
            assert nodes.ending() == []
            assert {loop_taint(node) for node in nodes.nodes()} == {None}
            assert '"evicted"' not in loop.output()
        for client in clients.values():
            client.close()
