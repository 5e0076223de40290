"""What the tests of the Node's writers share: a fake API with one Node, builders of intents, and time by hand."""

import json
from collections.abc import Sequence
from typing import Any

from nodeguard.kube.fake import FakeApi
from nodeguard.kube.patches import rfc3339
from nodeguard.model.clock import FakeClock
from nodeguard.model.device import gpu
from nodeguard.model.fault import Fault
from nodeguard.model.intent import FAULTS_ANNOTATION, Condition, Intent, Status
from nodeguard.model.sample import PodRef
from nodeguard.sinks.node import NodeWriter, Pace

NODE_PATH = "/api/v1/nodes/gpu-7"
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
GPU = gpu("GPU-aaaa")


def make_fault(rule: str = "gpu-lost", **changes: Any) -> Fault:
    """A fault as the engine would open it, 1000 s after boot."""
    words: dict[str, Any] = {
        "device": GPU, "pci": "0000:3b:00.0", "severity": "critical", "action": "reset_gpu", "effect": "evict",
        "would": None, "scope": "device", "condition": "GpuMemoryFault", "message": "uncontained ECC error",
        "runbook": None, "since": 1000.0, "last": 1000.0, "count": 1, "evidence": {}, "key": "kmsg:7",
    }
    return Fault(rule=rule, **{**words, **changes})


def make_condition(status: Status = "True", since: float | None = 1000.0, **changes: str) -> Condition:
    """The condition ``GpuMemoryFault``."""
    words = {"type": "GpuMemoryFault", "reason": "GpuLost" if status == "True" else "NoFault", "message": "a message"}
    return Condition(status=status, since=since if status == "True" else None, **{**words, **changes})


def make_intent(
    conditions: Sequence[Condition] = (), faults: Sequence[Fault] = (), taint: str | None = None, *, ready: bool = True
) -> Intent:
    """An intent of boot ``b1``."""
    return Intent(boot_id="b1", rules_hash="r1", conditions=tuple(conditions), faults=tuple(faults), taint=taint,
                  ready=ready)


HEALTHY = make_intent([make_condition("False")])
FAULTY = make_intent([make_condition()], [make_fault(pods=(PodRef("p1", "train", "rank-0"),))], "GpuMemoryFault")


class Rig:
    """A writer, its API and its clock."""

    def __init__(self, pace: Pace | None = None) -> None:
        self.api = FakeApi()
        self.clock = FakeClock()
        self.api.add(NODE_PATH, {
            "metadata": {"name": "gpu-7", "uid": "u1", "annotations": {"somebody": "else"}},
            "spec": {}, "status": {"conditions": [READY]},
        })
        self.reports: list[tuple[str, str]] = []
        self.pace = pace
        self.writer = self.restarted()

    def restarted(self) -> NodeWriter:
        """A writer as a new process has it."""
        self.writer = NodeWriter(
            self.api, "gpu-7", self.clock, pace=self.pace, report=lambda *told: self.reports.append(told))
        return self.writer

    def run(self, seconds: float = 0.0) -> None:
        """Let the writer do all that is due now and in the next ``seconds``."""
        end = self.clock.boot() + seconds
        for _ in range(10_000):
            wait = self.writer.turn()
            if self.clock.boot() + wait > end:
                self.clock.advance(end - self.clock.boot())
                return
            self.clock.advance(wait)
        raise AssertionError("the writer never rests")

    def say(self, intent: Intent, seconds: float = 0.0) -> None:
        """Publish and run."""
        self.writer.publish(intent)
        self.run(seconds)

    def now(self) -> str:
        """Wall time as conditions have it."""
        return rfc3339(self.clock.wall())

    @property
    def node(self) -> dict[str, Any]:
        """The Node as it stands."""
        return self.api.read(NODE_PATH)

    @property
    def condition(self) -> dict[str, Any]:
        """``GpuMemoryFault`` as it stands."""
        return self.conditions["GpuMemoryFault"]

    @property
    def conditions(self) -> dict[str, dict[str, Any]]:
        """All conditions by type; a doubled one would be an error."""
        listed = self.node["status"]["conditions"]
        found = {body["type"]: body for body in listed}
        assert len(found) == len(listed)
        return found

    @property
    def document(self) -> dict[str, Any]:
        """The annotation as it stands."""
        found: dict[str, Any] = json.loads(self.node["metadata"]["annotations"][FAULTS_ANNOTATION])
        return found

    @property
    def taints(self) -> list[str]:
        """Taints as ``key=value:effect``."""
        return [f"{one['key']}={one.get('value', '')}:{one['effect']}" for one in self.node["spec"].get("taints") or ()]

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> None:
        """Add a taint as another writer."""
        self.api.edit(NODE_PATH, lambda node: node["spec"].setdefault("taints", []).append(
            {"key": key, "value": value, "effect": effect}))

    def untaint(self, key: str) -> None:
        """Remove a taint as another writer."""
        self.api.edit(NODE_PATH, lambda node: node["spec"].update(
            taints=[one for one in node["spec"]["taints"] if one["key"] != key]))


OWN_TAINT = "nodeguard.io/unhealthy=GpuMemoryFault:NoSchedule"
