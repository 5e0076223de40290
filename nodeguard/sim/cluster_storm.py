"""The demo's storm: many Node objects whose agents' words the demo writes itself, all at fault at one moment."""

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Self

from nodeguard.kube.api import STRATEGIC_PATCH, Object, node_path
from nodeguard.kube.lease import NODES_PATH
from nodeguard.kube.patches import rfc3339, status_patch
from nodeguard.model.errors import NodeguardError
from nodeguard.model.intent import FAULTS_ANNOTATION
from nodeguard.sim.cluster_kubelet import CAPACITY, ready_conditions
from nodeguard.sim.cluster_stage import Stage
from nodeguard.sim.cluster_view import Expected, Seen
from nodeguard.sim.story import Plot, Scene, is_unmarked, line, loop_taint, status, uids, where

TITLE = "30 more nodes say at one moment that a GPU is lost: only the budget's number is acted on"
NODES = 30
BUDGET_PERCENT = 10

_CONDITION = "GpuLost"
_CALM = 1.5
_PATIENCE = 20.0


class Crowd:
    """Nodes without a kubelet and without an agent, ready and well. A context manager."""

    def __init__(self, stage: Stage, names: list[str]) -> None:
        self._stage, self.names = stage, names
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for name in self.names:
                stack.callback(self._stage.remove_node, name)
                self._stage.api.post(NODES_PATH, {
                    "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": self._stage.labels},
                    "spec": {"taints": self._stage.taints}})
                status = {"capacity": dict(CAPACITY), "allocatable": dict(CAPACITY), "conditions": ready_conditions()}
                self._stage.api.patch(f"{node_path(name)}/status", {"status": status}, STRATEGIC_PATCH)
                self.say(name, at_fault=False)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def say(self, name: str, *, at_fault: bool) -> None:
        """Write what the node's agent would: condition and annotation."""
        now = time.time()
        document = {"v": 1, "boot": f"boot-of-{name}", "rules": "demo", "at": rfc3339(now, "milliseconds"), "cut": 0,
                    "faults": [_lost(now)] if at_fault else []}
        said = {"type": _CONDITION, "status": str(at_fault), "reason": "GpuLost" if at_fault else "NoFault",
                "message": "written by the demo", "lastTransitionTime": rfc3339(now)}
        patch = status_patch([said], (), {FAULTS_ANNOTATION: json.dumps(document)})
        self._stage.api.patch(f"{node_path(name)}/status", patch, STRATEGIC_PATCH)


class StormStory(Plot):
    """Thirty nodes fall ill at once beside those on which the training runs."""

    def __init__(self, scene: Scene, crowd: Crowd) -> None:
        super().__init__(scene, _CONDITION)
        self._crowd = crowd
        self._budget = (NODES + len(self._nodes)) * BUDGET_PERCENT // 100

    def lines(self) -> Iterator[str]:
        """Everything, each line when it happened. NodeguardError: something did not come in time, or too much was."""
        yield from self.beginning()
        ranks = self._view.now(uids)
        yield from self.storm()
        acted = self._view.now(self._acted)
        yield from self.recovery(acted)
        if self._view.now(uids) != ranks:
            raise NodeguardError("a rank of the training Job was moved, and its node was not at fault")
        yield f"the training was not touched: {self._view.now(where)}"

    def storm(self) -> Iterator[str]:
        """All of them are at fault; a few are acted on, then nothing more is begun."""
        total = NODES + len(self._nodes)
        yield f"\n{NODES} of {total} nodes lose a GPU (their agents' words are written by the demo):"
        wanted = [self._all_say("True"), Expected("the loop acts on the first of them", self._acted)]
        self._view.expect(*wanted)
        began = time.monotonic()
        for name in self._crowd.names:
            self._crowd.say(name, at_fault=True)
        yield from self._lines(wanted, began)
        told = self._told.first(lambda one: one.what == "storm", _PATIENCE)
        if told is None:
            raise NodeguardError(f"the loop did not call it a storm within {_PATIENCE:g} s{self._told.trouble}")
        yield f"the loop: storm, {told.text}; nothing more is begun"
        if not self._view.stays(lambda seen: len(self._acted(seen)) <= self._budget, _CALM):
            raise NodeguardError(f"more than the budget of {self._budget} nodes were acted on")
        acted = self._view.now(self._acted)
        yield (f"{_CALM:g} s later: acted on {len(acted)} of {NODES}, the budget is {self._budget} "
               f"({BUDGET_PERCENT} % of {total}); the other {NODES - len(acted)} have their condition and nothing else")

    def recovery(self, acted: list[str]) -> Iterator[str]:
        """Everybody is well again: what was begun is finished although the storm holds, and nothing is caught up on."""
        yield "\nthe power is back, every GPU with it:"
        wanted = [self._all_say("False"), Expected(
            f"recoveries go on during the storm: all {len(acted)} verified for 2 s and released",
            lambda seen: all(is_unmarked(seen.nodes[name]) for name in acted))]
        self._view.expect(*wanted)
        began = time.monotonic()
        for name in self._crowd.names:
            self._crowd.say(name, at_fault=False)
        yield line(0.0, "the agents have nothing to complain of")
        yield from self._lines(wanted, began)
        if not self._view.stays(lambda seen: not self._acted(seen), _CALM):
            raise NodeguardError("a node that is well was acted on after the storm")
        yield f"{_CALM:g} s later: no other node was acted on, nothing is replayed"

    def _all_say(self, word: str) -> Expected:
        names = self._crowd.names
        return Expected(f"condition {_CONDITION}={word} on all {len(names)}",
                        lambda seen: all(status(seen.nodes.get(name, {}), _CONDITION) == word for name in names))

    def _acted(self, seen: Seen) -> list[str]:
        return [name for name in self._crowd.names if loop_taint(seen.nodes.get(name, {}))]


def _lost(now: float) -> Object:
    return {"rule": "gpu-lost", "hash": "demo", "device": "gpu/GPU-demo", "pci": None, "severity": "critical",
            "action": "reboot_node", "effect": "evict", "scope": "node", "count": 1,
            "since": rfc3339(now, "milliseconds")}
