"""A flood of equal kernel lines is one fault with a count, bounded memory and a handful of API writes."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from .agent_nodes import NodeStates, faults, own_taints
from .agents import RESET_DONE, RESET_DUE, TIMEOUT_WORDS, Rig, eventually, keep, printk_devkmsg, xid_line
from .kernel_ring import KMSG, KernelRing, need_kmsg, own_slots

if TYPE_CHECKING:
    from .controlplane.admin import Admin
    from .controlplane.cluster import Cluster
    from .controlplane.kubelet import FakeKubelet
    from .controlplane.proxy import FaultProxy

LINES = 100_000
MIB = 1 << 20
STRAY = 200
"""Lines that other programs of the machine may print meanwhile."""
_AT_ONCE = 500


@pytest.mark.kmsg
@pytest.mark.slow
def test_flood_of_one_line(
    control_plane: Cluster, admin: Admin, kubelet: FakeKubelet, proxy: FaultProxy
) -> None:
    """100,000 records in about a second: read + lost is exactly what the kernel numbered."""
    need_kmsg()
    config = control_plane.kubeconfig_for_token(control_plane.admin_token(), server=proxy.url, ca=proxy.ca)
    ring, (slot,) = KernelRing(), own_slots(1)
    key = ("gpu-xid-context-switch-timeout", f"gpu/{slot}")
    with Rig(kubelet.name, config, kmsg=KMSG) as rig, NodeStates(admin, rig.node) as states, printk_devkmsg("on"):
        first = _oldest()
        agent = rig.start("--kmsg-any-facility")
        rig.wait_ready()
        before = mark() - first + 1
        eventually(lambda: _told(rig) >= before, "all that stood in the ring at the start is counted")
        size, sizes, writes = agent.rss(), [agent.rss()], len(proxy.requests("PATCH", rig.node))
        seconds = _flood(xid_line(slot, 109, TIMEOUT_WORDS))
        numbered = mark() - first + 1
        assert numbered >= before + LINES
        ended = time.monotonic()
        while _told(rig) < numbered and time.monotonic() < ended + 60:
            sizes.append(agent.rss())
            time.sleep(0.05)
        took = time.monotonic() - ended
        states.wait_now(lambda node: key in faults(node) and own_taints(node), "fault and taint")
        page = rig.metrics()
        lost = page.get("nodeguard_kmsg_lost_total", 0)
        stray = _told(rig) - numbered
        assert 0 <= stray < STRAY, "read and lost add up to what the kernel numbered"
        flood_writes = len(proxy.requests("PATCH", rig.node)) - writes
        after = agent.rss()
        agent.end()
        (fault,) = [fault for fault in rig.faults() if (fault["rule"], fault["device"]) == key]
        keep("flood.txt", (
            f"{LINES} records written in {seconds:.2f} s, read or counted lost {took:.2f} s later: "
            f"{numbered} numbered, {lost:.0f} lost, count {fault['count']}; {flood_writes} PATCH requests; "
            f"RSS {size / MIB:.1f} MiB before, {max(sizes) / MIB:.1f} at most, {after / MIB:.1f} after\n"))
        assert LINES <= fault["count"] + lost <= LINES + STRAY
        assert flood_writes <= 5
        assert max(sizes) - size < 8 * MIB
        for words in (RESET_DUE, RESET_DONE):
            ring.xid(slot, 154, words)


def mark() -> int:
    """Write a record that tells nothing; its number."""
    descriptor = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.lseek(descriptor, 0, os.SEEK_END)
        KernelRing().write("nodeguard e2e: a mark")
        return int(os.read(descriptor, 8192).split(b",")[1])
    finally:
        os.close(descriptor)


def _oldest() -> int:
    """The number of the oldest record that is left."""
    with KMSG.open("rb", buffering=0) as file:
        return int(file.read(8192).split(b",")[1])


def _flood(line: str) -> float:
    """Write the line as often as asked, spread over a second."""
    record = f"<4>{line}\n".encode()
    began = time.monotonic()
    descriptor = os.open(KMSG, os.O_WRONLY)
    try:
        for number in range(LINES):
            if number % _AT_ONCE == 0:
                time.sleep(max(0.0, began + number / LINES - time.monotonic()))
            os.write(descriptor, record)
    finally:
        os.close(descriptor)
    return time.monotonic() - began


def _told(rig: Rig) -> float:
    page = rig.metrics()
    return page.get("nodeguard_kmsg_records_total", 0) + page.get("nodeguard_kmsg_lost_total", 0)
