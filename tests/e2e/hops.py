"""One fault on its whole way, as a watcher of the cluster sees it: from the kernel line to the running replacements."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .agent_nodes import own_taints, status
from .loops import UNCONTAINED, loop_taint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nodeguard.sim.node import SimulatedNode

    from .controlplane.admin import Object
    from .watching import Watching

HOPS = ("condition", "taint", "quarantine", "sent", "gone", "bound", "running")
"""What is seen, in this order: the agent's condition and taint, the loop's taint, the suspension or the first eviction,
the last old pod's end, the last new pod bound, the last new pod running."""


@dataclass(frozen=True)
class Moving:
    """What a fault is to move."""

    node: str
    pods: str
    """``namespace/name-`` with which the owner's pods begin."""
    job: str | None
    """``namespace/name`` of a Job; None: pods are evicted one by one."""
    old: frozenset[str]
    """UIDs of the pods that are to go."""
    before: frozenset[str]
    """UIDs of all pods before the fault: those and failed ones."""

    @classmethod
    def of(cls, node: str, namespace: str, name: str, found: list[Object], *, job: bool = True) -> Moving:
        """From the pods before the fault."""
        alive = [pod for pod in found if pod["status"].get("phase") != "Failed"]
        return cls(node, f"{namespace}/{name}-", f"{namespace}/{name}" if job else None,
                   frozenset(pod["metadata"]["uid"] for pod in alive),
                   frozenset(pod["metadata"]["uid"] for pod in found))


def break_gpu(hardware: SimulatedNode) -> float:
    """The kernel line of an uncontained ECC error; the monotonic time before it was written."""
    began = time.monotonic()
    hardware.log.xid(hardware.slots[0], 95, UNCONTAINED)
    return began


def follow(watching: Watching, moving: Moving, began: float, seconds: float = 30.0) -> dict[str, float]:
    """Seconds from ``began`` until each hop was seen; AssertionError when one is not within ``seconds``."""
    looks = dict(_looks(watching, moving, began))
    return {name: watching.wait(looks[name], f"{name}: {moving}", seconds) - began for name in HOPS}


def _looks(watching: Watching, moving: Moving, began: float) -> Iterator[tuple[str, Callable[[], float | None]]]:
    node = moving.node
    yield "condition", lambda: watching.first("nodes", node, _is_condition, began)
    yield "taint", lambda: watching.first("nodes", node, lambda one: one is not None and own_taints(one), began)
    yield "quarantine", lambda: watching.first("nodes", node, lambda one: one is not None and loop_taint(one), began)
    yield "sent", lambda: _sent(watching, moving, began)
    yield "gone", lambda: _gone(watching, moving)
    yield "bound", lambda: _new(watching, moving, lambda pod: pod["spec"].get("nodeName"))
    yield "running", lambda: _new(watching, moving, _is_running)


def _is_condition(node: Object | None) -> bool:
    return node is not None and bool(status(node, "GpuMemoryFault") == "True")


def _is_running(pod: Object) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _sent(watching: Watching, moving: Moving, began: float) -> float | None:
    if moving.job is not None:
        return watching.first("jobs", moving.job, lambda one: one is not None and one["spec"].get("suspend"), began)
    ending = (watching.first("pods", key, lambda one: one is None or "deletionTimestamp" in one["metadata"], began)
              for key in _old(watching, moving))
    return min((at for at in ending if at is not None), default=None)


def _old(watching: Watching, moving: Moving) -> Iterator[str]:
    for key in watching.keys("pods", moving.pods):
        if any(one is not None and one["metadata"]["uid"] in moving.old for _, one in watching.states("pods", key)):
            yield key


def _gone(watching: Watching, moving: Moving) -> float | None:
    ends = [watching.first("pods", key, lambda one: one is None, 0.0) for key in _old(watching, moving)]
    known = [at for at in ends if at is not None]
    return max(known) if ends and len(known) == len(ends) else None


def _new(watching: Watching, moving: Moving, reached: Callable[[Object], object]) -> float | None:
    first: dict[str, float] = {}
    for key in watching.keys("pods", moving.pods):
        for at, one in watching.states("pods", key):
            if one is not None and one["metadata"]["uid"] not in moving.before and reached(one):
                first.setdefault(one["metadata"]["uid"], at)
    times = sorted(first.values())
    return times[len(moving.before) - 1] if len(times) >= len(moving.before) else None
