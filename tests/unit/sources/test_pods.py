"""The source of pods: whom it asks, what it tells and when, and GPUs that hang."""

import json
import threading
from pathlib import Path

import pytest

from nodeguard.engine.inventory import Inventory
from nodeguard.model.clock import SystemClock
from nodeguard.model.device import NODE, Device, gpu, gpu_at
from nodeguard.model.sample import Batch, Pods
from nodeguard.sources.pods import CHECKPOINT, PodsSource
from nodeguard.sources.runner import SourceThread
from nodeguard.vendors.nvidia.nvml import Nvml

from .pods_rig import DEADLINE, DEVICE, GPU, POD_A, POD_B, A, B, Node, rig


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Nothing runs yet, nothing was given out."""
    return Node(tmp_path)


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
