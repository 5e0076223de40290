"""How fast a healthy node-day replays."""

import json
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.table import Row
from nodeguard.app.replay import Player, open_recording
from nodeguard.config.rules import load_rules
from nodeguard.config.shipped import shipped_rules_dir
from nodeguard.sources.recording.reader import entries_of_file

if TYPE_CHECKING:
    from nodeguard.model.errors import Problem

DAY = 86400
GPUS = 8
SLOW_EVERY = 30
FAST = ("gpu_temperature_celsius", "gpu_power_watts", "gpu_utilization_ratio", "gpu_recovery_action",
        "gpu_clock_event_idle", "gpu_clock_event_sw_power_cap", "gpu_clock_event_hw_slowdown",
        "gpu_clock_event_sw_thermal", "gpu_clock_event_hw_thermal", "gpu_clock_event_hw_power_brake")
SLOW = ("gpu_row_remap_pending", "gpu_row_remap_failed", "gpu_row_remap_uncorrected_total",
        "gpu_row_remap_corrected_total", "gpu_ecc_corrected_aggregate_total", "gpu_ecc_uncorrected_aggregate_total",
        "gpu_sram_threshold_exceeded", "pcie_link_generation", "pcie_link_width", "pcie_replay_total")


def write_day(path: Path, seconds: int = DAY) -> None:
    """A healthy node: 8 GPUs, ten fast readings each second, ten slow ones every 30 s."""
    chance = random.Random(1)  # noqa: S311 # a recording for a measurement

    def fast(name: str) -> float:
        if name == "gpu_utilization_ratio":
            return round(chance.random(), 2)
        return chance.randint(40, 70) if name.endswith(("celsius", "watts")) else 0

    with path.open("w") as file:
        for at in range(seconds):
            gpus = {}
            for number in range(GPUS):
                readings: dict[str, object] = {"index": number, "pci": f"0000:{number + 16:02x}:00.0"}
                readings.update({name: fast(name) for name in FAST})
                if at % SLOW_EVERY == 0:
                    readings.update(dict.fromkeys(SLOW, 0))
                gpus[f"GPU-{number:04x}"] = readings
            file.write(json.dumps({"at": at, "nvml": {"gpus": gpus}}) + "\n")


def run() -> list[Row]:
    """Replay a day and print its seconds."""
    rules = load_rules([shipped_rules_dir()])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.jsonl"
        write_day(path)
        problems: list[Problem] = []
        player = Player(rules)
        begin = time.perf_counter()
        transitions = sum(1 for _ in player.play(open_recording(entries_of_file(path, problems), path.name, problems)))
        seconds = time.perf_counter() - begin
    readings = DAY * GPUS * len(FAST) + DAY // SLOW_EVERY * GPUS * len(SLOW)
    return [Row("replay of a healthy node-day", seconds, "s", 60,
                f"{readings:,} readings, {transitions} transitions, {len(problems)} problems")]
