"""Simulated nodes in processes of their own: orders, answers, failures, and that nothing is left."""

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nodeguard.model.errors import NodeguardError, UserError
from nodeguard.sim.driver import SimulatedDriver
from nodeguard.sim.fleet import Fleet
from nodeguard.sim.node import SimulatedNode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


def leave_the_bus(_node: SimulatedNode, driver: SimulatedDriver, gpu: int) -> None:
    driver.remove(driver.gpus[gpu])


def expect_on_the_bus(node: SimulatedNode, _driver: SimulatedDriver, gpu: int) -> None:
    if not (node.sys_root / "bus/pci/devices" / node.slots[gpu]).exists():
        raise NodeguardError(f"{node.slots[gpu]} is not on the bus")


def die(_node: SimulatedNode, _driver: SimulatedDriver, _gpu: int) -> None:
    os._exit(7)


@contextlib.contextmanager
def note(settings: Mapping[str, str], folder: Path) -> Iterator[None]:
    """An agent that leaves a file while it runs; the kubeconfig says where."""
    path = folder / settings["node_name"]
    path.write_text(str(os.getpid()))
    yield
    path.unlink()


def refuse(settings: Mapping[str, str], _kubeconfig: Path) -> contextlib.AbstractContextManager[None]:
    raise UserError(f"no agent for {settings['node_name']}")


def test_each_node_obeys_in_a_process_of_its_own(tmp_path: Path) -> None:
    """What is done to one does not touch the other; the time is the caller's own clock; failures name the node."""
    with Fleet(["a", "b"], gpus=2) as fleet:
        first, second = fleet.nodes
        assert (len(first.uuids), len(first.slots)) == (2, 2)
        assert not set(first.uuids) & set(second.uuids)
        before = time.monotonic()
        assert before <= first.do(leave_the_bus, 1) <= time.monotonic()
        second.do(expect_on_the_bus, 1)
        with pytest.raises(NodeguardError, match=r"simulated node a: 0000:2c:00\.0 is not on the bus"):
            first.do(expect_on_the_bus, 1)
        first.do(expect_on_the_bus, 0)
        with fleet.agents(note, tmp_path):
            pids = {path.name: int(path.read_text()) for path in tmp_path.iterdir()}
            assert pids.keys() == {"a", "b"}
            assert len({*pids.values(), os.getpid()}) == 3
        assert list(tmp_path.iterdir()) == []
    assert multiprocessing.active_children() == []


def boot_of(folder: Path, name: str) -> str:
    return (folder / name).read_text()


@contextlib.contextmanager
def note_boot(settings: Mapping[str, str], folder: Path) -> Iterator[None]:
    """An agent that leaves its boot ID in a file while it runs."""
    path = folder / settings["node_name"]
    path.write_text((Path(settings["proc_root"]) / "sys/kernel/random/boot_id").read_text().strip())
    yield
    path.unlink()


def test_a_reboot_starts_the_agent_anew_under_another_boot_id(tmp_path: Path) -> None:
    """What the reboot mends is done in between; the other node goes on as it was."""
    with Fleet(["a", "b"], gpus=2) as fleet, fleet.agents(note_boot, tmp_path):
        first, second = fleet.nodes
        boots = first.boot_id, second.boot_id
        assert (boot_of(tmp_path, "a"), boot_of(tmp_path, "b")) == boots
        before = time.monotonic()
        assert before <= first.reboot(leave_the_bus, 1) <= time.monotonic()
        assert first.boot_id != boots[0]
        assert (boot_of(tmp_path, "a"), boot_of(tmp_path, "b")) == (first.boot_id, boots[1])
        with pytest.raises(NodeguardError, match="is not on the bus"):
            first.do(expect_on_the_bus, 1)
        first.do(expect_on_the_bus, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_dies_is_told(tmp_path: Path) -> None:
    """The order fails with a sentence, the other node goes on, and the end is in order."""
    with Fleet(["a", "b"], gpus=1) as fleet, fleet.agents(note, tmp_path):
        with pytest.raises(NodeguardError, match="simulated node a has ended"):
            fleet.nodes[0].do(die, 0)
        with pytest.raises(NodeguardError, match="simulated node a has ended"):
            fleet.nodes[0].do(expect_on_the_bus, 0)
        fleet.nodes[1].do(expect_on_the_bus, 0)
    assert multiprocessing.active_children() == []


def test_an_agent_that_cannot_start(tmp_path: Path) -> None:
    """Its own words come through, and nothing is left."""
    with pytest.raises(NodeguardError, match="simulated node a: no agent for a"), Fleet(["a"], gpus=1) as fleet, \
            fleet.agents(refuse, tmp_path):
        pass
    assert multiprocessing.active_children() == []
