"""A kernel line becomes a condition, an annotation, a taint and Events on a real API server."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from .agent_nodes import NodeStates, condition, document, events_of, faults, own_taints, status
from .agents import RESET_DONE, RESET_DUE, TIMEOUT_WORDS, Rig, eventually, keep, printk_devkmsg, xid_line
from .kernel_ring import KMSG, KernelRing, need_kmsg, own_slots

if TYPE_CHECKING:
    from .controlplane.admin import Admin
    from .controlplane.cluster import Cluster
    from .controlplane.kubelet import FakeKubelet

def test_fault_opens_and_is_cleared(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet) -> None:
    """An Xid shows as condition, annotation, taint and Event; the recovery action's return to none ends all."""
    with Rig(kubelet.name, control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        rig.start()
        states.wait_now(lambda node: status(node, "GpuDriverFault") == "False", "every rule was judged", 20)
        slot, gpu = rig.hardware.slots[3], f"gpu/{rig.hardware.uuids[3]}"
        rig.hardware.log.write(f"NVRM: GPU at PCI:{slot.removesuffix('.0')}: {rig.hardware.uuids[3]}")
        written = time.time()
        rig.hardware.log.write(xid_line(slot, 109, TIMEOUT_WORDS))
        node = states.wait_now(own_taints, "the taint")
        told = condition(node, "GpuDriverFault")
        assert told is not None
        assert (told["status"], told["reason"]) == ("True", "GpuXidContextSwitchTimeout")
        assert gpu in told["message"]
        (taint,) = own_taints(node)
        assert (taint["value"], taint["effect"]) == ("GpuDriverFault", "NoSchedule")
        (fault,) = faults(node).values()
        assert (fault["rule"], fault["device"], fault["pci"]) == ("gpu-xid-context-switch-timeout", gpu, slot)
        assert (fault["severity"], fault["action"], fault["effect"]) == ("critical", "reset_gpu", "noschedule")
        assert (fault["count"], document(node)["v"], document(node)["cut"]) == (1, 1, 0)
        assert document(node)["boot"] == rig.hardware.boot_id
        assert abs(_unix(fault["since"]) - written) < 0.5

        rig.hardware.log.write(xid_line(slot, 154, RESET_DUE))
        states.wait_now(lambda node: status(node, "GpuRecoveryRequired") == "True", "the driver asks for a reset")
        keep("describe-node-faulty.txt", control_plane.kubectl("describe", "node", rig.node))
        rig.hardware.log.write(xid_line(slot, 154, RESET_DONE))
        node = states.wait_now(lambda node: not own_taints(node), "the taint goes")
        assert faults(node) == {}
        assert status(node, "GpuDriverFault") == status(node, "GpuRecoveryRequired") == "False"
        reasons = {"GpuXidContextSwitchTimeout", "GpuXidContextSwitchTimeoutCleared", "GpuRecoveryReset",
                   "GpuRecoveryResetCleared"}
        eventually(lambda: {one["reason"] for one in events_of(admin, rig.node)} == reasons, "four Events", 10,
                   lambda: events_of(admin, rig.node))


def test_describe_node_tells_a_stranger(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet) -> None:
    """`kubectl describe node` shows taint, conditions and Events of two broken GPUs."""
    with Rig(kubelet.name, control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        rig.start()
        states.wait_now(lambda node: status(node, "GpuLost") == "False", "every rule was judged", 20)
        for number in (2, 5):
            slot = rig.hardware.slots[number].removesuffix(".0")
            rig.hardware.log.write(f"NVRM: GPU at PCI:{slot}: {rig.hardware.uuids[number]}")
        rig.hardware.log.xid(rig.hardware.slots[2], 95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No", 7062,
                             "python3")
        rig.hardware.log.xid(rig.hardware.slots[5], 79, "GPU has fallen off the bus.", 7063, "python3")
        states.wait_now(lambda node: own_taints(node) and status(node, "GpuLost") == "True"
                        and status(node, "GpuMemoryFault") == "True", "both faults")
        eventually(lambda: len(events_of(admin, rig.node)) >= 2, "two Events")
        text = control_plane.kubectl("describe", "node", rig.node)
        keep("describe-node.txt", text)
        rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
        assert "nodeguard.io/unhealthy=GpuLost:NoSchedule" in rows["Taints:"]
        assert "True" in rows["GpuLost"]
        assert "GpuXidUncontainedEcc" in rows["GpuMemoryFault"]
        assert "NoFault" in rows["GpuDriverFault"]
        lines = [line.split() for line in text.partition("Events:")[2].splitlines()]
        told = {tuple(words[:2]) for words in lines}
        assert {("Warning", "GpuLost"), ("Warning", "GpuXidUncontainedEcc")} <= told


@pytest.mark.kmsg
def test_real_kernel_log(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet) -> None:
    """The same through the machine's own /dev/kmsg: its ring is read whole, and followed."""
    need_kmsg()
    ring, (slot,) = KernelRing(), own_slots(1)
    with Rig(kubelet.name, control_plane.kubeconfig, kmsg=KMSG) as rig, NodeStates(admin, rig.node) as states, \
            printk_devkmsg("on"):
        agent = rig.start("--kmsg-any-facility")
        rig.wait_ready()
        assert agent.said("any program on this node can forge a fault")
        key = ("gpu-xid-context-switch-timeout", f"gpu/{slot}")
        try:
            ring.xid(slot, 109, TIMEOUT_WORDS)
            node = states.wait_now(lambda node: key in faults(node) and own_taints(node), "fault and taint")
            assert status(node, "GpuDriverFault") == "True"
        finally:
            ring.xid(slot, 154, RESET_DUE)
            ring.xid(slot, 154, RESET_DONE)
        states.wait_now(lambda node: key not in faults(node), "the fault goes")


def _unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
