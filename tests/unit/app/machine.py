"""A machine with simulated GPUs whose agent can be restarted, that can be rebooted, and whose GPUs can be swapped.

Real pynvml above the simulated driver, the real NVML source, the engine with the shipped rules, the agent's memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nodeguard.app.remember import Remember
from nodeguard.engine.engine import Engine
from nodeguard.model.clock import FakeClock
from nodeguard.model.device import Device, gpu
from nodeguard.model.fault import Fault
from nodeguard.model.intent import Condition
from nodeguard.model.sample import Batch, Booted, KindsHere, NodeIs
from nodeguard.sim.driver import SimulatedDriver, SimulatedGpu
from nodeguard.sim.node import SimulatedNode
from nodeguard.sources.nvml import NvmlPace, NvmlSource
from nodeguard.store import Store
from nodeguard.vendors.nvidia.nvml import Nvml
from nodeguard.vendors.nvidia.pci import Bus

from .rig import shipped

if TYPE_CHECKING:
    from nodeguard.model.fault import Transition

_DEADLINE = 0.25
"""Real seconds that a round waits for a call that hangs; every other round ends as soon as all have answered."""
_SETTLED = 10_000.0
_JUST_BOOTED = 20.0


class Machine:
    """One node, polled once per simulated second."""

    def __init__(self, node: SimulatedNode, driver: SimulatedDriver, folder: Path) -> None:
        self.node, self.driver, self._folder = node, driver, folder
        self.clock = FakeClock(_SETTLED)
        self.told: list[Transition] = []
        """Every transition of every agent that ran here."""
        self.notes: list[str] = []
        self._boots = 1
        self._begin()

    def _begin(self) -> None:
        """An agent starts, as nodeguard.app.agent puts it together."""
        boot_id = f"b{self._boots}"
        self._remember = Remember(Store(self._folder), self.clock, boot_id, self.notes.append)
        self.engine = self._remember.restore(
            lambda: Engine(shipped(), node_name="gpu-1", configured=("nvml",)), {"metadata": {"uid": "u1"}}).engine
        self.source = NvmlSource(Nvml(), Bus(self.node.sys_root).gpus, self.clock,
                                 pace=NvmlPace(deadline=_DEADLINE), warn=self.notes.append)
        self.take(Batch(source="agent", facts=(
            Booted(boot_id, 0.0), KindsHere(frozenset({"gpu"})), NodeIs("gpu-1", "u1"))))

    def _die(self) -> None:
        """The agent's process ends, its state saved; the kernel closes what it had open."""
        self._remember.save(self.engine, {}, {})
        self.source.end()
        self.driver.clients = 0

    def restart_agent(self) -> None:
        """The agent ends, and the next one starts where it stopped."""
        self._die()
        self._begin()

    def reboot(self) -> None:
        """The machine boots again: a new boot ID, the driver loaded anew, and a clock that starts at 0."""
        self._die()
        self.driver.release_all()
        for one in self.driver.gpus:
            one.release_all()
        self.driver.reload()
        self._boots += 1
        self.clock = FakeClock(_JUST_BOOTED, self.clock.wall() + 120.0)
        self._begin()

    def reset(self, bad: SimulatedGpu) -> None:
        """Reset a GPU as a remedy does: the agent is asked to let go of the driver, which refuses otherwise."""
        self.source.quiesce(on=True)
        self.poll(3)
        assert self.driver.reset_gpu(bad) == 0
        self.source.quiesce(on=False)

    def take(self, batch: Batch) -> None:
        self.told += self.engine.step(self.clock.boot(), batch)

    def poll(self, seconds: int) -> None:
        """Poll once a second."""
        for _ in range(seconds):
            self.source.turn(self.take)
            self.clock.advance(1.0)
            self.told += self.engine.step(self.clock.boot())

    def faults(self) -> dict[tuple[str, Device], Fault]:
        """Open faults with an effect on the node."""
        return {(fault.rule, fault.device): fault for fault in self.engine.open_faults() if fault.effect != "none"}

    def device(self, index: int) -> Device:
        return gpu(self.driver.gpus[index].uuid)

    def condition(self, name: str) -> Condition:
        """One condition as the Node would say it."""
        (found,) = [one for one in self.engine.intent().conditions if one.type == name]
        return found

    @property
    def taint(self) -> str | None:
        return self.engine.intent().taint


@contextmanager
def machine(folder: Path, gpus: int = 8) -> Iterator[Machine]:
    """A healthy machine, opened and polled twice."""
    with SimulatedNode("gpu-1", gpus) as node, SimulatedDriver.at(node.slots, node.uuids) as driver:
        node.attach(driver)
        made = Machine(node, driver, folder)
        try:
            made.poll(2)
            yield made
        finally:
            driver.release_all()
            for one in driver.gpus:
                one.release_all()
            made.source.end()
