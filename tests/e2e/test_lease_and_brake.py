"""The agent's Lease and the brake, with the client and the rights that the agent has."""

from __future__ import annotations

import subprocess  # noqa: TID251  # runs the command
import sys
import time
from typing import TYPE_CHECKING

import pytest

from nodeguard.kube import brake
from nodeguard.kube.client import KubeClient
from nodeguard.kube.patches import unix_time
from nodeguard.model.clock import SystemClock
from nodeguard.sinks.brake import read
from nodeguard.sinks.lease import LeaseWriter

from .manifests import NAMESPACE, agent_token, apply, remove, wait_in_force, without

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .controlplane.admin import Admin
    from .controlplane.cluster import Cluster
    from .controlplane.proxy import FaultProxy

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@pytest.fixture
def config(control_plane: Cluster, admin: Admin, node: str) -> Iterator[Path]:
    """A kubeconfig of the agent of ``node``, with everything installed but the DaemonSet."""
    apply(admin, without("DaemonSet"))
    wait_in_force(control_plane, node)
    yield control_plane.kubeconfig_for_token(agent_token(control_plane, node))
    remove(admin, without("DaemonSet"))


def test_lease_is_created_renewed_and_goes_with_the_node(admin: Admin, node: str, config: Path) -> None:
    """It tells when the agent lived, and how long a silence is too long; a deleted Node takes it along."""
    writer = LeaseWriter(KubeClient.from_kubeconfig(config), node, NAMESPACE, SystemClock())
    period = writer.turn()
    assert 1.8 <= period <= 2.2
    lease = admin.get(f"{LEASES}/{node}")
    writer.turn()
    spec = admin.get(f"{LEASES}/{node}")["spec"]
    assert writer.status.renewals_total == 2, writer.status
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == (node, 6)
    assert spec["acquireTime"] == lease["spec"]["renewTime"] < spec["renewTime"]
    assert abs((unix_time(spec["renewTime"]) or 0.0) - time.time()) < 5.0
    admin.delete(f"/api/v1/nodes/{node}")
    admin.wait_gone(f"{LEASES}/{node}", seconds=60)


def test_nodes_are_counted_by_the_server(admin: Admin, node: str, config: Path) -> None:
    """A list of one Node says how many more there are, from which the period follows."""
    others = [f"{node}-{number}" for number in range(40)]
    for name in others:
        admin.create("/api/v1/nodes", {"metadata": {"name": name}})
    api = KubeClient.from_kubeconfig(config)
    page = api.get("/api/v1/nodes", {"limit": "1"})
    assert len(page["items"]) == 1
    assert 1 + page["metadata"]["remainingItemCount"] == len(admin.get("/api/v1/nodes")["items"])
    for name in others:
        admin.delete(f"/api/v1/nodes/{name}")


def test_brake_command_reaches_the_agent(control_plane: Cluster, node: str, config: Path) -> None:
    """What a person brakes holds for the agent's own read, and ends when the person says so."""
    api = KubeClient.from_kubeconfig(config)
    assert read(api, NAMESPACE) == brake.Brake()
    assert "nothing is braked" in _brake(control_plane, "show")
    _brake(control_plane, "on", "--rule", "gpu-lost", "--reason", "a test of the brake")
    found = read(api, NAMESPACE)
    assert brake.held(found, "gpu-lost", "0123456789abcdef")
    assert not brake.held(found, "gpu-hot", "0123456789abcdef")
    _brake(control_plane, "on")
    assert brake.held(read(api, NAMESPACE), "gpu-hot", "0123456789abcdef")
    shown = _brake(control_plane, "show")
    assert "a test of the brake" in shown
    assert "every rule" in shown
    _brake(control_plane, "off", "--rule", "gpu-lost")
    assert read(api, NAMESPACE).everything is not None
    _brake(control_plane, "off")
    assert read(api, NAMESPACE) == brake.Brake()


def test_brake_survives_a_new_manifest(control_plane: Cluster, admin: Admin, node: str, config: Path) -> None:
    """Installing again does not let go of the brake."""
    _brake(control_plane, "on")
    apply(admin, without("DaemonSet"))
    assert read(KubeClient.from_kubeconfig(config), NAMESPACE).everything is not None


def test_silent_server_is_no_brake(control_plane: Cluster, proxy: FaultProxy, node: str, config: Path) -> None:
    """A warm connection that falls silent delays a taint by a fifth of a second, and no more."""
    token = agent_token(control_plane, node)
    _brake(control_plane, "on")
    api = KubeClient.from_kubeconfig(control_plane.kubeconfig_for_token(token, server=proxy.url, ca=proxy.ca))
    assert read(api, NAMESPACE).everything is not None
    proxy.mode = "hang"
    began = time.monotonic()
    assert read(api, NAMESPACE) == brake.Brake()
    assert time.monotonic() - began < 0.6


def _brake(cluster: Cluster, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "nodeguard", "brake", *words, "--kubeconfig", str(cluster.kubeconfig)],
        capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout
