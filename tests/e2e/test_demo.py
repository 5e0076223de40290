"""`nodeguard demo --kubeconfig` against a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nodeguard.__main__ import main

if TYPE_CHECKING:
    from .controlplane.cluster import Cluster


@pytest.mark.parametrize("scenario", ["ecc", "gone"])
def test_the_demo_on_a_real_cluster(control_plane: Cluster, scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The same timeline to its end, and none of its Nodes stays."""
    assert main(["demo", "--kubeconfig", str(control_plane.kubeconfig), "--scenario", scenario]) == 0
    printed = capsys.readouterr().out
    assert "taint nodeguard.io/unhealthy:NoSchedule" in printed
    assert "the other 2 nodes stay clean" in printed
    nodes = control_plane.admin.get("/api/v1/nodes")["items"]
    assert [one for one in nodes if one["metadata"]["name"].startswith("nodeguard-demo-")] == []
