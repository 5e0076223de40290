"""Ten minutes in which no call to the driver comes back, on a clock that the test moves."""

import time

import pytest

from nodeguard.model.clock import FakeClock
from nodeguard.sim.driver import SimulatedDriver
from nodeguard.sim.node import SimulatedNode
from nodeguard.sources.nvml import NvmlPace, NvmlSource
from nodeguard.vendors.nvidia.nvml import Nvml
from nodeguard.vendors.nvidia.pci import Bus

from .nvml_rig import DEADLINE, rig

ANSWERED_WITHIN = 5.0
"""Real seconds; reached only by a failure."""


def hang(driver: SimulatedDriver) -> None:
    driver.hang()


def leave(_: SimulatedDriver) -> None:
    """As it is."""


@pytest.mark.parametrize("from_the_start", [True, False])
def test_threads_stay_as_many_for_ten_minutes(*, from_the_start: bool) -> None:
    """Told within two polls, and no thread is added in 600 polls, twenty of them slow ones."""
    with rig(prepare=hang if from_the_start else leave) as node:
        if not from_the_start:
            node.driver.hang()
        node.poll(2)
        assert {rule for rule, _ in node.open_rules()} == {"gpu-driver-stalled"}
        threads = node.threads()
        for _ in range(60):
            node.poll(10)
            assert node.threads() == threads
        assert threads == (1 if from_the_start else 2 * len(node.driver.gpus) + 1)
        assert {rule for rule, _ in node.open_rules()} == {"gpu-driver-stalled", "gpu-driver-hung"}


def test_a_driver_that_answers_again_is_well_at_once() -> None:
    """It need not be asked anything of its own for that: every poll of a GPU is an answer."""
    with rig(prepare=hang) as node:
        node.poll(3)
        assert node.open_rules() == {("gpu-driver-stalled", "node")}
        node.driver.release_all()
        end = time.monotonic() + ANSWERED_WITHIN
        while node.open_rules() and time.monotonic() < end:  # the worker that was out answers in real time
            node.poll()
        assert node.open_rules() == set()


def test_who_hangs_is_known_after_the_deadline() -> None:
    """One GPU, from its deadline until its answer; the driver as a whole means every GPU."""
    with SimulatedNode("gpu-1", 2) as node, SimulatedDriver.at(node.slots, node.uuids) as driver:
        clock = FakeClock()
        source = NvmlSource(Nvml(), Bus(node.sys_root).gpus, clock, pace=NvmlPace(deadline=DEADLINE))

        def poll() -> list[bool]:
            source.turn(lambda _batch: None)
            clock.advance(1.0)
            return [source.hangs(uuid) for uuid in node.uuids]

        assert [poll(), poll()] == [[False, False]] * 2
        driver.gpus[1].hang()
        assert poll() == [False, True]
        driver.gpus[1].release_all()
        poll()
        assert poll() == [False, False]
        driver.hang()
        source.poll_all()
        assert poll() == [True, True]
        driver.release_all()
        poll()
        source.end()
