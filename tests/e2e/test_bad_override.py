"""One bad number in a ConfigMap, taken in by 200 nodes at the same moment."""

from __future__ import annotations

import subprocess  # noqa: TID251  # runs the command
import sys
from typing import TYPE_CHECKING

import pytest

from nodeguard.kube.client import KubeClient
from nodeguard.model.clock import FakeClock

from .agent_nodes import faults, own_taints, status
from .fleet import Fleet
from .manifests import agent_token, apply, remove, wait_in_force, without
from .mounts import overrides, swap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .controlplane.admin import Admin, Object
    from .controlplane.cluster import Cluster

NODES = 200
WARM = 41
"""Degrees Celsius: a GPU at work."""
BAD = overrides("  gpu-hot: {above: 20, effect: noschedule}\n")
"""As shipped the rule never taints; whoever mistypes its limit after making it stronger taints every node."""
GOOD = overrides("  gpu-hot: {effect: noschedule}\n")
GPUS = 2


@pytest.fixture(scope="module")
def clients(control_plane: Cluster) -> Iterator[dict[str, KubeClient]]:
    """The agents' clients, by Node: each under a token bound to its Node, with everything installed."""
    admin = control_plane.admin
    apply(admin, without("DaemonSet"))
    names = [f"e2e-override-{number:03}" for number in range(NODES)]
    for name in names:
        admin.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    wait_in_force(control_plane, names[0])
    made = {name: KubeClient.from_kubeconfig(control_plane.kubeconfig_for_token(agent_token(control_plane, name)))
            for name in names}
    yield made
    for name, client in made.items():
        client.close()
        admin.delete(f"/api/v1/nodes/{name}")
    remove(admin, without("DaemonSet"))


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    """The overrides as the kubelet mounts them, good so far."""
    folder = tmp_path / "overrides"
    folder.mkdir()
    swap(folder, 1, GOOD)
    return folder


def nodes(admin: Admin) -> list[Object]:
    """The Nodes of this file, as the API server has them."""
    found = [node for node in admin.get("/api/v1/nodes?limit=1000")["items"]
             if node["metadata"]["name"].startswith("e2e-override-")]
    assert len(found) == NODES
    return found


def tainted(admin: Admin) -> int:
    """How many Nodes have the agent's taint."""
    return sum(tainted_by(node) is not None for node in nodes(admin))


def hot(node: Object) -> list[Object]:
    """What the annotation says of the rule."""
    return [fault for (rule, _), fault in faults(node).items() if rule == "gpu-hot"]


@pytest.mark.timeout(120, func_only=True)
def test_soak_keeps_a_bad_number_from_tainting(clients: dict[str, KubeClient], admin: Admin, mount: Path) -> None:
    """Within 10 minutes every Node says so in its condition and none is tainted; after that they follow apart."""
    with Fleet(clients, mount, FakeClock(), soak="10m", temperature=WARM) as fleet:
        fleet.pass_time(5)
        fleet.write()
        assert {(status(node, "GpuThermal"), tainted_by(node)) for node in nodes(admin)} == {("False", None)}
        swap(mount, 2, BAD)
        fleet.pass_time(12)
        fleet.write()
        for more in (48, 240, 299):
            fleet.pass_time(more, polls_every=10.0)
            fleet.write()
            assert {(status(node, "GpuThermal"), tainted_by(node)) for node in nodes(admin)} == {("True", None)}
            assert {(fault["effect"], len(hot(node))) for node in nodes(admin) for fault in hot(node)} == {
                ("condition", GPUS)}
        fleet.pass_time(300, polls_every=10.0)
        fleet.write()
        assert 0.25 * NODES < tainted(admin) < 0.75 * NODES
        fleet.pass_time(310, polls_every=10.0)
        fleet.write()
        assert tainted(admin) == NODES


@pytest.mark.timeout(120, func_only=True)
def test_brake_holds_what_soak_does_not(
    control_plane: Cluster, clients: dict[str, KubeClient], admin: Admin, mount: Path
) -> None:
    """Without soak the brake alone: no taint and ``held`` on every Node; let go, every one follows."""
    with Fleet(clients, mount, FakeClock(), soak="0s", temperature=WARM) as fleet:
        fleet.pass_time(5)
        fleet.write()
        assert {(status(node, "GpuThermal"), tainted_by(node)) for node in nodes(admin)} == {("False", None)}
        _brake(control_plane, "on")
        swap(mount, 2, BAD)
        fleet.pass_time(12)
        for seconds in (0, 30):
            fleet.pass_time(seconds, polls_every=10.0)
            fleet.write()
            assert {(status(node, "GpuThermal"), tainted_by(node)) for node in nodes(admin)} == {("True", None)}
            assert {(fault["effect"], fault.get("held"), len(hot(node)))
                    for node in nodes(admin) for fault in hot(node)} == {("noschedule", True, GPUS)}
        _brake(control_plane, "off")
        fleet.pass_time(6)
        fleet.write()
        assert {tainted_by(node) for node in nodes(admin)} == {"GpuThermal"}
        assert {fault.get("held", False) for node in nodes(admin) for fault in hot(node)} == {False}
        swap(mount, 3, GOOD)
        fleet.pass_time(90, polls_every=10.0)
        fleet.write()
        assert {(status(node, "GpuThermal"), tainted_by(node)) for node in nodes(admin)} == {("False", None)}


def tainted_by(node: Object) -> str | None:
    """The value of the agent's taint: the condition's type."""
    taints = own_taints(node)
    return str(taints[0]["value"]) if taints else None


def _brake(cluster: Cluster, word: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodeguard", "brake", word, "--kubeconfig", str(cluster.kubeconfig)],
        capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
