"""What is read from a GPU: real pynvml above the simulated driver."""

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from nodeguard.model.signals import SIGNALS
from nodeguard.sim.driver import SimulatedGpu
from nodeguard.sim.driver.gpu import Retired

from .nvml_rig import Rig


def test_every_sample_is_of_the_catalogue(rig: Rig) -> None:
    """Names, labels and words are those that rules may use."""
    for sample in (*rig.fast().samples, *rig.slow().samples):
        signal = SIGNALS[sample.signal]
        assert tuple(name for name, _ in sample.labels) == signal.attributes
        assert not signal.states or sample.value is None or sample.value in signal.states
        assert sample.device == rig.listed.device


def test_a_gpu_at_rest_has_no_fault_and_nothing_unknown_but_page_retirement(rig: Rig) -> None:
    """A GPU with a row remapper retires no pages; all else is known."""
    unknown = {name for name, value in rig.values().items() if value is None}
    assert unknown == {"gpu_retired_pages_total", "gpu_retired_pages_pending"}
    assert not rig.fast().errors
    assert not rig.slow().errors


CHANGES: list[tuple[str, Any, Callable[[SimulatedGpu], Any]]] = [
    ("gpu_temperature_celsius", 96, lambda gpu: setattr(gpu, "temperature", 96)),
    ("gpu_memory_temperature_celsius", 97, lambda gpu: setattr(gpu, "memory_temperature", 97)),
    ("gpu_temperature_shutdown_celsius", 101, lambda gpu: gpu.thresholds.update({0: 101})),
    ("gpu_temperature_slowdown_celsius", 98, lambda gpu: gpu.thresholds.update({1: 98})),
    ("gpu_memory_temperature_max_celsius", 99, lambda gpu: gpu.thresholds.update({2: 99})),
    ("gpu_temperature_max_celsius", 93, lambda gpu: gpu.thresholds.update({3: 93})),
    ("gpu_power_watts", 612.5, lambda gpu: setattr(gpu, "power_milliwatts", 612_500)),
    ("gpu_power_limit_watts", 500, lambda gpu: setattr(gpu, "power_limit_milliwatts", 500_000)),
    ("gpu_utilization_ratio", 0.73, lambda gpu: setattr(gpu, "utilization_percent", 73)),
    ("gpu_memory_used_bytes", 12, lambda gpu: setattr(gpu, "memory_used", 12)),
    ("gpu_memory_total_bytes", 1 << 40, lambda gpu: setattr(gpu, "memory_total", 1 << 40)),
    ("gpu_ecc_corrected_volatile_total", 1, lambda gpu: setattr(gpu.ecc, "corrected_volatile", 1)),
    ("gpu_ecc_uncorrected_volatile_total", 2, lambda gpu: setattr(gpu.ecc, "uncorrected_volatile", 2)),
    ("gpu_ecc_corrected_aggregate_total", 3, lambda gpu: setattr(gpu.ecc, "corrected_aggregate", 3)),
    ("gpu_ecc_uncorrected_aggregate_total", 4, lambda gpu: setattr(gpu.ecc, "uncorrected_aggregate", 4)),
    ("gpu_sram_threshold_exceeded", 1, lambda gpu: setattr(gpu, "sram_threshold", True)),
    ("gpu_row_remap_corrected_total", 5, lambda gpu: setattr(gpu.remap, "corrected", 5)),
    ("gpu_row_remap_uncorrected_total", 6, lambda gpu: setattr(gpu.remap, "uncorrected", 6)),
    ("gpu_row_remap_pending", 1, lambda gpu: setattr(gpu.remap, "pending", 1)),
    ("gpu_row_remap_failed", 1, lambda gpu: setattr(gpu.remap, "failed", 1)),
    ("gpu_recovery_action", 2, lambda gpu: setattr(gpu, "recovery_action", 2)),
    ("pcie_link_generation", 2, lambda gpu: setattr(gpu.pcie, "generation", 2)),
    ("pcie_link_generation_max", 4, lambda gpu: setattr(gpu.pcie, "generation_max", 4)),
    ("pcie_link_width", 8, lambda gpu: setattr(gpu.pcie, "width", 8)),
    ("pcie_link_width_max", 8, lambda gpu: setattr(gpu.pcie, "width_max", 8)),
    ("pcie_replay_total", 7, lambda gpu: setattr(gpu.pcie, "replays", 7)),
    ("nvlink_state 4", "inactive", lambda gpu: setattr(gpu.links[4], "active", False)),
    ("nvlink_replay_errors_total 4", 8, lambda gpu: setattr(gpu.links[4], "replay", 8)),
    ("nvlink_recovery_errors_total 4", 9, lambda gpu: setattr(gpu.links[4], "recovery", 9)),
    ("nvlink_crc_errors_total 4", 10, lambda gpu: setattr(gpu.links[4], "crc", 10)),
    ("gpu_clock_violation_power_seconds_total", 1.5, lambda gpu: gpu.violations_ns.update({0: 1_500_000_000})),
    ("gpu_clock_violation_thermal_seconds_total", 2.5, lambda gpu: gpu.violations_ns.update({1: 2_500_000_000})),
    ("gpu_clock_violation_board_limit_seconds_total", 3.5, lambda gpu: gpu.violations_ns.update({3: 3_500_000_000})),
    ("gpu_clock_violation_reliability_seconds_total", 4.5, lambda gpu: gpu.violations_ns.update({5: 4_500_000_000})),
    ("gpu_fabric_state", "in_progress", lambda gpu: setattr(gpu.fabric, "state", 2)),
]


@pytest.mark.parametrize(("name", "value", "change"), CHANGES, ids=[name for name, *_ in CHANGES])
def test_each_signal_follows_its_value(
        rig: Rig, name: str, value: Any, change: Callable[[SimulatedGpu], Any]) -> None:
    """In the signal's unit, and no other signal moves."""
    before = rig.values()
    change(rig.gpu)
    after = rig.values()
    assert after[name] == pytest.approx(value) if isinstance(value, float) else after[name] == value
    with_it = {"gpu_nvlinks_active"} if name.startswith("nvlink_state") else set()
    assert {each for each in after if after[each] != before[each]} == {name, *with_it}


def test_retired_pages_are_those_of_both_causes(rig: Rig) -> None:
    """GPUs before the row remapper: single and double bit pages are added up, pending is a state."""
    rig.gpu.retired = Retired(single_bit=3, double_bit=2, pending=1)
    values = rig.values()
    assert (values["gpu_retired_pages_total"], values["gpu_retired_pages_pending"]) == (5, 1)


@pytest.mark.parametrize(("mask", "bits"), [
    (0x1, {"idle"}), (0x4, {"sw_power_cap"}), (0x102, set()), (0x80, {"hw_power_brake"}),
    (0x48, {"hw_slowdown", "hw_thermal"}), (0x20, {"sw_thermal"}), (0, set())])
def test_c29_clock_events_are_one_state_a_bit(rig: Rig, mask: int, bits: set[str]) -> None:
    """C29: what an operator sets (application clocks, display) is no signal."""
    rig.gpu.clock_events = mask
    found = {name for name, value in rig.values().items() if name.startswith("gpu_clock_event_") and value == 1}
    assert found == {f"gpu_clock_event_{bit}" for bit in bits}


@pytest.mark.parametrize("mask", [0x8000000000000000, 0xFFFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFF0, 0x7FFFFFF0])
def test_c29g_a_blank_mask_is_unknown(rig: Rig, mask: int) -> None:
    """C29g: no bit of it is true or false."""
    rig.gpu.clock_events = mask
    assert {one.value for one in rig.fast().samples if one.signal.startswith("gpu_clock_event_")} == {None}


def test_c22_what_a_card_lacks_is_unknown_and_asked_once(card: Rig) -> None:
    """C22: None, no error, said once, and not asked again until NVML is opened again."""
    first = card.slow()
    assert any("field 144" in question for question in first.refused)
    values = card.values()
    assert values["gpu_temperature_celsius"] == 35
    assert values["gpu_power_watts"] == 70
    assert not [name for name in values if name.startswith("nvlink")]
    for name in ("gpu_memory_temperature_celsius", "gpu_row_remap_pending", "gpu_recovery_action", "gpu_fabric_state",
                 "gpu_ecc_uncorrected_volatile_total", "gpu_sram_threshold_exceeded"):
        assert values[name] is None
    again = card.slow()
    assert not first.errors
    assert (again.refused, dict(again.errors)) == ((), {})
    card.gpu.memory_temperature = 50
    assert card.values()["gpu_memory_temperature_celsius"] is None
    card.nvml.open()
    card.nvml.gpus()
    assert card.values()["gpu_memory_temperature_celsius"] == 50


def test_questions_cost_few_calls(rig: Rig) -> None:
    """One call for all fields of a tier, one for the links."""
    assert rig.calls(rig.fast) == 4
    assert rig.calls(rig.slow) == 18


def test_a_card_that_refused_costs_fewer_calls(card: Rig) -> None:
    """Refused calls are not made again."""
    assert card.calls(card.slow) == 17
    assert card.calls(card.slow) == 15


@pytest.mark.parametrize(("state", "status", "mask", "word"), [
    (3, 0, 0x1AA, "completed"), (3, 0, 0x80, "completed"), (3, 0, 0, "completed"), (3, 0, 0x40, "unhealthy"),
    (3, 0, 0x500, "unhealthy"), (3, 23, 0x1AA, "unhealthy"), (1, 0, 0, "not_started"), (2, 3, 0, "in_progress"),
    (0, 0, 0, "not_supported"), (9, 0, 0, None)])
def test_c30_fabric_state(rig: Rig, state: int, status: int, mask: int, word: str | None) -> None:
    """C30 d, e, f: a mask that says "no fault" is none, a part at fault is one, and so is a failed registration."""
    assert rig.gpu.fabric is not None
    rig.gpu.fabric.state, rig.gpu.fabric.status, rig.gpu.fabric.health_mask = state, status, mask
    assert rig.values()["gpu_fabric_state"] == word


def test_c30_parts_of_the_fabrics_health(rig: Rig) -> None:
    """Each part apart: 1 at fault, 0 healthy, None not supported."""
    assert rig.gpu.fabric is not None
    rig.gpu.fabric.health_mask = 0x1 | 0x2 << 2 | 0x5 << 8
    parts = {one.labels[0][1]: one.value for one in rig.slow().samples if one.signal == "gpu_fabric_health_fault"}
    assert parts == {"degraded_bandwidth": 1, "route_recovery": 0, "route_unhealthy": None,
                     "access_timeout_recovery": None, "incorrect_configuration": 1}


def test_c30_links_up_to_those_that_exist(rig: Rig) -> None:
    """C30 a, b: as many links as the driver counts, each with its own state."""
    rig.gpu.links = rig.gpu.links[:12]
    rig.gpu.links[11].active = False
    states = [one for one in rig.slow().samples if one.signal == "nvlink_state"]
    assert [one.labels for one in states] == [(("link", str(link)),) for link in range(12)]
    assert [one.value for one in states] == ["active"] * 11 + ["inactive"]


@pytest.mark.parametrize(("value_type", "value", "read"), [
    (pynvml.NVML_VALUE_TYPE_DOUBLE, 2.0, 2.0), (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG, 3, 3),
    (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, 4, 4), (pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG, -5, -5),
    (pynvml.NVML_VALUE_TYPE_SIGNED_INT, -6, -6), (pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT, 7, 7), (99, 0, None),
    (pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, 0xFFFFFFFF, None), (pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, 0x7FFFFFF1, None),
    (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, 0xFFFFFFFFFFFFFFFF, None),
    (pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG, 0x7FFFFFFFFFFFFFF0, None),
    (pynvml.NVML_VALUE_TYPE_DOUBLE, 140737488355328.0, None), (pynvml.NVML_VALUE_TYPE_DOUBLE, float("nan"), None)])
def test_a_fields_own_type_decides_how_it_is_read(rig: Rig, value_type: int, value: float, read: float | None) -> None:
    """Whatever type this driver chose; blanks and types that nobody knows are unknown."""
    rig.gpu.fail_field(82, value=value, value_type=value_type)
    found = {one.signal: one.value for one in rig.fast().samples}["gpu_memory_temperature_celsius"]
    assert found == read
