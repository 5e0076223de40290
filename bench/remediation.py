"""From a kernel line to the running replacements, hop by hop, on a real control plane with the real agent and loop."""

import concurrent.futures
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.table import Row, percentile
from tests.e2e import loops
from tests.e2e.agents import Rig
from tests.e2e.controlplane.admin import Object
from tests.e2e.controlplane.errors import ControlPlaneUnavailable
from tests.e2e.controlplane.server import ControlPlane
from tests.e2e.forked import Forks
from tests.e2e.hops import HOPS, Moving, break_gpu, follow
from tests.e2e.watching import Watching

FAULTS = int(os.environ.get("NODEGUARD_BENCH_FAULTS", "50"))
_BATCH_NODES = 40
"""Nodes that are set up together."""
_TOGETHER = 4
_P50, _P99 = 300, 600
"""Milliseconds from the line until every replacement is bound (design, section 1)."""
_NAMESPACE = "bench"


class Kind(NamedTuple):
    """What is broken under which load. A fresh owner on fresh nodes each time."""

    title: str
    ranks: int = 2
    job: bool = True
    restart: str = "OnFailure"
    restarted: int = 0
    """Ranks whose process ended and was started again in place before."""
    failed: int = 0
    """Ranks that failed for good before, on other nodes than the faulty one."""
    termination: float = 0.0
    """Seconds that pods take to end."""

    @property
    def waits(self) -> bool:
        """Whether something slow is part of it, so that faults may overlap."""
        return bool(self.failed or self.termination)

    @property
    def faults(self) -> int:
        """How many; fewer where each waits for the Job controller's back-off."""
        return max(1, FAULTS // 5) if self.failed else FAULTS


KINDS = (
    Kind("ReplicaSet", ranks=1, job=False),
    Kind("Job of 2, OnFailure"),
    Kind("Job of 2, OnFailure, 1 process restarted before", restarted=1),
    Kind("Job of 2, OnFailure, every process restarted before", restarted=2),
    Kind("Job of 8, OnFailure", ranks=8),
    Kind("Job of 2, Never, no rank failed", restart="Never"),
    Kind("Job of 2, OnFailure, pods end in 5 s", termination=5.0),
    Kind("Job of 2, Never, 1 rank failed: job-backoff", restart="Never", failed=1),
)


class Fault:
    """One fault's own nodes, owner and agent."""

    def __init__(self, bench: "Bench", kind: Kind) -> None:
        self._bench, self._kind = bench, kind
        self._nodes = loops.Nodes(bench.plane, kind.ranks + 1, termination=kind.termination)
        self.name = self._nodes.place
        self._stack = contextlib.ExitStack()

    def set_up(self) -> None:
        """Start nodes and owner, then the agent of a node with a rank; let happen what happens before the fault."""
        bench, kind = self._bench, self._kind
        self._stack.enter_context(self._nodes)
        body = (loops.job(self.name, self.name, kind.ranks, restart=kind.restart) if kind.job
                else loops.replica_set(self.name, self.name))
        self._path = loops.create(bench.plane.admin, _NAMESPACE, body)
        self._wait(lambda pods: sum(_runs(pod) for pod in pods) == kind.ranks, "every rank runs")
        pods = self._pods()
        self._sick = str(pods[0]["spec"]["nodeName"])
        self._rig = self._stack.enter_context(Rig(self._sick, self._nodes.kubeconfig(self._sick), gpus=1))
        self._agent = bench.forks.start(["agent", *self._rig.arguments()], self._rig.log)
        self._rig.wait_ready(30)
        for pod in pods[:kind.restarted]:
            self._end(pod)
        if kind.restarted:
            self._wait(lambda now: sum(map(_restarts, now)) == kind.restarted, "processes were restarted")

    def run(self) -> dict[str, float]:
        """Break the GPU; milliseconds until each hop was seen."""
        for pod in self._pods()[1:1 + self._kind.failed]:
            self._end(pod)
        if self._kind.failed:
            self._wait(lambda now: sum(pod["status"].get("phase") == "Failed" for pod in now) == self._kind.failed,
                       "ranks have failed")
        moving = Moving.of(self._sick, _NAMESPACE, self.name, self._pods(), job=self._kind.job)
        hops = follow(self._bench.watching, moving, break_gpu(self._rig.hardware), 60.0)
        return {name: 1000 * seconds for name, seconds in hops.items()}

    def tear_down(self) -> None:
        """Leave nothing."""
        self._bench.forks.kill(self._agent)
        loops.discard(self._bench.plane.admin, _NAMESPACE, [self._path], self.name)
        self._stack.close()
        self._bench.watching.forget(self.name)

    def _pods(self) -> list[Object]:
        watching, found = self._bench.watching, []
        for key in sorted(watching.keys("pods", f"{_NAMESPACE}/{self.name}-")):
            newest = watching.states("pods", key)[-1][1]
            found += [] if newest is None else [newest]
        return found

    def _wait(self, holds: Callable[[list[Object]], bool], what: str) -> None:
        self._bench.watching.wait(lambda: 0.0 if holds(self._pods()) else None, f"{self.name}: {what}", 60.0)

    def _end(self, pod: Object) -> None:
        self._nodes.kubelets[pod["spec"]["nodeName"]].finish(_NAMESPACE, pod["metadata"]["name"], 1)


class Bench(NamedTuple):
    """What all faults share."""

    plane: ControlPlane
    watching: Watching
    forks: Forks


def run() -> list[Row]:
    """Every kind of owner."""
    try:
        plane = ControlPlane()
    except ControlPlaneUnavailable as error:
        return [Row("kernel line → bound", None, "ms", note=str(error))]
    rows: list[Row] = []
    with _ready(plane) as bench:
        for kind in KINDS:
            began = time.monotonic()
            rows += _rows(kind, list(_faults(bench, kind)))
            print(f"bench: {kind.title}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return rows


@contextlib.contextmanager
def _ready(plane: ControlPlane) -> Iterator[Bench]:
    with plane, tempfile.TemporaryDirectory() as directory, loops.installed(plane), Forks() as forks:
        plane.admin.create("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
        plane.admin.wait_for(f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts/default", bool, seconds=30)
        with Watching(plane.admin) as watching, loops.LoopProcess(plane, Path(directory)) as loop:
            loop.wait_leading()
            yield Bench(plane, watching, forks)


def _faults(bench: Bench, kind: Kind) -> Iterator[dict[str, float]]:
    left = kind.faults
    size = max(1, _BATCH_NODES // (kind.ranks + 1))
    with concurrent.futures.ThreadPoolExecutor(_TOGETHER) as pool, concurrent.futures.ThreadPoolExecutor(size) as many:
        while left > 0:
            batch = [Fault(bench, kind) for _ in range(min(size, left))]
            left -= len(batch)
            list(pool.map(Fault.set_up, batch))
            time.sleep(0.5)  # what the setting up has begun comes to rest
            yield from _overlapping(many, batch) if kind.waits else map(Fault.run, batch)
            list(pool.map(Fault.tear_down, batch))


def _overlapping(pool: concurrent.futures.Executor, batch: list[Fault]) -> Iterator[dict[str, float]]:
    """Each begins when the one before is in its long wait."""
    started = []
    for fault in batch:
        started.append(pool.submit(fault.run))
        time.sleep(0.6)
    return (one.result() for one in started)


def _rows(kind: Kind, found: list[dict[str, float]]) -> Iterator[Row]:
    slow = kind.failed > 0
    for hop in HOPS:
        values = [one[hop] for one in found]
        budgets = (_P50, _P99) if hop == "bound" and not kind.waits else (None, None)
        note = f"{kind.faults} faults" if hop == HOPS[0] else ""
        if slow and hop == "bound":
            note = "the Job controller's back-off after a failed pod; no restart resets it"
        yield Row(f"{kind.title}: line → {hop}, p50", percentile(values, 0.5), "ms", budgets[0], note)
        yield Row(f"{kind.title}: line → {hop}, p99", percentile(values, 0.99), "ms", budgets[1])


def _runs(pod: Object) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _restarts(pod: Object) -> int:
    return sum(int(one["restartCount"]) for one in pod["status"].get("containerStatuses", ()))
