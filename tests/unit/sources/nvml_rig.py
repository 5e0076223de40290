"""The NVML source above a simulated driver, into an engine with the shipped rules, on a clock that a test moves."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nodeguard.config.rules import load_rules
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.engine.engine import Engine
from nodeguard.model.clock import FakeClock
from nodeguard.model.device import Device, gpu
from nodeguard.model.sample import Batch, Booted
from nodeguard.sim.driver import SimulatedDriver
from nodeguard.sim.node import SimulatedNode
from nodeguard.sources.nvml import NvmlPace, NvmlSource
from nodeguard.vendors.nvidia.kernel_log import NvidiaKernelLog
from nodeguard.vendors.nvidia.nvml import Nvml
from nodeguard.vendors.nvidia.pci import Bus

if TYPE_CHECKING:
    from nodeguard.model.fault import Transition

DEADLINE = 0.25
"""Real seconds that a round waits for a call that hangs; every other round ends as soon as all have answered."""


class Rig:
    """One node with simulated GPUs, polled once per simulated second."""

    def __init__(self, node: SimulatedNode, driver: SimulatedDriver, *, boot: float = 10_000.0,
                 nvlinks: int | None = None) -> None:
        self.node, self.driver, self._nvlinks = node, driver, nvlinks
        self.clock = FakeClock(boot)
        self.engine = Engine(load_rules([shipped_rules_dir()]), configured=("kmsg", "nvml"))
        self.told: list[Transition] = []
        self.batches: list[Batch] = []
        self.warnings: list[str] = []
        self._threads_before = self._all_threads()
        self.source = self.new_source()
        self.take(Batch(source="agent", facts=(Booted("b1", 0.0),)))

    def new_source(self) -> NvmlSource:
        return NvmlSource(Nvml(), Bus(self.node.sys_root).gpus, self.clock,
                          pace=NvmlPace(deadline=DEADLINE), nvlinks=self._nvlinks, warn=self.warnings.append)

    def take(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.told += self.engine.step(self.clock.boot(), batch)

    def kernel_says(self, line: str) -> None:
        """A line of the kernel log, as the driver's parser takes it."""
        told = NvidiaKernelLog().feed(line, self.clock.boot())
        assert told is not None
        self.take(Batch(source="kmsg", samples=told.samples, events=told.events, facts=told.facts))

    def poll(self, seconds: int = 1) -> None:
        """Poll once a second."""
        for _ in range(seconds):
            self.source.turn(self.take)
            self.clock.advance(1.0)
            self.told += self.engine.step(self.clock.boot())

    def open_rules(self) -> set[tuple[str, str]]:
        """(rule, device) of every open fault with an effect on the node."""
        return {(fault.rule, str(fault.device)) for fault in self.engine.open_faults() if fault.effect != "none"}

    def device(self, index: int) -> Device:
        return gpu(self.driver.gpus[index].uuid)

    def threads(self) -> int:
        """Workers of this source."""
        return len(self._all_threads() - self._threads_before)

    @staticmethod
    def _all_threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("worker-")}


@contextmanager
def rig(gpus: int = 4, *, boot: float = 10_000.0, nvlinks: int | None = None,
        prepare: Callable[[SimulatedDriver], None] = lambda _: None) -> Iterator[Rig]:
    """A healthy node, or as ``prepare`` leaves it; opened and polled twice."""
    with SimulatedNode("gpu-1", gpus) as node, SimulatedDriver.at(node.slots, node.uuids) as driver:
        prepare(driver)
        node.attach(driver)
        made = Rig(node, driver, boot=boot, nvlinks=nvlinks)
        try:
            made.poll(2)
            yield made
        finally:
            driver.release_all()
            for gpu in driver.gpus:
                gpu.release_all()
            made.source.end()
