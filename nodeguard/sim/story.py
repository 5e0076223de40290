"""The demo's timeline as lines of text: what was done to a simulated node, and when a client of the API saw what.

A part of the story is a method that yields lines, so that later parts (a job that moves, a node that is repaired) join
without touching these.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nodeguard.kube.api import Object
from nodeguard.model.errors import NodeguardError
from nodeguard.model.intent import CONDITION_PATTERN
from nodeguard.sim.fleet import FleetNode
from nodeguard.sim.scenarios import Deed, Scenario, print_inventory
from nodeguard.sim.timeline import Watcher, annotation, condition, taint

_PATIENCE = 20.0


class Story:
    """What happens to one GPU of one node while others run beside it. Made before the agents are started."""

    def __init__(self, scenario: Scenario, faulty: FleetNode, gpu: int, watcher: Watcher,
                 others: Sequence[Watcher]) -> None:
        """``watcher`` follows the faulty node, ``others`` the rest."""
        self._made = time.monotonic()
        self._scenario, self._node, self._gpu = scenario, faulty, gpu
        self._watcher, self._others = watcher, tuple(others)
        self._seen: Object = {}

    def lines(self) -> Iterator[str]:
        """Everything, each line when it happened. NodeguardError: something did not come in time."""
        yield from self.beginning()
        yield from self.fault()
        yield from self.what_the_node_says()
        yield from self.the_others()
        if self._scenario.mend is not None:
            yield from self.mending(self._scenario.mend)

    def beginning(self) -> Iterator[str]:
        """Every agent has judged its node healthy."""
        latest = max(self._wait(one, self._is("False"), "the agent judges its node healthy", self._made)
                     for one in (self._watcher, *self._others))
        yield _line(latest - self._made, f"{1 + len(self._others)} agents have started and judged: all is well")

    def fault(self) -> Iterator[str]:
        """The GPU breaks; condition, annotation and taint follow."""
        scenario, uuid = self._scenario, self._node.uuids[self._gpu]
        yield f"\nGPU {self._gpu} ({self._node.slots[self._gpu]}) of {self._node.name} breaks:"
        self._node.do(print_inventory, self._gpu)
        broken = self._node.do(scenario.breaks, self._gpu)
        yield _line(0.0, scenario.title)
        yield self._expect(f"condition {scenario.condition}=True", self._is("True"), broken)
        yield self._expect("annotation nodeguard.io/faults names the GPU",
                           lambda seen: uuid in annotation(seen), broken)
        if scenario.taint:
            yield self._expect("taint nodeguard.io/unhealthy:NoSchedule", taint, broken)

    def what_the_node_says(self) -> Iterator[str]:
        """The conditions that are True on the faulty node."""
        yield f"\nwhat {self._node.name} says now:"
        for one in (self._seen.get("status") or {}).get("conditions") or []:
            if one["status"] == "True":
                yield f"  {one['type']:<20} {one['status']:<6} {one['reason']:<24} {one['message']}"

    def the_others(self) -> Iterator[str]:
        """No other node was touched. NodeguardError: one was."""
        if any(other.wait_for(_touched, timeout=0.0) is not None for other in self._others):
            raise NodeguardError("a healthy node was touched: it has a condition True, or a taint")
        yield f"the other {len(self._others)} nodes stay clean: no condition True, no taint"

    def mending(self, mend: Deed) -> Iterator[str]:
        """The evidence of the cure arrives; condition and taint go."""
        yield "\nit is mended:"
        mended = self._node.do(mend, self._gpu)
        yield _line(0.0, self._scenario.mend_title)
        yield self._expect(f"condition {self._scenario.condition}=False", self._is("False"), mended)
        yield self._expect("taint removed", lambda seen: taint(seen) is None, mended)

    def _is(self, status: str) -> Callable[[Object], bool]:
        name = self._scenario.condition
        return lambda node: (condition(node, name) or {}).get("status") == status

    def _expect(self, what: str, wanted: Callable[[Object], Any], since: float) -> str:
        return _line(self._wait(self._watcher, wanted, what, since) - since, what)

    def _wait(self, watcher: Watcher, wanted: Callable[[Object], Any], what: str, since: float) -> float:
        def check(node: Object) -> bool:
            if wanted(node):
                self._seen = node
                return True
            return False

        at = watcher.wait_for(check, after=since, timeout=_PATIENCE)
        if at is None:
            raise NodeguardError(f"not seen within {_PATIENCE:g} s: {what}")
        return at


def _touched(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return taint(node) is not None or any(one["status"] == "True" and re.match(CONDITION_PATTERN, one["type"])
                                       for one in conditions)


def _line(seconds: float, text: str) -> str:
    return f"  {seconds * 1000:8.1f} ms  {text}"
