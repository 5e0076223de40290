"""What people do on a running cluster: clear a fault, remove a taint, edit what nodeguard wrote, change the rules."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from .agent_nodes import FAULTS, NodeStates, condition, document, faults, own_taints, status
from .agents import TIMEOUT_WORDS, Rig, eventually, keep
from .controlplane.admin import MERGE_PATCH, STRATEGIC_PATCH
from .mounts import overrides, swap

if TYPE_CHECKING:
    from .controlplane.admin import Admin
    from .controlplane.cluster import Cluster
    from .controlplane.kubelet import FakeKubelet

RULE = "gpu-xid-context-switch-timeout"
CLEAR = "nodeguard.io/clear"


def _annotate(admin: Admin, node: str, name: str, value: str | None) -> None:
    admin.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {name: value}}}, MERGE_PATCH)


def _at(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def test_person_clears_a_fault(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet) -> None:
    """`nodeguard.io/clear=<rule>@<time>` closes what happened before that time, once; what comes later stands."""
    with Rig(kubelet.name, control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        agent = rig.start()
        rig.wait_ready()
        slot, other = rig.hardware.slots[:2]
        rig.hardware.log.xid(slot, 109, TIMEOUT_WORDS)
        states.wait_now(own_taints, "the taint")
        _annotate(admin, rig.node, CLEAR, f"{RULE}@yesterday")
        agent.wait_said("is not understood")
        assert own_taints(states.newest)
        _annotate(admin, rig.node, CLEAR, f"{RULE}@{_at(-3600)}")
        _annotate(admin, rig.node, CLEAR, f"{RULE}/gpu/{other}@{_at(0)}")
        _annotate(admin, rig.node, CLEAR, f"{RULE}/gpu/{slot}@{_at(0)}")
        states.wait_now(lambda node: not own_taints(node) and status(node, "GpuDriverFault") == "False", "all clear")
        assert agent.said("a person cleared it")
        rig.hardware.log.xid(slot, 109, TIMEOUT_WORDS)
        node = states.wait_now(own_taints, "a later fault stands, though the annotation does too")
        assert node["metadata"]["annotations"][CLEAR].startswith(f"{RULE}/gpu/{slot}@")


def test_what_others_remove_is_written_again(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet) -> None:
    """A removed taint, a condition set to False, an annotation emptied or filled with nonsense: all come back."""
    path = f"/api/v1/nodes/{kubelet.name}"
    with Rig(kubelet.name, control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        rig.start()
        rig.wait_ready()
        key = (RULE, f"gpu/{rig.hardware.slots[0]}")
        rig.hardware.log.xid(rig.hardware.slots[0], 109, TIMEOUT_WORDS)
        first = states.wait_now(lambda node: own_taints(node) and key in faults(node), "fault and taint")
        began = condition(first, "GpuDriverFault")

        def wait_whole(what: str) -> None:
            node = states.wait_now(
                lambda node: own_taints(node) and status(node, "GpuDriverFault") == "True" and _readable(node), what)
            assert faults(node)[key]["since"] == faults(first)[key]["since"]
            assert own_taints(node) == own_taints(first)

        admin.patch(path, {"spec": {"taints": None}}, MERGE_PATCH)
        wait_whole("the taint is back")
        lie = {"type": "GpuDriverFault", "status": "False", "reason": "AllIsWell", "message": "trust me"}
        admin.patch(f"{path}/status", {"status": {"conditions": [lie]}}, STRATEGIC_PATCH)
        wait_whole("the condition is back")
        assert began is not None
        now = condition(states.newest, "GpuDriverFault")
        assert now is not None
        assert now["reason"] == began["reason"]
        _annotate(admin, rig.node, FAULTS, None)
        wait_whole("the annotation is back")
        _annotate(admin, rig.node, FAULTS, "[1, 2")
        wait_whole("the annotation can be read again")


def _readable(node: dict[str, object]) -> bool:
    try:
        return bool(document(node)["faults"])
    except (ValueError, KeyError, TypeError):
        return False


def test_node_object_is_replaced(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet) -> None:
    """The Node is deleted and registered anew: another UID, so what was known of the old machine ends."""
    with Rig(kubelet.name, control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        agent = rig.start()
        rig.wait_ready()
        rig.hardware.log.xid(rig.hardware.slots[0], 109, TIMEOUT_WORDS)
        states.wait_now(own_taints, "the taint")
        old = states.newest["metadata"]["uid"]
        kubelet.stop()
        admin.delete(f"/api/v1/nodes/{rig.node}")
        kubelet.start()
        states.wait_now(lambda node: node["metadata"]["uid"] != old and status(node, "GpuDriverFault") == "False",
                        "the new Node is judged", 20)
        agent.wait_said("node_replaced")
        for node in states.all:
            if node["metadata"]["uid"] != old:
                assert not own_taints(node)
                assert faults(node) == {}
        rig.hardware.log.xid(rig.hardware.slots[1], 109, TIMEOUT_WORDS)
        states.wait_now(own_taints, "a fault of the new Node")


def test_rules_change(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet) -> None:
    """A swapped ConfigMap is in force within a second or so; a bad one changes nothing and shows as a condition."""
    with Rig(kubelet.name, control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        mount = rig.hardware.root / "overrides"
        mount.mkdir()
        swap(mount, 1, overrides("  gpu-lost: {severity: critical}\n"))
        agent = rig.start("--overrides", str(mount))
        rig.wait_ready()
        rig.hardware.log.xid(rig.hardware.slots[0], 109, TIMEOUT_WORDS)
        node = states.wait_now(own_taints, "the taint")
        hash_before, since = document(node)["rules"], next(iter(faults(node).values()))["since"]

        began = time.monotonic()
        swap(mount, 2, overrides(f"  {RULE}: {{effect: condition}}\n"))
        node = states.wait_now(lambda node: not own_taints(node), "the new rule asks for no taint")
        took = time.monotonic() - began
        keep("rules-reload.txt", f"rules in force on the Node {took:.2f} s after the swap\n")
        assert took < 1.5
        eventually(lambda: document(states.newest)["rules"] != hash_before, "the rules' hash changes")
        (fault,) = faults(states.newest).values()
        assert (fault["effect"], fault["since"]) == ("condition", since)

        swap(mount, 3, overrides(f"  {RULE}: {{effect: explode}}\n"))
        node = states.wait_now(lambda node: status(node, "NodeguardDegraded") == "True", "the bad rules are shown")
        degraded = condition(node, "NodeguardDegraded")
        assert degraded is not None
        assert degraded["reason"] == "NodeguardRulesInvalid"
        assert agent.said("rules.yaml:")
        assert status(node, "GpuDriverFault") == "True"
        eventually(lambda: 1 in [value for name, value in rig.metrics().items() if "rules_invalid" in name], "a metric")

        swap(mount, 4, overrides("  gpu-lost: {severity: critical}\n"))
        node = states.wait_now(
            lambda node: own_taints(node) and status(node, "NodeguardDegraded") == "False", "the good rules are back")
        assert document(node)["rules"] == hash_before
        assert next(iter(faults(node).values()))["since"] == since
