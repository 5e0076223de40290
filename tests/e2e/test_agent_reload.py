"""Rules change under a running agent: what rules that did not change were counting goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .agent_nodes import NodeStates, faults
from .agents import Rig
from .mounts import overrides, swap

if TYPE_CHECKING:
    from .controlplane.admin import Admin, Object
    from .controlplane.cluster import Cluster
    from .controlplane.kubelet import FakeKubelet

HEARTBEAT = "gpu-driver-gsp-heartbeat"
HEARTBEAT_LINE = "NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 12 diff 6070 timeout 5200"
REPEATS = "gpu-nvlink-error-repeats"
LINK_LINE = "NVLink: fatal error detected on link 3(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
CLEARS_AFTER, SWAP_AFTER = 4.0, 2.0


def test_timers_and_windows_survive_a_reload(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet) -> None:
    """A clock of quiet ends when it would have, and a window counts on, though the ConfigMap was swapped meanwhile."""
    unchanged = f"  {HEARTBEAT}: {{clear: {{after: {CLEARS_AFTER:g}s}}}}\n"
    with Rig(kubelet.name, control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        mount = rig.hardware.root / "overrides"
        mount.mkdir()
        swap(mount, 1, overrides(unchanged))
        agent = rig.start("--overrides", str(mount))
        rig.wait_ready()
        began = time.monotonic()
        rig.hardware.log.write(HEARTBEAT_LINE)
        for _ in range(2):
            rig.hardware.log.xid(rig.hardware.slots[0], 74, LINK_LINE)
        states.wait_now(lambda node: told(node, HEARTBEAT), "the heartbeat's fault")
        time.sleep(max(began + SWAP_AFTER - time.monotonic(), 0.0))
        swap(mount, 2, overrides(unchanged + "  gpu-lost: {severity: warning}\n"))
        agent.wait_said('"rules loaded"', 1.5)
        assert told(states.newest, HEARTBEAT)
        rig.hardware.log.xid(rig.hardware.slots[0], 74, LINK_LINE)
        states.wait_now(lambda node: told(node, REPEATS), "the third of one window")
        states.wait_now(lambda node: not told(node, HEARTBEAT), "quiet for long enough")
        took = time.monotonic() - began
        assert CLEARS_AFTER <= took < CLEARS_AFTER + SWAP_AFTER, took


def told(node: Object, name: str) -> bool:
    """Whether the annotation has a fault of this rule."""
    return any(rule == name for rule, _ in faults(node))
