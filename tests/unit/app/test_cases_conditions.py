"""C43 and C44: what the engine finds, as the writer tells it on the Node: reasons that alternate, faults that pass."""

from collections.abc import Mapping
from typing import Any

import pytest

from nodeguard.engine.engine import Engine
from nodeguard.kube.api import node_path
from nodeguard.kube.fake import FakeApi
from nodeguard.kube.patches import rfc3339
from nodeguard.model.clock import FakeClock
from nodeguard.model.device import Device, gpu
from nodeguard.model.sample import Batch, Event, PodRef, Pods, Sample, SourceState
from nodeguard.sinks.node import NodeWriter, Pace

from .rig import rules

A, B = gpu("GPU-a"), gpu("GPU-b")
LIMIT = 90
HOT: dict[str, Any] = {
    "name": "hot", "signal": "gpu_temperature_celsius", "above": LIMIT, "condition": "GpuFault", "effect": "condition",
    "message": "{device} is hot"}
BRAKE: dict[str, Any] = {
    "name": "brake", "signal": "gpu_clock_event_hw_power_brake", "is": 1, "condition": "GpuFault",
    "effect": "condition", "message": "{device} is braked"}
REPEATS: dict[str, Any] = {
    "name": "repeats", "signal": "gpu_xid", "match": {"code": [43]}, "condition": "GpuFault", "effect": "condition",
    "count": {"at_least": 3, "within": "10m", "distinct": "pod"}, "message": "Xid 43 in three pods"}


class Node:
    """One Node, an engine with a few rules, and the writer between them."""

    def __init__(self, *written: Mapping[str, Any]) -> None:
        self.clock, self._api = FakeClock(), FakeApi()
        self._api.add(node_path("gpu-7"), {"metadata": {"name": "gpu-7", "uid": "u1"}, "spec": {}, "status": {}})
        self._engine = Engine(rules(*written), configured=("kmsg", "nvml"))
        self._writer = NodeWriter(self._api, "gpu-7", self.clock, pace=Pace(burst=10_000, wording=0.0))
        self.take(Batch(source="kmsg", facts=(SourceState(up=True),)))
        self.take(Batch(source="nvml", facts=(SourceState(up=True),)))
        self.poll(B, gpu_temperature_celsius=40)

    def take(self, batch: Batch | None = None) -> None:
        """One step of the engine, and what follows from it on the Node."""
        self._engine.step(self.clock.boot(), batch)
        self._writer.publish(self._engine.intent())
        for _ in range(3):
            self._writer.turn()

    def poll(self, device: Device = A, **values: int) -> None:
        self.take(Batch(source="nvml", samples=tuple(Sample(name, device, value) for name, value in values.items())))

    @property
    def condition(self) -> dict[str, Any]:
        (found,) = self._api.read(node_path("gpu-7"))["status"]["conditions"]
        return dict(found)


def test_c43_two_reasons_alternate_inside_one_condition() -> None:
    """The status stays True, so its time does; the message lists what stands, and the worst one is the reason."""
    node = Node({**HOT, "severity": "critical"}, BRAKE)
    node.poll(gpu_temperature_celsius=95, gpu_clock_event_hw_power_brake=0)
    began = node.condition["lastTransitionTime"]
    reasons = []
    for number in range(8):
        node.clock.advance(30)
        hot = number % 2
        node.poll(gpu_temperature_celsius=95 if hot else 40, gpu_clock_event_hw_power_brake=1)
        reasons.append(node.condition["reason"])
        assert (node.condition["status"], node.condition["lastTransitionTime"]) == ("True", began)
    assert set(reasons) == {"Hot"}
    assert f"{A} is hot" in node.condition["message"]
    assert f"{A} is braked" in node.condition["message"]


def test_c43_one_reason_hands_over_to_the_other() -> None:
    """Never healthy in between, so never another time, whichever of the two it is."""
    node = Node(HOT, BRAKE)
    node.poll(gpu_temperature_celsius=95, gpu_clock_event_hw_power_brake=0)
    began = node.condition["lastTransitionTime"]
    for number in range(12):
        node.clock.advance(30)
        hot = number // 3 % 2
        node.poll(gpu_temperature_celsius=95 if hot else 40, gpu_clock_event_hw_power_brake=0 if hot else 1)
        assert (node.condition["status"], node.condition["lastTransitionTime"]) == ("True", began)
    assert node.condition["reason"] in {"Hot", "Brake"}


def test_c44a_three_good_polls_clear_it() -> None:
    """Two do not, nor does a poll that brought nothing; the time on the Node is that of the clearing."""
    node = Node(HOT)
    node.poll(gpu_temperature_celsius=95)
    assert node.condition["status"] == "True"
    for _ in range(2):
        node.clock.advance(1)
        node.poll(gpu_temperature_celsius=40)
    node.clock.advance(1)
    node.take()
    assert node.condition["status"] == "True"
    node.poll(gpu_temperature_celsius=40)
    assert (node.condition["status"], node.condition["lastTransitionTime"]) == ("False", rfc3339(node.clock.wall()))


@pytest.mark.parametrize("devices", [1, 40])
def test_c44d_each_of_many_clears_by_itself(devices: int) -> None:
    """However many are in the message, and cut from it: what has recovered is out, what has not stays in."""
    node = Node(HOT)
    hot = [gpu(f"GPU-{number:036}") for number in range(devices)]
    for one in hot:
        node.poll(one, gpu_temperature_celsius=95)
    for one in hot[1:]:
        for _ in range(3):
            node.clock.advance(1)
            node.poll(one, gpu_temperature_celsius=40)
    assert (node.condition["status"], node.condition["message"]) == ("True", f"{hot[0]} is hot")
    for _ in range(3):
        node.clock.advance(1)
        node.poll(hot[0], gpu_temperature_celsius=40)
    assert node.condition["status"] == "False"


def test_c44e_a_derived_condition_ends_with_its_window() -> None:
    """Three pods met the same Xid on one GPU; ten minutes after the last of them nothing is repeated any more."""
    node = Node(REPEATS)
    for number in range(3):
        node.take(Batch(source="agent", facts=(Pods({A: (PodRef(f"p{number}"),)}),)))
        node.take(Batch(source="kmsg", events=(Event("gpu_xid", A, {"code": 43}, stamp=node.clock.boot()),)))
        node.clock.advance(60)
    assert node.condition["status"] == "True"
    node.clock.advance(9 * 60 - 2)
    node.take()
    assert node.condition["status"] == "True"
    node.clock.advance(2)
    node.take()
    assert node.condition["status"] == "False"
