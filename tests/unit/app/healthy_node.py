"""A healthy simulated machine on which things happen: jobs, crashes, restarts, an upgrade of the driver, clock steps.

Below the engine with the shipped rules: the real NVML source above a simulated driver, and the real reading of the
kernel's lines and of dcgm-exporter's pages. What another source sees of a day gets a door here and a line in the test's
``HAPPENINGS``.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml

from nodeguard.app.readers import exporter_pages, kernel_line_parsers
from nodeguard.model.fault import EFFECTS
from nodeguard.model.sample import Batch, PodRef, Pods, SourceState
from nodeguard.sim.driver import SimulatedDriver, SimulatedGpu
from nodeguard.sim.node import SimulatedNode
from nodeguard.sources.kmsg_records import KernelLog
from nodeguard.sources.polled import Sight
from nodeguard.vendors.nvidia.nvml_events import NO_INSTANCE, XID, told_of

from .machine import Machine

_RING = 40
"""Lines that the kernel still holds when an agent starts again."""
_SCRAPE_EVERY = 10.0
_EVENT = EFFECTS.index("event")


class HealthyNode(Machine):
    """The machine, and the doors by which a day happens to it."""

    def __init__(self, node: SimulatedNode, driver: SimulatedDriver, folder: Path, chance: random.Random) -> None:
        self._chance = chance
        self._sequence = 0
        self._ring: list[bytes] = []
        self._kernel_log = KernelLog(kernel_line_parsers())
        self._last_xid: dict[str, int] = {}
        self._exporter_up = True
        self._scraped_at = float("-inf")
        self._follow_exporter()
        super().__init__(node, driver, folder)
        self.busy = False
        self._follow_kernel_log()

    @property
    def gpus(self) -> tuple[SimulatedGpu, ...]:
        return self.driver.gpus

    def touched(self) -> list[str]:
        """Everything since the last look that did more than an event does."""
        told, self.told = self.told, []
        strong = [f"{change.fault.rule} at {change.at:g}: {change.detail}" for change in told
                  if EFFECTS.index(change.fault.effect) > _EVENT]
        return strong + ([f"taint {self.taint}"] if told and self.taint else [])

    def wait(self, seconds: float, every: float) -> None:
        """Poll every so many seconds; sensors waver meanwhile."""
        end = self.clock.boot() + seconds
        while self.clock.boot() < end:
            self._waver()
            self.source.turn(self.take)
            self._scrape()
            self.clock.advance(every)
            self.told += self.engine.step(self.clock.boot())
            touched = self.touched()
            assert not touched, touched

    def _waver(self) -> None:
        chance = self._chance
        for one in self.gpus:
            one.temperature = chance.randint(62, 85) if self.busy else chance.randint(30, 40)
            one.memory_temperature = chance.randint(70, 94) if self.busy else chance.randint(35, 45)
            one.power_milliwatts = chance.randint(600_000, 701_000) if self.busy else 70_000
            one.utilization_percent = chance.randint(55, 100) if self.busy else 0
            one.clock_events = self._clock_events()
            if one.ecc is not None and chance.random() < 0.001:
                one.ecc.corrected_volatile += 1
                one.ecc.corrected_aggregate += 1
            if one.pcie is not None and chance.random() < 0.001:
                one.pcie.replays += 1

    def _clock_events(self) -> int:
        """Idle, or at the power cap; now and then one sample of a slowdown, as clock changes show it."""
        if not self.busy:
            return int(pynvml.nvmlClocksEventReasonGpuIdle)
        blip = pynvml.nvmlClocksThrottleReasonHwSlowdown | pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown
        return int(pynvml.nvmlClocksEventReasonSwPowerCap | (blip if self._chance.random() < 0.01 else 0))

    def begin_job(self) -> None:
        """Load comes, and a moment after it the full link generation."""
        self.busy = True
        self.wait(2, 1.0)
        self._link(5)

    def end_job(self) -> None:
        """The link slows down while the driver still tells the load of the second before."""
        self._link(1)
        self.wait(1, 1.0)
        self.busy = False

    def _link(self, generation: int) -> None:
        for one in self.gpus:
            if one.pcie is not None:
                one.pcie.generation = generation
        self.node.refresh()

    def crash(self) -> None:
        """A job's own fault kills it: one Xid of the program, 43, and 45 on every channel of every GPU.

        Its pod starts again and crashes three times: the same pod, which is no sign of bad hardware.
        """
        code, words = self._chance.choice((
            (13, "Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): Out Of Range Address"),
            (31, "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f64_00000000")))
        self.take(Batch(source="agent", facts=(Pods({self.device(0): (PodRef("p1", "ml", "train-0"),)}),)))
        for _ in range(3):
            pid = self._chance.randint(1000, 90000)
            self.xid(self.gpus[0], code, pid, words)
            self.xid(self.gpus[0], 43, pid, "Ch 00000008")
            for one in self.gpus:
                for channel in range(15):
                    self.xid(one, 45, pid, f"Ch {channel:08x}")
            self.wait(10, 1.0)
        self.take(Batch(source="agent", facts=(Pods({}),)))

    def xid(self, on: SimulatedGpu, code: int, pid: int, words: str) -> None:
        """Told twice, as the driver does: by the kernel log, and as an event of NVML."""
        self.kernel_line(f"NVRM: Xid (PCI:{on.pci.removesuffix('.0')}): {code}, pid={pid}, name=python3, {words}")
        told = told_of(on.uuid, XID, code, NO_INSTANCE, NO_INSTANCE)
        self.take(Batch(source="nvml_events", events=told.events))
        self._last_xid[on.uuid] = code

    def kernel_line(self, text: str) -> None:
        """The kernel prints a line, and the agent reads it."""
        raw = f"4,{self._sequence},{int(self.clock.boot() * 1e6)},-;{text}\n".encode()
        self._sequence += 1
        self._ring = [*self._ring, raw][-_RING:]
        self._feed([raw])

    def _feed(self, raws: list[bytes]) -> None:
        batch = self._kernel_log.feed(raws)
        if batch is not None:
            self.take(batch)

    def _follow_kernel_log(self) -> None:
        """What an agent does when it starts: read what the ring holds, and skip what was taken before."""
        state = self._kernel_log.state()
        self._kernel_log = KernelLog(kernel_line_parsers())
        self._kernel_log.restore(state)
        self._kernel_log.reopened()
        self._feed(self._ring)
        self.take(Batch(source="kmsg", facts=(SourceState(up=True),)))

    def _follow_exporter(self) -> None:
        """What an agent does when it starts: of earlier pages nothing is known."""
        pages = exporter_pages("dcgm")
        assert pages is not None
        self._pages, self._sight = pages, Sight()

    def _scrape(self) -> None:
        now = self.clock.boot()
        if now < self._scraped_at + _SCRAPE_EVERY:
            return
        self._scraped_at = now
        batch = self._pages.page(self._page(), now) if self._exporter_up else self._pages.failed("refused", now)
        self.take(self._sight.of(batch))

    def _page(self) -> str:
        """The page of dcgm-exporter: its default counters, those of a newer one, and the last Xid for ever."""
        lines: list[str] = []
        for index, one in enumerate(self.gpus):
            assert one.ecc is not None
            assert one.pcie is not None
            values = {
                "GPU_TEMP": one.temperature, "MEMORY_TEMP": one.memory_temperature,
                "POWER_USAGE": (one.power_milliwatts or 0) / 1000, "GPU_UTIL": one.utilization_percent,
                "TOTAL_ENERGY_CONSUMPTION": int(self.clock.boot() * 70_000),
                "XID_ERRORS": self._last_xid.get(one.uuid, 0),
                "PCIE_REPLAY_COUNTER": one.pcie.replays, "ECC_SBE_VOL_TOTAL": one.ecc.corrected_volatile,
                "ECC_DBE_VOL_TOTAL": 0, "ROW_REMAP_FAILURE": 0, "UNCORRECTABLE_REMAPPED_ROWS": 0,
                "CLOCKS_EVENT_REASONS": one.clock_events}
            labels = f'gpu="{index}",UUID="{one.uuid}",pci_bus_id="0000{one.pci.upper()}",Hostname="exporter-x2"'
            lines += [f"DCGM_FI_DEV_{name}{{{labels}}} {value}" for name, value in values.items()]
        return "\n".join(lines) + "\n"

    def restart_exporter(self) -> None:
        """Its pod is replaced: nothing answers for a while, and then it knows of no Xid."""
        self._exporter_up = False
        self.wait(self._chance.choice((15, 45, 85)), 5.0)
        self._last_xid.clear()
        self._exporter_up = True

    def restart_agent(self) -> None:
        """See :class:`Machine`; the kernel log is read again from its oldest line."""
        super().restart_agent()
        self._follow_kernel_log()
        self._follow_exporter()

    def upgrade_driver(self) -> None:
        """The agent is asked to let go, the driver is unloaded (which it refuses to an open client) and loaded.

        The exporter, another client of the driver, is replaced at the end.
        """
        self.source.quiesce(on=True)
        self.wait(5, 1.0)
        assert self.driver.unload() == 0
        self.wait(240, 10.0)
        if self._chance.random() < 0.5:
            self.restart_agent()
            self.source.quiesce(on=True)
            self.wait(20, 1.0)
        self.driver.load("590.44.01")
        self.source.quiesce(on=False)
        self.restart_exporter()

    def step_clock(self) -> None:
        """NTP corrects a clock that was wrong by an hour, or by minutes."""
        self.clock.step_wall(self._chance.choice((3600.0, -3600.0, 300.0, -7.0)))


@contextmanager
def healthy_node(folder: Path, chance: random.Random, gpus: int = 2) -> Iterator[HealthyNode]:
    """At rest, with every GPU's link at Gen1, as an idle one has it."""
    with SimulatedNode("gpu-1", gpus) as node, SimulatedDriver.at(node.slots, node.uuids) as driver:
        for one in driver.gpus:
            assert one.pcie is not None
            one.pcie.generation = 1
        node.attach(driver)
        made = HealthyNode(node, driver, folder, chance)
        try:
            yield made
        finally:
            made.source.end()
