"""A fault that evicts one GPU's pods is not told before those pods were looked for."""

import dataclasses
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from nodeguard.app.agent import Agent
from nodeguard.app.firstpods import LONGEST, FirstPods
from nodeguard.config.settings import resolve_agent_settings
from nodeguard.kube.api import Object, node_path
from nodeguard.kube.fake import FakeApi
from nodeguard.model.clock import SystemClock
from nodeguard.model.device import NODE, Device, gpu
from nodeguard.model.fault import Fault
from nodeguard.model.intent import FAULTS_ANNOTATION
from nodeguard.model.sample import Batch, PodRef, Pods
from nodeguard.sim.driver import SimulatedDriver
from nodeguard.sim.node import SimulatedNode
from nodeguard.sim.timeline import Watcher
from nodeguard.sinks.log import configure
from nodeguard.sources.pods import CHECKPOINT

ONE, TWO = gpu("GPU-1"), gpu("GPU-2")
POD = "aaaaaaaa-0000-4000-8000-000000000001"
DEADLINE = 10.0  # real seconds; reached only by a failure


def fault(device: Device = ONE, **values: Any) -> Fault:
    made = Fault(
        rule="r", device=device, pci=None, severity="critical", action="reset_gpu", effect="evict", would=None,
        scope="device", condition="GpuMemoryFault", message="", runbook=None, since=0.0, last=0.0, count=1, evidence={})
    return dataclasses.replace(made, **values)


def answer(*looked_for: Device) -> Batch:
    return Batch(source="agent", facts=(Pods({}, frozenset(looked_for)),))


def test_it_waits_for_the_answer_about_this_very_gpu() -> None:
    """An answer to an earlier question says nothing of a GPU that failed since; unknown is an answer."""
    first = FirstPods(asked=True)
    assert first.hold([fault()], 100.0)
    assert first.left(100.01) == pytest.approx(LONGEST - 0.01)
    first.take(answer(TWO))
    assert first.hold([fault()], 100.01)
    first.take(Batch(source="kmsg"))
    first.take(answer(ONE))
    assert not first.hold([fault()], 100.02)
    assert first.left(100.02) == float("inf")


def test_it_waits_once_and_not_for_long() -> None:
    """A GPU that was waited for in vain costs the wait once; another one that fails meanwhile does not prolong it."""
    first = FirstPods(asked=True)
    assert first.hold([fault()], 100.0)
    assert first.hold([fault(), fault(TWO)], 100.0 + LONGEST / 2)
    assert not first.hold([fault(), fault(TWO)], 100.0 + LONGEST)
    assert not first.hold([fault(), fault(TWO)], 100.1)
    assert not first.hold([], 200.0)
    assert first.hold([fault()], 300.0)


@pytest.mark.parametrize("one", [
    fault(pods=()), fault(pods=(PodRef(POD),)), fault(scope="node"), fault(effect="noschedule"), fault(NODE),
    fault(Device("rdma_port/mlx5_0/1"))])
def test_what_needs_no_pods_waits_for_none(one: Fault) -> None:
    """Pods that are known, faults that evict nobody or everybody, devices of which nobody asks."""
    assert not FirstPods(asked=True).hold([one], 100.0)


def test_where_nobody_looks_nothing_is_awaited() -> None:
    """An agent without NVML."""
    assert not FirstPods(asked=False).hold([fault()], 100.0)


def has(node: Object, kind: str, status: str) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(one["type"] == kind and one["status"] == status for one in conditions)


def told(node: Object) -> list[Object]:
    """Faults that a Node, or a patch of it, tells."""
    text = ((node.get("metadata") or {}).get("annotations") or {}).get(FAULTS_ANNOTATION)
    return list(json.loads(text)["faults"]) if text else []


class Running:
    """The agent on a node of two GPUs, each given to nobody yet."""

    def __init__(self, node: SimulatedNode, driver: SimulatedDriver, api: FakeApi, watcher: Watcher) -> None:
        self.node, self.driver, self._api, self._watcher = node, driver, api, watcher

    def give(self, uuid: str) -> None:
        """As the kubelet writes it."""
        kubelet = Path(self.node.settings["kubelet_root"])
        (kubelet / "pods" / POD).mkdir(parents=True)
        (kubelet / CHECKPOINT).parent.mkdir()
        entry = {"PodUID": POD, "ContainerName": "c", "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"0": [uuid]}}
        (kubelet / CHECKPOINT).write_text(json.dumps({"Data": {"PodDeviceEntries": [entry]}}))

    def break_first(self) -> list[list[Object] | None]:
        """An uncontained memory error of GPU 0; its pods as each write told them until one had any, None without."""
        self.node.log.xid(self.node.slots[0], 95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No", 7, "python3")
        assert self._watcher.wait_for(lambda node: bool(told(node)), timeout=DEADLINE) is not None
        return [one.get("pods") for write in self._api.writes() for one in told(write.body or {})]


@contextmanager
def running() -> Iterator[Running]:
    api = FakeApi()
    api.add(node_path("gpu-1"), {"metadata": {"name": "gpu-1", "uid": "u1"}, "spec": {}, "status": {}})
    watcher = Watcher(api, "gpu-1")
    with SimulatedNode("gpu-1", 2) as node, SimulatedDriver.at(node.slots, node.uuids) as driver:
        settings = resolve_agent_settings({"listen": "127.0.0.1:0", **node.settings}, {})
        agent = Agent(settings, SystemClock(), configure("info", StringIO()), api)
        thread = threading.Thread(target=agent.run)
        thread.start()
        watcher.start()
        try:
            assert watcher.wait_for(lambda one: has(one, "GpuMemoryFault", "False"), timeout=DEADLINE) is not None
            yield Running(node, driver, api, watcher)
        finally:
            driver.release_all()
            for one in driver.gpus:
                one.release_all()
            agent.stop()
            thread.join()
            api.end_watches()
            watcher.stop()


@pytest.mark.parametrize("hangs", [False, True])
def test_the_first_word_about_a_gpu_names_its_pods(*, hangs: bool) -> None:
    """Not one write tells the fault without them, be it that NVML hangs: the kubelet's word comes in time."""
    with running() as agent:
        agent.give(agent.node.uuids[0])
        if hangs:
            agent.driver.gpus[0].hang("nvmlDeviceGetComputeRunningProcesses")
        pods = agent.break_first()
        assert [[pod["uid"] for pod in one or ()] for one in pods] == [[POD]] * len(pods)


def test_what_cannot_be_known_is_told_without() -> None:
    """The kubelet's files are not there, and NVML hangs: the fault is told all the same."""
    with running() as agent:
        agent.driver.gpus[0].hang("nvmlDeviceGetComputeRunningProcesses")
        assert set(agent.break_first()) == {None}
