"""The loop above a cluster in memory: everything happens on the test's own thread, at a clock that the test moves."""

import copy
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nodeguard.kube.api import Object
from nodeguard.model.clock import FakeClock
from nodeguard.model.errors import ApiUnavailable
from nodeguard.model.policy import Budget, Policy
from nodeguard.remediation.loop import Loop
from nodeguard.remediation.views import node_view, pod_view

from .cluster import NODES, Cluster

if TYPE_CHECKING:
    from nodeguard.remediation.happenings import Happening

EVICT = {"rule": "gpu-xid-uncontained-ecc", "hash": "0123456789abcdef", "device": "gpu/GPU-a", "pci": None,
         "severity": "critical", "action": "reset_gpu", "effect": "evict", "scope": "node", "count": 1}
POLICY = Policy(budget=Budget(max_unavailable_percent=50))


class FakeLedger:
    """The leader's Lease, in memory."""

    def __init__(self) -> None:
        self.leads = True
        self.ledger: Object = {}
        self.writes = 0
        self.before_write: Callable[[], None] = lambda: None

    def leading(self) -> bool:
        """Whether this replica leads."""
        return self.leads

    def update_ledger(self, change: Callable[[Object], Object | None]) -> Object | None:
        """Compare and swap."""
        if not self.leads:
            raise ApiUnavailable("another replica leads")
        changed = change(copy.deepcopy(self.ledger))
        if changed is None:
            return None
        self.before_write()
        self.ledger = json.loads(json.dumps(changed))
        self.writes += 1
        return self.ledger


class Rig:
    """A loop, its cluster and its clock."""

    def __init__(self, cluster: Cluster | None = None, policy: Policy = POLICY,
                 ledger: FakeLedger | None = None) -> None:
        self.cluster = cluster or Cluster()
        self.clock = FakeClock(wall=self.cluster.now)
        self.ledger = ledger or FakeLedger()
        self.policy = policy
        self.told: list[Happening] = []
        self.loop = Loop(self.cluster, self.ledger, self.clock, lambda: self.policy, self.told.append,
                         lambda call: call(), "nodeguard")
        self._nodes: dict[str, Any] = {}
        self._pods: dict[str, Any] = {}
        self._synced = False

    def deliver(self) -> None:
        """Tell the loop what its watches would."""
        nodes = {name: node_view(body) for name, body in self.cluster.nodes().items()}
        pods = {key: view for key, body in self.cluster.pods().items() if (view := pod_view(body)) is not None}
        for name in sorted({*self._nodes, *nodes}):
            if self._nodes.get(name) != nodes.get(name):
                self.loop.node_changed(name, self._nodes.get(name), nodes.get(name))
        for key in sorted({*self._pods, *pods}):
            if self._pods.get(key) != pods.get(key):
                self.loop.pod_changed(key, self._pods.get(key), pods.get(key))
        self._nodes, self._pods = nodes, pods
        if not self._synced:
            self._synced = True
            self.loop.synced()

    def run(self, seconds: float = 0.0, rounds: int = 12, *, settle: bool = True) -> "Rig":
        """Let everything happen that is due, then again after the clock has moved by ``seconds``."""
        for _ in range(rounds):
            self.deliver()
            self.loop.turn()
            if settle:
                self.cluster.settle()
        if seconds:
            self.pass_time(seconds)
            self.run(rounds=rounds, settle=settle)
        return self

    def pass_time(self, seconds: float) -> None:
        """Move the clocks."""
        self.clock.advance(seconds)
        self.cluster.now += seconds

    def record(self, node: str) -> Object | None:
        """The loop's annotation."""
        text = self.cluster.read(f"{NODES}/{node}")["metadata"]["annotations"].get("nodeguard.io/remediation")
        return None if text is None else json.loads(text)

    def state(self, node: str) -> str | None:
        """The state in the annotation, which the taint must agree with."""
        found = self.record(node)
        taints = [one["value"] for one in self.cluster.read(f"{NODES}/{node}")["spec"].get("taints") or ()
                  if one["key"] == "nodeguard.io/remediation"]
        state = None if found is None else str(found["state"])
        assert taints == ([] if state in (None, "released") else [state])
        return state

    def happened(self, *what: str) -> list[str]:
        """What the loop told, in order."""
        return [one.what for one in self.told if not what or one.what in what]

    def evictions(self) -> list[str]:
        """Paths of the pods whose eviction was asked for."""
        return [one.path.split("/pods/")[1].removesuffix("/eviction") for one in self.cluster.requests
                if one.method == "POST" and one.path.endswith("/eviction")]
