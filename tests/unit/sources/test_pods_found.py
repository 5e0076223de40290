"""Pods on faulty GPUs and MIG instances, from processes and from what the kubelet gave out."""

from pathlib import Path

import pytest

from nodeguard.config.rules import load_rules
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.engine.engine import Engine
from nodeguard.model.device import gpu, mig
from nodeguard.model.sample import Batch, Identified, PodRef
from nodeguard.sim.driver import MigInstance
from nodeguard.sources.pods import CHECKPOINT, PodFinder
from nodeguard.vendors.nvidia.kernel_log import NvidiaKernelLog
from nodeguard.vendors.nvidia.nvml_users import Process, Users

from .pods_rig import DEVICE, GPU, POD_A, POD_B, A, B, Node, rig


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


def test_an_instances_fault_and_one_that_a_reset_cures(node: Node) -> None:
    """The first names the pods of that instance only; the other is the GPU's, and names every instance's."""
    with rig(node, 1) as made:
        card = made.driver.gpus[0]
        card.mig_mode, card.processes, card.placed = 1, [1, 2], {1: (5, 0), 2: (6, 0)}
        node.run_in(1, A)
        node.run_in(2, B)
        engine, log = Engine(load_rules([shipped_rules_dir()]), configured=("kmsg",)), NvidiaKernelLog()
        engine.step(1.0, Batch(source="nvml", facts=(Identified(card.pci, gpu(card.uuid)),)))
        for code, words in ((94, "Contained: SM (0x1)."), (95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No")):
            told = log.feed(f"NVRM: Xid (PCI:{card.pci[:-2]} GPU-I:05): {code}, pid=7, name=python3, {words}", 2.0)
            assert told is not None
            engine.step(2.0, Batch(source="kmsg", events=told.events, facts=told.facts))
        made.source.ask(fault.device for fault in engine.open_faults())
        made.source.turn(lambda batch: (engine.step(3.0, batch), None)[1])
        assert {(fault.device, fault.pods) for fault in engine.open_faults()} == {
            (mig(gpu(card.uuid), 5), (POD_A,)), (gpu(card.uuid), (POD_A, POD_B))}
