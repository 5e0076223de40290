"""SIGKILL at many seeded random moments, on one node: the Node never takes anything back, and no deed is told twice."""

from __future__ import annotations

import collections
import random
import time
from typing import TYPE_CHECKING, Protocol

import pytest

from .agent_nodes import NodeStates, events_of, faults, own_taints, status
from .agents import FULL, RESET_DONE, RESET_DUE, TIMEOUT_WORDS, Rig, eventually, keep, printk_devkmsg
from .kernel_ring import KMSG, KernelRing, need_kmsg, own_slots
from .test_agent_killed import check_steady

if TYPE_CHECKING:
    from .controlplane.admin import Admin, Object
    from .controlplane.cluster import Cluster
    from .controlplane.kubelet import FakeKubelet

SEED = 20_261_130


class Log(Protocol):
    """Where kernel lines are written."""

    def xid(self, pci: str, code: int, words: str) -> object:
        """Write an Xid."""


class Life:
    """Lines at random: one fault that stands and is told again, one that comes and goes, and a program's."""

    def __init__(self, log: Log, slots: list[str], dice: random.Random) -> None:
        self._log, self._dice = log, dice
        self.standing, self.coming, self._program, self.last = slots
        self.told = 0
        self.opened = self.closed = 0

    def stand(self) -> None:
        """The standing fault, once more."""
        self._log.xid(self.standing, 109, TIMEOUT_WORDS)
        self.told += 1

    def turn(self) -> None:
        """Open the other fault, or end it."""
        if self.opened == self.closed:
            self._log.xid(self.coming, 154, RESET_DUE)
            self.opened += 1
        else:
            self._log.xid(self.coming, 154, RESET_DONE)
            self.closed += 1

    def something(self) -> None:
        """One thing or another, or nothing."""
        die = self._dice.random()
        if die < 0.35:
            self.turn()
        elif die < 0.6:
            self.stand()
        elif die < 0.7:
            self._log.xid(self._program, 43, "pid=5, name=python3, Ch 00000008")

    def end(self) -> None:
        """Close what comes and goes, and open a last fault."""
        if self.opened > self.closed:
            self.turn()
        self._log.xid(self.last, 119, "pid=9, name=python3, Timeout after 6s of waiting for RPC response from GPU0!")

    def is_told(self, node: Object) -> bool:
        """Whether the Node says how it ended."""
        found = faults(node)
        standing = found.get(("gpu-xid-context-switch-timeout", f"gpu/{self.standing}"), {})
        return (standing.get("count") == self.told and ("gpu-xid-gsp", f"gpu/{self.last}") in found
                and ("gpu-recovery-reset", f"gpu/{self.coming}") not in found and bool(own_taints(node)))

    def check_events(self, admin: Admin, node: str, *, all_told: bool) -> None:
        """As many Events as deeds, soon; unless ``all_told``, older lines of the log may be told before them."""
        wanted = collections.Counter({"GpuXidContextSwitchTimeout": 1, "GpuRecoveryReset": self.opened,
                                      "GpuRecoveryResetCleared": self.closed, "GpuXidGsp": 1})

        def told() -> collections.Counter[str]:
            mine = (self.standing, self.coming, self.last)
            found = [one for one in events_of(admin, node) if any(slot in one["message"] for slot in mine)]
            return collections.Counter(one["reason"] for one in found)

        if all_told:
            eventually(lambda: told() == +wanted, f"Events {wanted}", 25, told)
        assert told() <= wanted, "a deed was told twice"


def runs_of_true(states: list[Object], kind: str, key: tuple[str, str]) -> int:
    """How often the fault appeared on the Node; each time its condition is there and its times are its own."""
    seen: list[str | None] = [None]
    for node in states:
        fault = faults(node).get(key)
        since = None if fault is None else str(fault["since"])
        assert fault is None or status(node, kind) == "True"
        # one that ends and opens again faster than writes may follow each other is another one without a gap
        if since != seen[-1]:
            seen.append(since)
    times = [since for since in seen if since is not None]
    assert len(set(times)) == len(times), "a fault that had gone came back"
    return len(times)


def _kill_at_random(rig: Rig, life: Life, dice: random.Random, *more: str) -> None:
    agent = rig.start(*more)
    if dice.random() < 0.15:
        time.sleep(dice.random() * 0.7)
        life.something()
    else:
        eventually(lambda: not agent.running() or agent.said('"agent started"'), "it starts", 20, agent.output)
        assert agent.running(), agent.output()
        until = time.monotonic() + 0.4 * dice.random() ** 2
        while time.monotonic() < until:
            life.something()
            time.sleep(0.08 * dice.random())
    agent.kill()


@pytest.mark.slow
@pytest.mark.timeout(600, func_only=True)
@pytest.mark.parametrize("kind", ["file", "ring"])
def test_killed_at_random_moments(control_plane: Cluster, admin: Admin, kubelet: FakeKubelet, kind: str) -> None:
    """After every kill the next agent goes on; the file can be read again, as the machine's own ring can."""
    kills = (200 if FULL else 20) if kind == "file" else (20 if FULL else 5)
    if kind == "ring":
        need_kmsg()
    dice = random.Random(SEED)  # noqa: S311
    more = ["--kmsg-any-facility"] if kind == "ring" else []
    with Rig(kubelet.name, control_plane.kubeconfig, kmsg=KMSG) as rig, NodeStates(admin, rig.node) as states, \
            printk_devkmsg("on" if kind == "ring" else None):
        log: Log = rig.log_file() if kind == "file" else KernelRing()
        life = Life(log, list(rig.hardware.slots[:4]) if kind == "file" else own_slots(4), dice)
        life.stand()
        for _ in range(kills):
            _kill_at_random(rig, life, dice, *more)
        rig.start(*more)
        rig.wait_ready()
        life.end()
        states.wait_now(life.is_told, f"the end; {life.told} times told", 20)
        life.check_events(admin, rig.node, all_told=kind == "file")
        check_steady(states.all, "GpuDriverFault", ("gpu-xid-context-switch-timeout", f"gpu/{life.standing}"))
        runs = runs_of_true(states.all, "GpuRecoveryRequired", ("gpu-recovery-reset", f"gpu/{life.coming}"))
        assert runs <= life.opened
        keep(f"kills-{kind}.txt", f"{kills} kills, {len(states.all)} states of the Node seen; the standing fault told "
             f"{life.told} times, the other opened {life.opened} times and was seen {runs} times\n")
        _clean(log, life, kind)


def _clean(log: Log, life: Life, kind: str) -> None:
    """Leave the machine's ring without an open fault for those who read it later."""
    if kind == "ring":
        for words in (RESET_DUE, RESET_DONE):
            log.xid(life.standing, 154, words)
            log.xid(life.last, 154, words)
