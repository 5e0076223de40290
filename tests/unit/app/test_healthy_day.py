"""A healthy node-day with everything that happens on one: nothing touches the node."""

import random
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from nodeguard.app.replay import Player, open_recording
from nodeguard.config.rules import load_rules
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.sources.recording.reader import Entry

if TYPE_CHECKING:
    from nodeguard.model.errors import Problem

DAY = 86400
POLL = 10
SCRAPE = 60
GPUS = 2
SLOTS = ("0000:1b:00", "0000:2c:00")
QUIET = {"none", "event"}


def readings(chance: random.Random, *, busy: bool) -> dict[str, Any]:
    """One GPU: idle at Gen1 and low power, or busy at its power cap with a slowdown blip now and then."""
    return {
        "gpu_temperature_celsius": chance.randint(70, 82) if busy else chance.randint(30, 40),
        "gpu_temperature_slowdown_celsius": 87, "gpu_temperature_shutdown_celsius": 92,
        "gpu_memory_temperature_celsius": chance.randint(60, 90), "gpu_memory_temperature_max_celsius": 95,
        "gpu_utilization_ratio": chance.uniform(0.6, 1.0) if busy else 0.0,
        "gpu_clock_event_idle": int(not busy), "gpu_clock_event_sw_power_cap": int(busy),
        "gpu_clock_event_hw_slowdown": int(chance.random() < 0.05),
        "gpu_clock_event_hw_power_brake": int(chance.random() < 0.002), "gpu_clock_event_hw_thermal": 0,
        "pcie_link_generation": 5 if busy else 1, "pcie_link_generation_max": 5,
        "pcie_link_width": 16, "pcie_link_width_max": 16,
        "gpu_recovery_action": 0, "gpu_row_remap_pending": 0, "gpu_row_remap_failed": 0,
        "gpu_ecc_uncorrected_volatile_total": 0, "gpu_retired_pages_total": 3,
        "nvlink_state": {0: "active", 1: "inactive"}, "gpu_fabric_state": "completed",
        "gpu_ecc_corrected_volatile_total": None if chance.random() < 0.01 else chance.randint(0, 9),
    }


def day(seed: int) -> Iterator[dict[str, Any]]:
    """Jobs come and go and crash, the agent and an exporter restart, polls bring nothing now and then."""
    chance = random.Random(seed)  # noqa: S311 # a recording for a test
    exporter = Exporter(chance)
    yield {"at": 0, "node": {"name": "gpu-1", "uid": "u1", "boot_id": "b1", "expect": {"gpu": GPUS}}}
    busy = False
    for at in range(0, DAY, POLL):
        if chance.random() < 0.003:
            busy = not busy
        gpus = {f"GPU-{number}": {"index": number, "pci": f"{slot}.0", **readings(chance, busy=busy)}
                for number, slot in enumerate(SLOTS)}
        yield {"at": at, "nvml": {"gpus": gpus}}
        if at % SCRAPE == 0:
            yield {"at": at, "exporter": {"name": "dcgm", **exporter.scrape(at)}}
        if chance.random() < 0.002:
            exporter.last_xid = yield from crash(at, chance)
        if chance.random() < 0.001:
            yield {"at": at, "agent_restart": True}


class Exporter:
    """dcgm-exporter: it keeps the last Xid for as long as it lives, and is away for up to a minute when replaced."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.last_xid = 0

    def scrape(self, at: int) -> dict[str, str]:
        """A page, or why there is none."""
        if self._chance.random() < 0.01:
            self.last_xid = 0
            return {"error": "connection refused"}
        rows = {"DCGM_FI_DEV_GPU_TEMP": 50, "DCGM_FI_DEV_XID_ERRORS": self.last_xid,
                "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": at * 70_000}
        return {"page": "".join(f'{name}{{gpu="{number}",UUID="GPU-{number}"}} {value}\n'
                                for name, value in rows.items() for number in range(GPUS))}


def crash(at: int, chance: random.Random) -> Generator[dict[str, Any], None, int]:
    """A job dies of its own fault: 13 or 31 on one GPU, 43, and a burst of 45 on all, the last one told."""
    code = chance.choice((13, 31, 43))
    pid = chance.randint(1000, 90000)
    yield {"at": at, "kmsg": f"NVRM: Xid (PCI:{SLOTS[0]}): {code}, pid={pid}, name=trainer, Ch 00000008"}
    for number in range(15):
        for slot in SLOTS:
            yield {"at": at, "kmsg": f"NVRM: Xid (PCI:{slot}): 45, pid={pid}, name=trainer, Ch {number:08x}"}
    return 45


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_touches_a_healthy_node(seed: int) -> None:
    """No transition of the whole day has an effect above event, and every condition ends False."""
    problems: list[Problem] = []
    player = Player(load_rules([shipped_rules_dir()]))
    entries = (Entry(number, 1, value) for number, value in enumerate(day(seed), 1))
    effects = {change.fault.effect: change.fault.rule
               for change in player.play(open_recording(entries, "day", problems))}
    assert problems == []
    assert effects.keys() <= QUIET, effects
    assert {one["status"] for one in player.final()["conditions"].values()} == {"False"}
