"""A node with two pods, and the source of pods above real pynvml and a simulated driver."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodeguard.model.clock import SystemClock
from nodeguard.model.device import Device, gpu
from nodeguard.model.sample import Batch, PodRef, Pods
from nodeguard.sim.driver import SimulatedDriver
from nodeguard.sources.pods import CHECKPOINT, PodFinder, PodsSource
from nodeguard.vendors.nvidia.nvml import Nvml
from nodeguard.vendors.nvidia.nvml_users import Process, Users

A, B = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"
DEADLINE = 5.0  # real seconds; reached only by a failure


class Node:
    """The files of a node with two pods."""

    def __init__(self, root: Path) -> None:
        self.proc, self.kubelet, self.logs = root / "proc", root / "kubelet", root / "logs"
        for directory in (self.proc, self.kubelet / "pods", (self.kubelet / CHECKPOINT).parent):
            directory.mkdir(parents=True)
        for uid, name in ((A, "train-0"), (B, "train-1")):
            (self.kubelet / "pods" / uid).mkdir()
            (self.logs / f"ml_{name}_{uid}").mkdir(parents=True)
        (self.logs / "odd").mkdir()
        self.finder = PodFinder(self.proc, self.kubelet, self.logs)

    def run(self, pid: int, group: str) -> None:
        (self.proc / str(pid)).mkdir()
        (self.proc / str(pid) / "cgroup").write_text(f"0::{group}\n")

    def run_in(self, pid: int, uid: str) -> None:
        self.run(pid, f"/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-1f.scope")

    def give(self, given: dict[str, list[str]], resource: str = "nvidia.com/gpu") -> None:
        entries = [{"PodUID": uid, "ContainerName": "c", "ResourceName": resource, "DeviceIDs": {"0": ids}}
                   for uid, ids in given.items()]
        (self.kubelet / CHECKPOINT).write_text(json.dumps({"Data": {"PodDeviceEntries": entries}}))

    def pods(self, device: Device, pids: tuple[int, ...] | None) -> tuple[PodRef, ...] | None:
        """What is found on one device of a GPU that runs these processes, of which NVML places none."""
        return self.users(device, None if pids is None else Users(tuple(Process(pid, DEVICE) for pid in pids)))

    def users(self, device: Device, users: Users | None) -> tuple[PodRef, ...] | None:
        return self.finder.pods_of([device], {device.split("/")[1]: users}).get(device)


GPU = "GPU-11111111-1111-1111-1111-111111111111"
DEVICE = gpu(GPU)
POD_A, POD_B = PodRef(A, "ml", "train-0"), PodRef(B, "ml", "train-1")


class Rig:
    """The source above real pynvml."""

    def __init__(self, node: Node, driver: SimulatedDriver, nvml: Nvml) -> None:
        self.node, self.driver = node, driver
        self.hung: set[str] = set()
        """UUIDs of GPUs that are known to hang."""
        self.source = PodsSource(nvml, node.finder, SystemClock(), deadline=0.5, hangs=self.hung.__contains__)
        self.batches: list[Batch] = []
        self._threads = set(threading.enumerate())

    def end(self) -> None:
        """Stop, and wait for every worker."""
        stopped = threading.Event()
        stopped.set()
        self.source.run(self.batches.append, stopped)
        for thread in set(threading.enumerate()) - self._threads:
            thread.join(DEADLINE)

    def look(self, *devices: Device) -> Any:
        """Ask, and what was told of it; None: nothing was told."""
        self.source.ask(devices)
        return self.again()

    def again(self) -> Any:
        before = len(self.batches)
        self.source.turn(self.batches.append)
        told = [fact.by_device for batch in self.batches[before:] for fact in batch.facts if isinstance(fact, Pods)]
        return told[-1] if told else None


@contextmanager
def rig(node: Node, gpus: int = 2) -> Iterator[Rig]:
    with SimulatedDriver(gpus) as driver:
        nvml = Nvml()
        nvml.open()
        nvml.gpus()
        made = Rig(node, driver, nvml)
        yield made
        for one in driver.gpus:
            one.release_all()
        made.end()
