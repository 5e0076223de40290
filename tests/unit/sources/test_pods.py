"""Pods on faulty GPUs: real pynvml above a simulated driver, real files for /proc, the kubelet and its logs."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodeguard.engine.inventory import Inventory
from nodeguard.model.clock import SystemClock
from nodeguard.model.device import NODE, Device, gpu, gpu_at, mig
from nodeguard.model.sample import Batch, PodRef, Pods
from nodeguard.sim.driver import MigInstance, SimulatedDriver
from nodeguard.sources.pods import CHECKPOINT, PodFinder, PodsSource
from nodeguard.sources.runner import SourceThread
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


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Nothing runs yet, nothing was given out."""
    return Node(tmp_path)


def test_processes_lead_to_pods(node: Node) -> None:
    """With namespace and name from the kubelet's log directories; the host's own processes are nobody's."""
    node.run_in(1, A)
    node.run_in(2, A)
    node.run(3, "/system.slice/nvidia-persistenced.service")
    assert node.pods(DEVICE, (1, 2, 3)) == (POD_A,)


def test_a_pod_whose_process_the_fault_has_killed(node: Node) -> None:
    """Still holds its GPU, as the kubelet says: beside what runs, or alone."""
    node.give({A: [GPU]})
    assert node.pods(DEVICE, ()) == (POD_A,)
    node.run_in(7, B)
    assert node.pods(DEVICE, (7,)) == (POD_A, POD_B)


def test_the_kubelet_answers_for_a_gpu_that_does_not(node: Node) -> None:
    """NVML tells nothing of a lost GPU."""
    node.give({A: [GPU]})
    assert node.pods(DEVICE, None) == (POD_A,)


def test_unknown_is_not_empty(node: Node) -> None:
    """Only what both know nothing of is known to be empty."""
    node.give({A: ["GPU-22222222-2222-2222-2222-222222222222"]})
    assert node.pods(DEVICE, ()) == ()
    assert node.pods(DEVICE, None) is None
    assert node.pods(DEVICE, (404,)) is None  # not in this /proc: ended, or another PID namespace
    node.give({A: ["MIG-aaaaaaaa-bbbb-5ccc-8ddd-eeeeeeeeeeee"]})
    assert node.pods(DEVICE, ()) is None
    (node.kubelet / CHECKPOINT).write_text("{torn")
    assert node.pods(DEVICE, ()) is None


def test_without_the_kubelets_files(node: Node, tmp_path: Path) -> None:
    """Processes still tell; without them, nothing is known. Only the file is missing: nothing was given out."""
    assert node.pods(DEVICE, ()) == ()
    node.run_in(1, A)
    blind = PodFinder(node.proc, tmp_path / "none", tmp_path / "none")
    assert blind.pods_of([DEVICE], {GPU: Users((Process(1, DEVICE),))}) == {DEVICE: (PodRef(A),)}
    assert blind.pods_of([DEVICE], {GPU: Users()}) == {}


def test_an_entry_of_a_pod_that_has_left(node: Node) -> None:
    """The kubelet forgets it at its next allotment only; its directory tells sooner."""
    node.give({A: [GPU]})
    (node.kubelet / "pods" / A).rmdir()
    assert node.pods(DEVICE, ()) == ()


def test_mig_instances(node: Node) -> None:
    """Have the pods that the kubelet gave them, else those of their GPU; the GPU has all of them."""
    node.give({A: [f"MIG-{GPU}/5/0"]}, "nvidia.com/mig-1g.5gb")
    node.run_in(1, A)
    node.run_in(2, B)
    assert node.pods(mig(DEVICE, 5), (1, 2)) == (POD_A,)
    assert node.pods(mig(DEVICE, 6), (1, 2)) == (POD_A, POD_B)
    assert node.pods(DEVICE, (1, 2)) == (POD_A, POD_B)


def test_processes_that_nvml_places(node: Node) -> None:
    """An instance has only its own processes' pods; the GPU, whose reset ends all of them, has every instance's."""
    node.run_in(1, A)
    node.run_in(2, B)
    users = Users((Process(1, mig(DEVICE, 5, 0)), Process(2, mig(DEVICE, 6, 0))), {})
    assert node.users(mig(DEVICE, 5), users) == (POD_A,)
    assert node.users(mig(DEVICE, 6, 0), users) == (POD_B,)
    assert node.users(mig(DEVICE, 7), users) == ()
    assert node.users(DEVICE, users) == (POD_A, POD_B)


def test_instances_that_the_kubelet_knows_by_uuid(node: Node) -> None:
    """NVML tells which GPU a MIG UUID is of; without its word such an entry may be on any GPU."""
    one, other = "MIG-aaaaaaaa-bbbb-5ccc-8ddd-eeeeeeeeeeee", "MIG-aaaaaaaa-bbbb-5ccc-8ddd-ffffffffffff"
    node.give({A: [one], B: [f"{other}::1"]}, "nvidia.com/mig-1g.10gb")
    users = Users((), {one: mig(DEVICE, 5, 0), other: mig(DEVICE, 6, 0)})
    assert node.users(mig(DEVICE, 5), users) == (POD_A,)
    assert node.users(mig(DEVICE, 6), users) == (POD_B,)
    assert node.users(mig(DEVICE, 7), users) == ()
    assert node.users(DEVICE, users) == (POD_A, POD_B)
    assert node.users(DEVICE, Users((), {})) == ()
    assert node.users(DEVICE, Users()) is None
    assert node.users(mig(DEVICE, 5), None) is None


class Rig:
    """The source above real pynvml."""

    def __init__(self, node: Node, driver: SimulatedDriver, nvml: Nvml) -> None:
        self.node, self.driver = node, driver
        self.hung: set[str] = set()
        """UUIDs of GPUs that are known to hang."""
        self.source = PodsSource(nvml, node.finder, SystemClock(), deadline=0.1, hangs=self.hung.__contains__)
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


def test_only_faulty_gpus_are_asked(node: Node) -> None:
    """Other devices, and GPUs without a UUID, cost no call; when no fault stands, nothing is known any more."""
    with rig(node) as made:
        first = made.driver.gpus[0]
        first.processes.append(1)
        node.run_in(1, A)
        device = gpu(first.uuid)
        made.driver.calls.clear()
        assert made.look(device, NODE, gpu_at("0000:3b:00.0"), Device("rdma_port/mlx5_0/1")) == {device: (POD_A,)}
        assert made.driver.calls["nvmlDeviceGetComputeRunningProcesses_v3"] <= 2  # size, then content
        assert made.batches[-1].facts == (Pods({device: (POD_A,)}, frozenset({device, gpu_at("0000:3b:00.0")})),)
        assert made.look(NODE) == {}
        assert made.source.pause() is None


def test_mig_through_the_driver(node: Node) -> None:
    """Two instances of one GPU, two pods: one whose process runs, one that only the kubelet knows any more."""
    with rig(node, 1) as made:
        card = made.driver.gpus[0]
        card.mig_mode, card.processes, card.placed = 1, [1], {1: (5, 0)}
        card.mig = [MigInstance(5, 0, "MIG-aaaaaaaa-bbbb-5ccc-8ddd-eeeeeeeeeeee"),
                    MigInstance(6, 0, "MIG-aaaaaaaa-bbbb-5ccc-8ddd-ffffffffffff")]
        node.run_in(1, A)
        node.give({B: [card.mig[1].uuid]})
        whole, first, second = gpu(card.uuid), mig(gpu(card.uuid), 5), mig(gpu(card.uuid), 6, 0)
        assert made.look(whole, first, second) == {whole: (POD_A, POD_B), first: (POD_A,), second: (POD_B,)}


def test_only_changes_are_told(node: Node) -> None:
    """A refresh that finds the same says nothing; another pod is told."""
    with rig(node) as made:
        first = made.driver.gpus[0]
        device = gpu(first.uuid)
        assert made.look(device) == {device: ()}
        assert made.source.pause() == 30
        assert made.again() is None
        node.run_in(1, B)
        first.processes.append(1)
        assert made.again() == {device: (POD_B,)}


def test_a_gpu_that_hangs_delays_no_other(node: Node) -> None:
    """The kubelet's answer stands in for it; its own comes when it comes, and no second call is sent meanwhile."""
    with rig(node) as made:
        first, second = made.driver.gpus
        node.give({A: [first.uuid]})
        node.run_in(1, B)
        first.processes.append(1)
        second.processes.append(1)
        stuck = first.hang("nvmlDeviceGetComputeRunningProcesses")
        assert made.look(gpu(first.uuid), gpu(second.uuid)) == {gpu(first.uuid): (POD_A,), gpu(second.uuid): (POD_B,)}
        assert made.source.pause() == 1
        made.again()
        assert stuck.stuck == 1
        stuck.release()
        first.heal()
        made.again()
        assert made.source.pause() == 30
        told = made.batches[-1].facts[0]
        assert isinstance(told, Pods)
        assert told.by_device[gpu(first.uuid)] == (POD_A, POD_B)


def test_a_call_that_is_out_is_not_sent_again(node: Node) -> None:
    """However often it is looked at: one call, and so one thread."""
    with rig(node) as made:
        gpu_ = made.driver.gpus[0]
        gpu_.processes.append(1)
        stuck = gpu_.hang("nvmlDeviceGetComputeRunningProcesses")
        made.look(gpu(gpu_.uuid))
        made.again()
        made.again()
        made.driver.calls.clear()
        gpu_.heal()
        stuck.release()
        made.end()
        # the call that was out has told the size; what it still does is read the content
        assert made.driver.calls["nvmlDeviceGetComputeRunningProcesses_v3"] == 1


def test_a_gpu_that_is_known_to_hang_is_not_asked(node: Node) -> None:
    """One call that hangs is enough for it: the kubelet answers alone."""
    with rig(node) as made:
        first = made.driver.gpus[0]
        node.give({A: [first.uuid]})
        made.hung.add(first.uuid)
        made.driver.calls.clear()
        assert made.look(gpu(first.uuid)) == {gpu(first.uuid): (POD_A,)}
        assert not made.driver.calls


def test_what_was_known_stays_when_the_gpu_is_lost(node: Node) -> None:
    """A fault that stands must not grow from one pod to the whole node; a new fault of a lost GPU stays unknown."""
    with rig(node) as made:
        first, second = made.driver.gpus
        node.run_in(1, A)
        first.processes.append(1)
        node.give({B: ["nvidia0"]})
        assert made.look(gpu(first.uuid)) == {gpu(first.uuid): (POD_A,)}
        first.lose()
        second.lose()
        assert made.look(gpu(first.uuid), gpu(second.uuid)) == {gpu(first.uuid): (POD_A,)}


def test_nvml_that_is_closed_is_no_error(node: Node) -> None:
    """Quiesced, or not opened yet: unknown, unless the kubelet knows."""
    node.give({A: [GPU]})
    told: list[Batch] = []
    source = PodsSource(Nvml(), node.finder, SystemClock())
    source.ask([DEVICE])
    source.turn(told.append)
    assert told[0].facts == (Pods({DEVICE: (POD_A,)}, frozenset({DEVICE})),)


def test_a_bad_entry_is_counted_once(node: Node) -> None:
    """Not at every look."""
    (node.kubelet / CHECKPOINT).write_text(json.dumps({"Data": {"PodDeviceEntries": [{"PodUID": 3}]}}))
    with rig(node) as made:
        made.look(gpu(made.driver.gpus[0].uuid))
        made.look(gpu(made.driver.gpus[1].uuid))
        assert [batch.counts for batch in made.batches] == [{"pods_checkpoint_malformed_total": 1}, {}]


def test_it_runs_as_a_source(node: Node) -> None:
    """In its thread: it answers when asked, as the engine takes it, and ends when stopped."""
    with rig(node) as made:
        node.give({A: [made.driver.gpus[0].uuid]})
        inventory, answered = Inventory(), threading.Event()

        def take(batch: Batch) -> None:
            for fact in batch.facts:
                if isinstance(fact, Pods):
                    inventory.pods = dict(fact.by_device)
                    answered.set()

        thread = SourceThread(made.source, take, SystemClock(), lambda _name, _error: None)
        thread.start()
        made.source.ask([gpu(made.driver.gpus[0].uuid)])
        assert answered.wait(DEADLINE)
        assert inventory.pods_on(gpu(made.driver.gpus[0].uuid)) == (POD_A,)
        thread.stop()
        assert thread.join(DEADLINE)
