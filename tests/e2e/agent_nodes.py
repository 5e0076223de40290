"""Watches a Node as any client would, and reads what nodeguard says on it."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from typing import TYPE_CHECKING, Self

from .controlplane.admin import Admin, ApiError, Object, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

OWN_TAINT = "nodeguard.io/unhealthy"
FAULTS = "nodeguard.io/faults"


class NodeStates:
    """Follows a Node and keeps every state that a watcher is shown. A context manager; outlives outages."""

    def __init__(self, admin: Admin, node: str) -> None:
        self._admin, self._node = admin, node
        self._changed = threading.Condition()
        self._states: list[Object] = []
        self._stop = threading.Event()
        self._watch: Watch | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_for(lambda _: True, "the Node is there")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._watch is not None:
            self._watch.close()
        self._thread.join(10)

    @property
    def all(self) -> list[Object]:
        """Every state so far, oldest first."""
        with self._changed:
            return list(self._states)

    @property
    def newest(self) -> Object:
        """The last state seen."""
        return self.all[-1]

    def wait_for(self, wanted: Callable[[Object], object], what: str, seconds: float = 10.0, *,
                 after: int = 0) -> Object:
        """The first state from number ``after`` on for which ``wanted`` holds, seen or to come."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                for number, state in enumerate(self._states[after:], after):
                    if wanted(state):
                        return state
                    after = number + 1
                if not self._changed.wait(end - time.monotonic()):
                    last = brief(self._states[-1]) if self._states else None
                    raise AssertionError(f"not within {seconds} s: {what}; the Node says {last}")

    def wait_now(self, wanted: Callable[[Object], object], what: str, seconds: float = 10.0) -> Object:
        """The newest state, as soon as ``wanted`` holds for it; what was true earlier does not count."""
        with self._changed:
            number = max(len(self._states) - 1, 0)
        return self.wait_for(wanted, what, seconds, after=number)

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow_once()
            except (OSError, ApiError, http.client.HTTPException):
                self._stop.wait(0.05)

    def _follow_once(self) -> None:
        node = self._admin.get(f"/api/v1/nodes/{self._node}")
        self._add(node)
        version = node["metadata"]["resourceVersion"]
        path = f"/api/v1/nodes?watch=1&fieldSelector=metadata.name%3D{self._node}&resourceVersion={version}"
        self._watch = self._admin.watch(path, timeout=30)
        for event in self._watch:
            if event["type"] in ("ADDED", "MODIFIED"):
                self._add(event["object"])

    def _add(self, node: Object) -> None:
        with self._changed:
            if self._states and self._states[-1]["metadata"]["resourceVersion"] == node["metadata"]["resourceVersion"]:
                return
            self._states.append(node)
            self._changed.notify_all()


def is_own(kind: str) -> bool:
    """Whether a condition's type is one of nodeguard's."""
    return re.match("Gpu|Nvlink|Pcie|Rdma|Host|Nodeguard", kind) is not None


def condition(node: Object, kind: str) -> Object | None:
    """The condition of a type; AssertionError when there are two."""
    found = [one for one in node["status"].get("conditions", ()) if one["type"] == kind]
    assert len(found) <= 1, found
    return found[0] if found else None


def status(node: Object, kind: str) -> str | None:
    """The status of a condition; None without it."""
    one = condition(node, kind)
    return None if one is None else str(one["status"])


def own_taints(node: Object) -> list[Object]:
    """The taints with nodeguard's key."""
    return [taint for taint in node["spec"].get("taints", ()) if taint["key"] == OWN_TAINT]


def document(node: Object) -> Object:
    """The annotation's document; empty without it."""
    found: Object = json.loads(node["metadata"].get("annotations", {}).get(FAULTS, "{}"))
    return found


def faults(node: Object) -> dict[tuple[str, str], Object]:
    """The annotation's faults by rule and device."""
    found = document(node).get("faults", [])
    by_key = {(one["rule"], one["device"]): one for one in found}
    assert len(by_key) == len(found), found
    return by_key


def brief(node: Object) -> Object:
    """What nodeguard says on a Node, for messages."""
    conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", ()) if is_own(one["type"])}
    return {"conditions": conditions, "taints": node["spec"].get("taints"), "faults": document(node).get("faults")}


def events_of(admin: Admin, node: str) -> list[Object]:
    """The Events about a Node."""
    path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{node}&limit=1000"
    found: list[Object] = admin.get(path)["items"]
    return [event for event in found if event["source"].get("component") == "nodeguard"]
