"""A driver whose calls never come back: the agent stays alive, tells it, and hears everything else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from .agent_nodes import NodeStates, faults, own_taints, status
from .agents import FULL, TIMEOUT_WORDS, eventually, http_status, keep
from .driver_rig import DriverRig, hang_every_call, release_every_call, thread_count

if TYPE_CHECKING:
    from .agents import AgentProcess
    from .controlplane.admin import Admin, Object
    from .controlplane.cluster import Cluster
    from .controlplane.kubelet import FakeKubelet

POLL = 1.0
TOLD_WITHIN = 2.0
"""Seconds from the first call that hangs until the Node says so."""
LINE_WITHIN = 1.0
"""Enough to tell a line that waits for the driver from one that does not; ``bench/hang.py`` measures."""
LINES = 8 if FULL else 4


def stalled(node: Object) -> bool:
    """Whether the Node says that the driver does not answer."""
    return any(rule == "gpu-driver-stalled" for rule, _ in faults(node))


def look(rig: DriverRig, agent: AgentProcess, threads: int) -> None:
    """Alive, and no thread more. A connection to the agent's port is a thread for a moment."""
    assert http_status(rig.port, "/healthz") == 200
    eventually(lambda: thread_count(agent) <= threads, f"{threads} threads, not {thread_count(agent)}", 2.0)


@pytest.mark.parametrize("when", ["from the start", "while it runs"])
def test_c24_every_call_hangs(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet, when: str) -> None:
    """Told within 2 s; liveness good, kernel lines on time, no thread more, and it ends when it is asked to."""
    with DriverRig(kubelet.name, control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        rig.hangs_at_start = when == "from the start"
        agent = rig.start()
        rig.wait_ready(TOLD_WITHIN + 3.0)  # Python's own start included
        if when == "while it runs":
            states.wait_now(lambda node: status(node, "GpuThermal") == "False", "judged")
            hang_every_call(agent)
        began = time.monotonic()
        states.wait_now(stalled, "the driver does not answer", POLL + TOLD_WITHIN)
        took = time.monotonic() - began
        threads = thread_count(agent)
        for slot, uuid in zip(rig.hardware.slots[:LINES], rig.hardware.uuids, strict=False):
            rig.hardware.log.xid(slot, 109, TIMEOUT_WORDS)
            names = {f"gpu/{slot}", f"gpu/{uuid}"}
            states.wait_now(lambda node, names=names: names & {  # type: ignore[misc]
                device for rule, device in faults(node) if rule == "gpu-xid-context-switch-timeout"},
                f"the line about {slot}", LINE_WITHIN)
            look(rig, agent, threads)
            time.sleep(POLL)
        keep(f"hang-{when.replace(' ', '-')}.txt", f"stalled driver told after {took:.2f} s, {threads} threads\n")
        assert own_taints(states.newest)
        assert agent.end(2.0) < 2.0


def test_c24_driver_answers_again(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet) -> None:
    """What hung from the start is read at last: the fault closes, and the conditions are judged."""
    with DriverRig(kubelet.name, control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        rig.hangs_at_start = True
        agent = rig.start()
        node = states.wait_now(stalled, "the driver does not answer", 10.0)
        assert status(node, "GpuThermal") == "Unknown"
        release_every_call(agent)
        states.wait_now(lambda node: not own_taints(node) and status(node, "GpuThermal") == "False"
                        and status(node, "GpuDriverFault") == "False", "all is well", 15.0)
