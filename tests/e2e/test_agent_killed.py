"""SIGKILL at any moment: nothing is lost, nothing is told twice, and a standing fault never blinks."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Self

import pytest

from .agent_nodes import NodeStates, condition, events_of, faults, is_own, own_taints, status
from .agents import RESET_DONE, RESET_DUE, TIMEOUT_WORDS, AgentProcess, LogFile, Rig, eventually
from .controlplane.kubelet import FakeKubelet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .controlplane.admin import Admin, Object
    from .controlplane.cluster import Cluster
    from .controlplane.proxy import FaultProxy

API_WRITES = 12
"""More than the story makes: the last ones kill nothing and show that the enumeration is whole."""
STORE_WRITES = 7
_WRITES = frozenset({"PATCH", "POST"})


class Story:
    """What happens on a node: one fault stands and is told thrice, one opens and is cured, one GPU is lost."""

    def __init__(self, rig: Rig, log: LogFile) -> None:
        self.rig, self.log = rig, log
        self.standing, self.cured, self.lost = rig.hardware.slots[:3]

    def parts(self) -> Iterator[Callable[[Object], bool]]:
        """Write it part by part; each time, what the Node says when it has been read."""
        self.log.xid(self.standing, 109, TIMEOUT_WORDS)
        yield lambda node: bool(own_taints(node))
        self.log.xid(self.standing, 109, TIMEOUT_WORDS)
        self.log.xid(self.cured, 154, RESET_DUE)
        yield lambda node: status(node, "GpuRecoveryRequired") == "True"
        self.log.xid(self.standing, 109, TIMEOUT_WORDS)
        self.log.xid(self.cured, 154, RESET_DONE)
        yield lambda node: status(node, "GpuRecoveryRequired") == "False"
        self.log.xid(self.lost, 79, "pid=9, name=python3, GPU has fallen off the bus.")
        yield self.is_told

    def is_told(self, node: Object) -> bool:
        """Whether the Node says how the story ended."""
        counts = {key: fault["count"] for key, fault in faults(node).items()}
        return counts == {
            ("gpu-lost", f"gpu/{self.lost}"): 1,
            ("gpu-xid-context-switch-timeout", f"gpu/{self.standing}"): 3,
        } and bool(own_taints(node)) and status(node, "GpuRecoveryRequired") == "False"

    def check(self, states: list[Object]) -> None:
        """No observed state took back what stood, nor moved its times."""
        check_steady(states, "GpuDriverFault", ("gpu-xid-context-switch-timeout", f"gpu/{self.standing}"))
        check_steady(states, "GpuLost", ("gpu-lost", f"gpu/{self.lost}"))

    def check_events(self, admin: Admin, killer: Killer | None = None) -> None:
        """Every deed is told by one Event, soon; or the killer got ahead of them."""
        told = sorted(["GpuXidContextSwitchTimeout", "GpuRecoveryReset", "GpuRecoveryResetCleared", "GpuLost"])

        def reasons() -> list[str]:
            return sorted(one["reason"] for one in events_of(admin, self.rig.node))

        eventually(lambda: (killer is not None and killer.done) or reasons() == told, str(told), 5, reasons)


def check_steady(states: list[Object], kind: str, key: tuple[str, str]) -> None:
    """From the first state that tells the fault on: condition, taint and times stay, and the count only grows."""
    first = next(number for number, node in enumerate(states) if status(node, kind) == "True" and key in faults(node))
    began = condition(states[first], kind)
    assert began is not None
    check_judged_once(states)
    since, count = faults(states[first])[key]["since"], 0
    tainted = False
    for node in states[first:]:
        now = condition(node, kind)
        assert now is not None
        assert (now["status"], now["lastTransitionTime"]) == ("True", began["lastTransitionTime"])
        assert faults(node)[key]["since"] == since
        assert faults(node)[key]["count"] >= count
        count = faults(node)[key]["count"]
        assert len(own_taints(node)) <= 1
        assert own_taints(node) or not tainted, "the taint vanished"
        tainted = bool(own_taints(node))


def check_judged_once(states: list[Object]) -> None:
    """No condition that was True or False becomes Unknown over a restart."""
    judged: set[str] = set()
    for node in states:
        own = {one["type"]: one["status"] for one in node["status"].get("conditions", ()) if is_own(one["type"])}
        assert judged <= own.keys(), "a condition vanished"
        assert not {kind for kind in judged if own[kind] == "Unknown"}, own
        judged |= {kind for kind, word in own.items() if word != "Unknown"}


@pytest.fixture
def node_name(control_plane: Cluster, admin: Admin, unique: str) -> Iterator[Callable[[], str]]:
    """Makes nodes with a fake kubelet each, as many as the test asks for."""
    running: list[FakeKubelet] = []

    def make() -> str:
        name = f"{unique}-{len(running)}"
        kubelet = FakeKubelet(name, control_plane.as_node(name))
        kubelet.start()
        running.append(kubelet)
        admin.wait_for(f"/api/v1/nodes/{name}", lambda node: not node["spec"].get("taints"))
        return name

    yield make
    for kubelet in running:
        kubelet.stop()
        admin.delete(f"/api/v1/nodes/{kubelet.name}")


@pytest.mark.slow
@pytest.mark.timeout(240, func_only=True)
def test_killed_after_each_api_write(
    control_plane: Cluster, admin: Admin, proxy: FaultProxy, node_name: Callable[[], str]
) -> None:
    """The agent is killed as soon as its n-th write was answered, for every n of the story."""
    config = control_plane.kubeconfig_for_token(control_plane.admin_token(), server=proxy.url, ca=proxy.ca)
    killed = 0
    for number in range(1, API_WRITES + 1):
        proxy.forget_requests()

        def due(number: int = number) -> bool:
            return sum(seen.method in _WRITES and code < 300 for seen, code in proxy.answers()) >= number

        with Rig(node_name(), config) as rig:
            killed += _killed_when(rig, admin, due)
    assert 4 <= killed < API_WRITES, "the story makes more writes than the test knows"


@pytest.mark.slow
@pytest.mark.timeout(240, func_only=True)
def test_killed_after_each_store_write(
    control_plane: Cluster, admin: Admin, node_name: Callable[[], str]
) -> None:
    """The agent is killed as soon as its n-th state file is in place, for every n of the story."""
    killed = 0
    for number in range(1, STORE_WRITES + 1):
        with Rig(node_name(), control_plane.kubeconfig) as rig:
            killed += _killed_when(rig, admin, Replacements(rig).at_least(number))
    assert 3 <= killed < STORE_WRITES, "the story makes more store writes than the test knows"


class Replacements:
    """Counts how often the state file was replaced, by its inode."""

    def __init__(self, rig: Rig) -> None:
        self._path = rig.state
        self._last = 0
        self._count = 0

    def at_least(self, number: int) -> Callable[[], bool]:
        """Whether it was replaced that often by now; ask all the time."""

        def look() -> bool:
            try:
                inode = self._path.stat().st_ino
            except OSError:
                return False
            self._count += inode != self._last
            self._last = inode
            return self._count >= number

        return look


def _killed_when(rig: Rig, admin: Admin, due: Callable[[], bool]) -> bool:
    """Play the story, kill the agent when it is ``due``, start another, and check what both left."""
    log = rig.log_file()
    story = Story(rig, log)
    with NodeStates(admin, rig.node) as states, Killer(rig.start(), due) as killer:
        for part in story.parts():
            eventually(functools.partial(_reached, killer, states, part), "the story so far", 20, rig.log.read_text)
        story.check_events(admin, killer)
        if killer.finish():
            rig.start()
        states.wait_now(story.is_told, "the whole story, after a restart", 20)
        story.check(states.all)
        story.check_events(admin)
    return killer.done


def _reached(killer: Killer, states: NodeStates, part: Callable[[Object], bool]) -> bool:
    return killer.done or part(states.newest)


class Killer:
    """Kills an agent, in a thread, as soon as it is due."""

    def __init__(self, agent: AgentProcess, due: Callable[[], bool]) -> None:
        self._agent, self._due = agent, due
        self._over = threading.Event()
        self.done = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> bool:
        """Kill no more; whether it did."""
        self._over.set()
        self._thread.join()
        return self.done

    def _run(self) -> None:
        while not self._over.wait(0.0005):
            if self._due():
                self._agent.kill()
                self.done = True
                return


def test_killed_before_the_state_was_saved(control_plane: Cluster, admin: Admin, node_name: Callable[[], str]) -> None:
    """What the Node says and the state file does not know yet still stands, with its times, after a kill."""
    with Rig(node_name(), control_plane.kubeconfig) as rig, NodeStates(admin, rig.node) as states:
        log = rig.log_file()
        agent = rig.start()
        rig.wait_ready()
        log.xid(rig.hardware.slots[7], 43, "pid=5, name=python3, Ch 00000008")
        eventually(lambda: rig.state.exists() and rig.faults(), "a program's fault is saved")
        in_the_way = rig.refuse_state()
        slot = rig.hardware.slots[0]
        log.xid(slot, 109, TIMEOUT_WORDS)
        log.xid(slot, 154, RESET_DUE)
        states.wait_now(lambda node: status(node, "GpuRecoveryRequired") == "True" and own_taints(node), "two faults")
        agent.wait_said("state not saved")
        agent.kill()
        in_the_way.rmdir()
        rig.start()
        rig.wait_ready()
        log.xid(rig.hardware.slots[1], 79, "GPU has fallen off the bus.")
        states.wait_now(lambda node: status(node, "GpuLost") == "True", "a later fault")
        check_steady(states.all, "GpuDriverFault", ("gpu-xid-context-switch-timeout", f"gpu/{slot}"))
        check_steady(states.all, "GpuRecoveryRequired", ("gpu-recovery-reset", f"gpu/{slot}"))
        # a level has no name of its own: while the disk refuses the state, its Event may be told by both agents
        eventually(lambda: {one["reason"] for one in events_of(admin, rig.node)} == {
            "GpuLost", "GpuRecoveryReset", "GpuXidContextSwitchTimeout"}, "three Events")
