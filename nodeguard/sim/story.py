"""The demo's timeline as lines of text: what was done to a simulated node, and when a client of the API saw what.

A part of the story is a method that yields lines, so that others join without touching these.
"""

import json
import re
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from nodeguard.kube.api import Object
from nodeguard.model.errors import NodeguardError
from nodeguard.model.intent import CONDITION_PATTERN
from nodeguard.remediation import marks
from nodeguard.sim.cluster_job import INDEX, alive
from nodeguard.sim.cluster_stage import JOB, RANKS, Stage
from nodeguard.sim.cluster_told import Told
from nodeguard.sim.cluster_view import ClusterView, Expected, Seen
from nodeguard.sim.fleet import FleetNode
from nodeguard.sim.scenarios import Deed, Scenario, print_inventory
from nodeguard.sim.timeline import annotation, condition, taint

PATIENCE = 20.0
"""Seconds for each part to come true."""
_CALM = 1.5
"""Seconds for which nothing must happen."""
_BEGINNING = 60.0


@dataclass(frozen=True, slots=True)
class Scene:
    """What every story has."""

    stage: Stage
    view: ClusterView
    nodes: Sequence[FleetNode]
    told: Told
    """What the loop tells of its work."""


class Plot:
    """What every story begins with. Made before the agents are started."""

    def __init__(self, scene: Scene, watched: str) -> None:
        """``watched``: the condition type that the story is about."""
        self._made = time.monotonic()
        self._watched, self._stage, self._view, self._told = watched, scene.stage, scene.view, scene.told
        self._nodes = tuple(scene.nodes)
        self._begun = (
            Expected(f"{len(self._nodes)} agents have started and judged: all is well", self._all_well),
            Expected(f"Job {JOB} runs", lambda seen: _run(seen, ()),
                     words=lambda seen: f"Job {JOB} runs: {where(seen)}"))
        self._view.expect(*self._begun)

    def beginning(self) -> Iterator[str]:
        """Every agent has judged its node healthy, and every rank of the training Job runs."""
        yield from self._lines(self._begun, self._made, _BEGINNING)

    def _all_well(self, seen: Seen) -> bool:
        return all(status(seen.nodes.get(node.name, {}), self._watched) == "False" for node in self._nodes)

    def _lines(self, wanted: Sequence[Expected], since: float, seconds: float = PATIENCE) -> Iterator[str]:
        """A line for each as it comes, with the time since ``since``. NodeguardError: one did not come."""
        try:
            for one in self._view.come(wanted, seconds):
                yield line((one.at or since) - since, one.what)
        except NodeguardError as error:
            raise NodeguardError(f"{error}{self._told.trouble}") from error


class Story(Plot):
    """What happens to one GPU of one node, and what becomes of the training Job."""

    def __init__(self, scenario: Scenario, gpu: int, scene: Scene) -> None:
        super().__init__(scene, scenario.condition)
        self._scenario, self._gpu = scenario, gpu
        self._node = self._nodes[0]

    def lines(self) -> Iterator[str]:
        """Everything, each line when it happened. NodeguardError: something did not come in time."""
        yield from self.beginning()
        self._node = self._with_a_rank()
        yield from self.fault()
        yield from self.what_the_node_says()
        if self._scenario.effect != "evict":
            yield from self.nobody_moves()
        yield from self.the_others()
        if self._scenario.mend is not None:
            yield from self.mending(self._scenario.mend)
        if self._scenario.note:
            yield f"\n{self._scenario.note}"

    def _with_a_rank(self) -> FleetNode:
        name = self._view.now(lambda seen: ranks(seen)[0]["spec"]["nodeName"])
        return next(node for node in self._nodes if node.name == name)

    def fault(self) -> Iterator[str]:
        """The GPU breaks; condition, annotation and taint follow, and what the loop does."""
        scenario = self._scenario
        yield f"\n{scenario.part} {self._gpu} ({self._node.slots[self._gpu]}) of {self._node.name} breaks:"
        self._node.do(print_inventory, self._gpu)
        wanted = [*self._said(), *(self._moved() if scenario.effect == "evict" else ())]
        self._view.expect(*wanted)
        broken = self._node.do(scenario.breaks, self._gpu)
        yield line(0.0, scenario.title)
        yield from self._lines(wanted, broken)

    def _said(self) -> Iterator[Expected]:
        scenario = self._scenario
        yield self._has_condition("True")
        yield Expected(f"annotation nodeguard.io/faults tells it, with effect {scenario.effect}",
                       lambda seen: scenario.effect in _effects(self._of(seen)))
        if scenario.taint:
            yield Expected("taint nodeguard.io/unhealthy:NoSchedule", lambda seen: taint(self._of(seen)))

    def _moved(self) -> Iterator[Expected]:
        old = self._view.now(uids)
        yield Expected("the loop takes a budget slot and marks the node: taint nodeguard.io/remediation",
                       lambda seen: loop_taint(self._of(seen)))
        suspended = Expected(f"the gang is suspended: Job {JOB}", lambda seen: _suspended(seen) is True)
        yield suspended
        yield Expected("the old pods are gone", after=suspended,
                       holds=lambda seen: not old & {pod["metadata"]["uid"] for pod in seen.pods.values()})
        yield Expected("the gang is resumed, and its mark is gone", lambda seen: _suspended(seen) is False,
                       after=suspended)
        yield Expected("every rank is bound to a healthy node", after=suspended,
                       holds=lambda seen: _bound(seen, old, self._node.name))
        yield Expected("every rank runs", lambda seen: _bound(seen, old, self._node.name) and _run(seen, old),
                       after=suspended, words=lambda seen: f"every rank runs: {where(seen)}")

    def what_the_node_says(self) -> Iterator[str]:
        """The conditions that are True on the faulty node."""
        yield f"\nwhat {self._node.name} says now:"
        for one in self._view.now(lambda seen: (self._of(seen).get("status") or {}).get("conditions") or []):
            if one["status"] == "True" and _own(one):
                yield f"  {one['type']:<20} {one['status']:<6} {one['reason']:<24} {one['message']}"

    def nobody_moves(self) -> Iterator[str]:
        """Nobody was evicted for it. NodeguardError: somebody was."""
        before = self._view.now(uids)
        if not self._view.stays(lambda seen: uids(seen) == before and not loop_taint(self._of(seen)), _CALM):
            raise NodeguardError("a pod was moved, or the loop marked the node, for a fault that does not evict")
        away = "new pods stay away" if self._scenario.taint else "the node stays open"
        yield (f"effect {self._scenario.effect}: {away}, nobody is evicted, the loop does nothing; "
               f"{self._view.now(where)}")

    def the_others(self) -> Iterator[str]:
        """No other node was touched. NodeguardError: one was."""
        others = [node.name for node in self._nodes if node is not self._node]
        if self._view.now(lambda seen: any(_touched(seen.nodes[name]) for name in others)):
            raise NodeguardError("a healthy node was touched: it has a condition True, or a taint")
        yield f"the other {len(others)} nodes stay clean: no condition True, no taint"

    def mending(self, mend: Deed) -> Iterator[str]:
        """The evidence of the cure arrives; condition and taint go, and the loop gives the node back."""
        yield "\nit is mended:"
        wanted = [*self._cured(), *(self._released() if self._scenario.effect == "evict" else ())]
        self._view.expect(*wanted)
        mended = self._reboot(mend) if self._scenario.reboot else self._node.do(mend, self._gpu)
        yield line(0.0, self._scenario.mend_title)
        yield from self._lines(wanted, mended)
        if self._scenario.effect == "evict":
            job = self._view.now(lambda seen: next(iter(seen.jobs.values())))
            yield (f"the training goes on: {self._view.now(where)}; "
                   f"{int((job.get('status') or {}).get('failed') or 0)} pods failed")

    def _reboot(self, mend: Deed) -> float:
        kubelet = self._stage.kubelets[self._node.name]
        kubelet.stop()
        began = self._node.reboot(mend, self._gpu)
        kubelet.boot_id = self._node.boot_id
        kubelet.start()
        return began

    def _cured(self) -> Iterator[Expected]:
        yield self._has_condition("False")
        if self._scenario.taint:
            yield Expected("taint removed", lambda seen: taint(self._of(seen)) is None)

    def _released(self) -> Iterator[Expected]:
        verifying = Expected("the loop verifies: the agent must have nothing to complain of for 2 s",
                             lambda seen: loop_taint(self._of(seen)) == "verifying")
        yield verifying
        yield Expected("verified: the node is released, and no mark of nodeguard is left", after=verifying,
                       holds=lambda seen: is_unmarked(self._of(seen)))

    def _has_condition(self, word: str) -> Expected:
        return Expected(f"condition {self._watched}={word}",
                        lambda seen: status(self._of(seen), self._watched) == word)

    def _of(self, seen: Seen) -> Object:
        return seen.nodes.get(self._node.name, {})


def line(seconds: float, text: str) -> str:
    """One line of a timeline."""
    return f"  {seconds * 1000:8.1f} ms  {text}"


def status(node: Object, condition_type: str) -> str | None:
    """The status of a condition; None without it."""
    return (condition(node, condition_type) or {}).get("status")


def ranks(seen: Seen) -> list[Object]:
    """The training Job's living pods, by rank."""
    return sorted(filter(alive, seen.pods.values()), key=lambda pod: pod["metadata"]["annotations"][INDEX])


def uids(seen: Seen) -> frozenset[str]:
    """Of the training Job's living pods."""
    return frozenset(pod["metadata"]["uid"] for pod in ranks(seen))


def where(seen: Seen) -> str:
    """Where each rank is, for people."""
    return ", ".join(f"rank {pod['metadata']['annotations'][INDEX]} on {pod['spec'].get('nodeName', 'no node')}"
                     for pod in ranks(seen))


def loop_taint(node: Object) -> str | None:
    """The state in the loop's taint; None without one."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return next((str(one.get("value")) for one in taints if one["key"] == marks.TAINT_KEY), None)


def is_unmarked(node: Object) -> bool:
    """Whether neither the agent nor the loop holds the node."""
    annotations = (node.get("metadata") or {}).get("annotations") or {}
    return taint(node) is None and loop_taint(node) is None and marks.RECORD not in annotations


def _run(seen: Seen, old: Collection[str]) -> bool:
    found = [pod for pod in ranks(seen) if pod["metadata"]["uid"] not in old]
    return len(found) == RANKS and all((pod.get("status") or {}).get("phase") == "Running" for pod in found)


def _bound(seen: Seen, old: frozenset[str], avoided: str) -> bool:
    places = [pod["spec"].get("nodeName") for pod in ranks(seen) if pod["metadata"]["uid"] not in old]
    return len(places) == RANKS and all(place and place != avoided for place in places)


def _suspended(seen: Seen) -> bool | None:
    """True: by the loop; False: by nobody, and without a mark; None: neither."""
    for job in seen.jobs.values():
        marked = marks.RESTART_LABEL in (job["metadata"].get("labels") or {})
        suspended = bool(job["spec"].get("suspend"))
        return suspended if suspended == marked else None
    return None


def _effects(node: Object) -> set[str]:
    """Effects of the faults in the agent's annotation."""
    return {fault["effect"] for fault in json.loads(annotation(node) or "{}").get("faults", ())}


def _touched(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return not is_unmarked(node) or any(one["status"] == "True" and _own(one) for one in conditions)


def _own(one: Object) -> bool:
    return re.match(CONDITION_PATTERN, one["type"]) is not None
