"""The API server is away, slow or lies: the wanted state arrives when it returns, with the original times."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from .agent_nodes import NodeStates, condition, events_of, faults, own_taints, status
from .agents import RESET_DONE, RESET_DUE, TIMEOUT_WORDS, Rig, eventually, keep
from .controlplane.faults import Break

if TYPE_CHECKING:
    from pathlib import Path

    from .controlplane.admin import Admin, Object
    from .controlplane.cluster import Cluster
    from .controlplane.kubelet import FakeKubelet
    from .controlplane.proxy import FaultProxy
    from .controlplane.server import ControlPlane

KEY = "gpu-xid-context-switch-timeout"


def unix(text: str) -> float:
    """RFC 3339 as Unix time."""
    return datetime.fromisoformat(text).timestamp()


@pytest.fixture
def through(control_plane: Cluster, proxy: FaultProxy) -> Path:
    """A kubeconfig that leads through the proxy."""
    return control_plane.kubeconfig_for_token(control_plane.admin_token(), server=proxy.url, ca=proxy.ca)


def test_api_server_away(own_control_plane: ControlPlane, admin: Admin, kubelet: FakeKubelet) -> None:
    """One fault opens and another one comes and goes while it is away; both are told when it is back."""
    with Rig(kubelet.name, own_control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        agent = rig.start()
        states.wait_now(lambda node: status(node, "GpuDriverFault") == "False", "every rule was judged", 20)
        slot, other = rig.hardware.slots[:2]
        own_control_plane.stop_apiserver()
        try:
            happened = time.time()
            rig.hardware.log.xid(slot, 109, TIMEOUT_WORDS)
            rig.hardware.log.xid(other, 154, RESET_DUE)
            rig.hardware.log.xid(other, 154, RESET_DONE)
            agent.wait_said('"what": "failing"')
            eventually(lambda: agent.said('"fault closed"'), "the second fault is over")
            eventually(lambda: any(KEY in name for name in _page(rig)), "the metrics page knows the other one")
        finally:
            own_control_plane.start_apiserver()
        back, back_at = time.monotonic(), time.time()
        node = states.wait_now(own_taints, "the taint, once the API server is back", 20)
        took = time.monotonic() - back
        assert abs(unix(faults(node)[KEY, f"gpu/{slot}"]["since"]) - happened) < 0.5
        told = condition(node, "GpuDriverFault")
        assert told is not None
        assert abs(unix(told["lastTransitionTime"]) - happened) < 1.5
        eventually(lambda: len(events_of(admin, rig.node)) == 3, "three Events", 20)
        for event in events_of(admin, rig.node):
            assert abs(unix(event["firstTimestamp"]) - happened) < 1.5
        agent.wait_said('"what": "recovered"')
        keep("outage.txt", f"away for {back_at - happened:.1f} s; wanted state {took:.2f} s after its return\n")


@pytest.mark.parametrize("mode", ["refuse", "hang"])
def test_start_while_the_api_server_is_away(
    admin: Admin, kubelet: FakeKubelet, proxy: FaultProxy, through: Path, mode: str
) -> None:
    """The agent starts, sees and says so on its port, and on the Node later."""
    with Rig(kubelet.name, through) as rig, NodeStates(admin, rig.node) as states:
        proxy.mode = mode
        rig.start()
        slot = rig.hardware.slots[0]
        happened = time.time()
        rig.hardware.log.xid(slot, 109, TIMEOUT_WORDS)
        eventually(lambda: any(KEY in name for name in _page(rig)), "the fault is on the metrics page", 20,
                   rig.log.read_text)
        proxy.heal()
        node = states.wait_now(own_taints, "the taint", 20)
        assert abs(unix(faults(node)[KEY, f"gpu/{slot}"]["since"]) - happened) < 0.5
        eventually(lambda: _page(rig)["nodeguard_node_writes_total"] >= 2, "the writes are counted")


def _page(rig: Rig) -> dict[str, float]:
    try:
        return rig.metrics()
    except OSError:
        return {}


STATUSES = {"429": 429, "500": 500, "409": 409}
BREAKS = {"cut-after": Break.CUT_AFTER, "reset": Break.RESET, "truncate": Break.TRUNCATE}


@pytest.mark.parametrize("what", [*STATUSES, *BREAKS])
def test_a_write_fails(admin: Admin, kubelet: FakeKubelet, proxy: FaultProxy, through: Path, what: str) -> None:
    """The first PATCHes and Events fail in one way or another; all arrives all the same, once."""
    with Rig(kubelet.name, through) as rig, NodeStates(admin, rig.node) as states:
        rig.start()
        states.wait_now(lambda node: status(node, "GpuDriverFault") == "False", "every rule was judged", 20)
        if what in STATUSES:
            proxy.fail_next(STATUSES[what], count=4, methods={"PATCH"}, retry_after=1 if what == "429" else None)
            if what != "409":  # which to an Event says that it is there
                proxy.fail_next(STATUSES[what], count=2, methods={"POST"})
        else:
            proxy.break_next(BREAKS[what], count=4, methods={"PATCH"})
            proxy.break_next(BREAKS[what], count=2, methods={"POST"})
        slot = rig.hardware.slots[0]
        rig.hardware.log.xid(slot, 109, TIMEOUT_WORDS)
        rig.hardware.log.xid(slot, 109, TIMEOUT_WORDS)
        node = states.wait_now(own_taints, "the taint", 20)
        assert status(node, "GpuDriverFault") == "True"
        rig.hardware.log.xid(slot, 154, RESET_DUE)
        rig.hardware.log.xid(slot, 154, RESET_DONE)
        states.wait_now(lambda node: not own_taints(node) and status(node, "GpuDriverFault") == "False", "the end", 20)
        reasons = ["GpuRecoveryReset", "GpuRecoveryResetCleared", "GpuXidContextSwitchTimeout",
                   "GpuXidContextSwitchTimeoutCleared"]
        eventually(lambda: sorted(one["reason"] for one in events_of(admin, rig.node)) == reasons, "four Events", 20)
        _check_no_way_back(states.all)


def _check_no_way_back(states: list[Object]) -> None:
    """False, then True with one time, then False."""
    seen: list[tuple[str, str]] = []
    for node in states:
        one = condition(node, "GpuDriverFault")
        if one is not None and (one["status"], one["lastTransitionTime"]) not in seen[-1:]:
            seen.append((one["status"], one["lastTransitionTime"]))
    assert [word for word, _ in seen] == ["False", "True", "False"]


def test_half_open_connections(admin: Admin, kubelet: FakeKubelet, proxy: FaultProxy, through: Path) -> None:
    """Every connection falls silent, as when a firewall forgot it: the agent gives up on them and makes new ones."""
    with Rig(kubelet.name, through) as rig, NodeStates(admin, rig.node) as states:
        rig.start()
        states.wait_now(lambda node: status(node, "GpuDriverFault") == "False", "every rule was judged", 20)
        proxy.mode = "hang"
        rig.hardware.log.xid(rig.hardware.slots[0], 109, TIMEOUT_WORDS)
        eventually(lambda: any(KEY in name for name in _page(rig)), "the fault is on the metrics page")
        proxy.heal()
        began = time.monotonic()
        states.wait_now(own_taints, "the taint", 30)
        keep("half-open.txt", f"the taint {time.monotonic() - began:.1f} s after silent connections healed\n")
