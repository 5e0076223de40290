"""When a watcher of the Node first sees what: the timeline that the demo and the benchmarks print."""

import threading
import time
from collections.abc import Callable
from typing import Any

from nodeguard.kube.api import Api, Object
from nodeguard.kube.watch import NodeWatch
from nodeguard.model.intent import FAULTS_ANNOTATION, TAINT_KEY


def condition(node: Object, name: str) -> Object | None:
    """The condition of this type on a Node."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one.get("type") == name), None)


def taint(node: Object) -> Object | None:
    """Nodeguard's taint on a Node."""
    taints = (node.get("spec") or {}).get("taints") or []
    return next((one for one in taints if one.get("key") == TAINT_KEY), None)


def annotation(node: Object) -> str:
    """The annotation of faults on a Node; empty without one."""
    return str(((node.get("metadata") or {}).get("annotations") or {}).get(FAULTS_ANNOTATION, ""))


class Watcher:
    """Watches one Node as any other client would, and waits for what a test or a demo wants to see."""

    def __init__(self, api: Api, node_name: str) -> None:
        self._changed = threading.Condition()
        self._seen: list[tuple[float, Object]] = []
        self._stop = threading.Event()
        watch = NodeWatch(api, node_name)
        self._thread = threading.Thread(target=watch.run, args=(self._note, self._stop), name="watcher", daemon=True)

    def _note(self, node: Object) -> None:
        with self._changed:
            self._seen.append((time.monotonic(), node))
            self._changed.notify_all()

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End. The thread ends with the watch's connection at the latest."""
        self._stop.set()
        self._thread.join(2.0)

    def wait_for(self, wanted: Callable[[Object], Any], *, after: float = 0.0, timeout: float = 10.0) -> float | None:
        """The monotonic time at which the Node, seen after ``after``, was first as wanted; None: not in time."""
        deadline = time.monotonic() + timeout
        looked = 0
        with self._changed:
            while True:
                for seen, node in self._seen[looked:]:
                    if seen >= after and wanted(node):
                        return seen
                looked = len(self._seen)
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return None
