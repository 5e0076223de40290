"""A kernel line moves the training pods: the real agent, the real loop, the real controllers and scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .agent_nodes import own_taints
from .agents import RESET_DONE, RESET_DUE, Rig, eventually, keep
from .hops import Moving, break_gpu, follow
from .loops import LoopProcess, Nodes, create, discard, installed, job, loop_taint, record, slots, wait_running
from .watching import Watching

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .controlplane.admin import Admin
    from .controlplane.cluster import Cluster


@pytest.fixture(scope="module")
def shipped(control_plane: Cluster) -> Iterator[None]:
    """Everything shipped is installed."""
    with installed(control_plane):
        yield


def test_a_kernel_line_restarts_the_gang_on_healthy_nodes_and_the_repair_gives_the_node_back(
    control_plane: Cluster, admin: Admin, namespace: str, tmp_path: Path, shipped: None
) -> None:
    """Condition, taints, suspension, resumption; both ranks run elsewhere; after the reset no mark is left."""
    with Nodes(control_plane, 3) as nodes, Watching(admin) as watching, LoopProcess(control_plane, tmp_path) as loop:
        loop.wait_leading()
        path = create(admin, namespace, job("llm", nodes.place))
        found = wait_running(admin, namespace, nodes.place, 2)
        sick = found[0]["spec"]["nodeName"]
        with Rig(sick, nodes.kubeconfig(sick)) as rig:
            rig.start()
            rig.wait_ready()
            began = break_gpu(rig.hardware)
            hops = follow(watching, Moving.of(sick, namespace, "llm", found), began)
            keep("hops.txt", "\n".join(f"{name:12} {1000 * at:8.1f} ms" for name, at in hops.items()) + loop.output())
            after = wait_running(admin, namespace, nodes.place, 2)
            assert sick not in {pod["spec"]["nodeName"] for pod in after}
            standing = admin.get(path)
            assert (standing["spec"]["suspend"], standing["status"].get("failed", 0)) == (False, 0)
            assert "nodeguard.io/restart" not in standing["metadata"].get("labels", {})
            eventually(lambda: loop_taint(admin.get(f"/api/v1/nodes/{sick}")) == "repairing", "it waits for its repair")
            rig.hardware.log.xid(rig.hardware.slots[0], 154, RESET_DUE)
            rig.hardware.log.xid(rig.hardware.slots[0], 154, RESET_DONE)
            node = admin.wait_for(f"/api/v1/nodes/{sick}", lambda one: record(one) is None and not own_taints(one))
            assert loop_taint(node) is None
            eventually(lambda: slots(admin) == [], "the slot is free")
        discard(admin, namespace, [path], nodes.place)
