"""Readings that fail: lost GPUs, GPUs that want a reset, older drivers. Real pynvml above the simulated driver."""

from typing import Any

import pynvml

from .nvml_rig import Rig


def test_c19_a_lost_gpu_is_one_event_and_nothing_else(rig: Rig) -> None:
    """C19a: told once while it lasts, no samples, no error; told anew after it answered in between."""
    rig.gpu.lose()
    first, second, slow = rig.fast(), rig.fast(), rig.slow()
    assert [(event.signal, event.device, dict(event.attributes)) for event in first.events] == [
        ("gpu_lost", rig.listed.device, {"cause": "nvml"})]
    for reading in (first, second, slow):
        assert reading.lost
        assert not reading.samples
        assert not reading.errors
    assert not second.events
    rig.gpu.heal()
    assert not rig.fast().lost
    rig.gpu.lose()
    assert rig.fast().events


def test_a_field_that_says_lost_is_enough(rig: Rig) -> None:
    """The code of a single field counts as the call's own."""
    rig.gpu.fail_field(82, pynvml.NVML_ERROR_GPU_IS_LOST)
    assert rig.fast().lost


def test_a_call_that_fails_costs_itself_only(rig: Rig) -> None:
    """Unknown errors, time-outs: unknown, counted, asked again."""
    rig.gpu.fail("nvmlDeviceGetTemperatureV", pynvml.NVML_ERROR_UNKNOWN)
    rig.gpu.fail_field(82, pynvml.NVML_ERROR_TIMEOUT)
    reading = rig.fast()
    values = {one.signal: one.value for one in reading.samples}
    assert values["gpu_temperature_celsius"] is values["gpu_memory_temperature_celsius"] is None
    assert values["gpu_power_watts"] == 70
    assert dict(reading.errors) == {"UNKNOWN": 1, "TIMEOUT": 1}
    rig.gpu.heal()
    rig.gpu.heal_field(82)
    assert None not in {one.value for one in rig.fast().samples}


def test_all_fields_failing_at_once_are_one_error(rig: Rig) -> None:
    """nvmlDeviceGetFieldValues itself fails: its signals are unknown, the others stay."""
    rig.gpu.fail("nvmlDeviceGetFieldValues", pynvml.NVML_ERROR_UNKNOWN)
    reading = rig.fast()
    assert dict(reading.errors) == {"UNKNOWN": 1}
    assert {one.signal for one in reading.samples if one.value is None} == {
        "gpu_memory_temperature_celsius", "gpu_power_watts", "gpu_recovery_action"}


def test_c27a_the_recovery_action_needs_no_event(rig: Rig) -> None:
    """C27a: it is read, not told."""
    rig.gpu.recovery_action = 1
    assert rig.values()["gpu_recovery_action"] == 1


def test_c27b_an_older_driver_has_no_recovery_action(rig: Rig) -> None:
    """C27b: unknown, whether the field is an invalid argument or not supported; functions have older names."""
    rig.driver.newest_field = 160
    rig.driver.missing = frozenset({
        "nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetSramEccErrorStatus"})
    rig.gpu.links[1].active = False
    rig.gpu.clock_events = 0x80
    values = rig.values()
    assert values["gpu_recovery_action"] is values["gpu_fabric_state"] is values["gpu_sram_threshold_exceeded"] is None
    assert values["nvlink_crc_errors_total 1"] is None
    known = {"gpu_temperature_celsius": 35, "gpu_power_watts": 70, "gpu_power_limit_watts": 700,
             "gpu_clock_event_hw_power_brake": 1, "nvlink_state 0": "active", "nvlink_state 1": "inactive"}
    assert {name: values[name] for name in known} == known
    assert not rig.fast().errors
    assert not rig.slow().refused


def test_c27c_reset_required_is_the_recovery_action_reset(rig: Rig) -> None:
    """C27c: one call says so, whatever the field says; the other readings stay."""
    rig.gpu.fail("nvmlDeviceGetTemperatureV", pynvml.NVML_ERROR_RESET_REQUIRED)
    reading = rig.fast()
    assert [one.value for one in reading.samples if one.signal == "gpu_recovery_action"] == [1]
    assert {one.signal: one.value for one in reading.samples}["gpu_power_watts"] == 70
    assert not reading.errors
    rig.gpu.recovery_action = 2
    assert rig.values()["gpu_recovery_action"] == 2


def test_reset_required_in_one_tier_is_not_taken_back_by_the_other(rig: Rig) -> None:
    """It ends when the tier that met it does not any more: a 0 in between would look like a reset."""
    rig.gpu.fail("nvmlDeviceGetTemperatureThreshold", pynvml.NVML_ERROR_RESET_REQUIRED)

    def action() -> Any:
        return next(one.value for one in rig.fast().samples if one.signal == "gpu_recovery_action")

    assert action() == 0
    rig.slow()
    assert (action(), action()) == (1, 1)
    rig.gpu.recovery_action = 2
    assert action() == 2
    rig.gpu.recovery_action = 0
    rig.gpu.heal()
    assert action() == 1
    rig.slow()
    assert action() == 0


def test_reset_required_ends_on_a_driver_without_the_field(rig: Rig) -> None:
    """What was inferred is taken back once; after that the action is unknown as before."""
    rig.driver.newest_field = 200
    rig.gpu.fail("nvmlDeviceGetTemperatureV", pynvml.NVML_ERROR_RESET_REQUIRED)

    def actions() -> list[Any]:
        return [one.value for one in rig.fast().samples if one.signal == "gpu_recovery_action"]

    assert actions() == [1]
    rig.gpu.heal()
    assert actions() == [0]
    assert actions() == [None]
