"""The simulated driver as real pynvml meets it."""

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pynvml
import pytest

from nodeguard.sim.driver import MigInstance, SimulatedDriver, SimulatedGpu

CODES = sorted({getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_")})


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    """Four GPUs, and pynvml opened above them."""
    with SimulatedDriver(4) as installed:
        pynvml.nvmlInit()
        yield installed


def handle(index: int) -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def temperature(index: int) -> int:
    return int(pynvml.nvmlDeviceGetTemperature(handle(index), pynvml.NVML_TEMPERATURE_GPU))


def test_identity_is_written_as_nvml_writes_it(driver: SimulatedDriver) -> None:
    """Upper-case bus id with 8 and 4 digits of domain, UUID, name, index."""
    info = pynvml.nvmlDeviceGetPciInfo(handle(1))
    assert (info.busId, info.busIdLegacy) == ("00000000:2C:00.0", "0000:2C:00.0")
    assert (info.domain, info.bus, info.device) == (0, 0x2C, 0)
    assert pynvml.nvmlDeviceGetUUID(handle(1)) == driver.gpus[1].uuid
    assert pynvml.nvmlDeviceGetName(handle(1)) == "NVIDIA H100 80GB HBM3"
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(driver.gpus[3].uuid)) == 3
    assert pynvml.nvmlDeviceGetMinorNumber(handle(3)) == 3
    assert pynvml.nvmlDeviceGetCount() == 4
    assert pynvml.nvmlSystemGetDriverVersion() == pynvml.nvmlSystemGetNVMLVersion() == driver.version


READINGS: list[tuple[Callable[[SimulatedGpu], None], Callable[[Any], Any], Any]] = [
    (lambda gpu: setattr(gpu, "temperature", 91), lambda h: pynvml.nvmlDeviceGetTemperatureV(h, 0), 91),
    (lambda gpu: setattr(gpu, "temperature", 91), lambda h: pynvml.nvmlDeviceGetTemperature(h, 0), 91),
    (lambda gpu: gpu.thresholds.update({1: 88}), lambda h: pynvml.nvmlDeviceGetTemperatureThreshold(h, 1), 88),
    (lambda gpu: setattr(gpu, "power_milliwatts", 5), pynvml.nvmlDeviceGetPowerUsage, 5),
    (lambda gpu: setattr(gpu, "power_limit_milliwatts", 6), pynvml.nvmlDeviceGetEnforcedPowerLimit, 6),
    (lambda gpu: setattr(gpu, "power_limit_milliwatts", 6), pynvml.nvmlDeviceGetPowerManagementLimit, 6),
    (lambda gpu: setattr(gpu, "utilization_percent", 73), lambda h: pynvml.nvmlDeviceGetUtilizationRates(h).gpu, 73),
    (lambda gpu: setattr(gpu, "memory_used", 9), lambda h: pynvml.nvmlDeviceGetMemoryInfo(h).used, 9),
    (lambda gpu: setattr(gpu, "memory_used", 9),
     lambda h: pynvml.nvmlDeviceGetMemoryInfo(h, version=pynvml.nvmlMemory_v2).used, 9),
    (lambda gpu: setattr(gpu, "ecc_mode", 0), pynvml.nvmlDeviceGetEccMode, [0, 0]),
    (lambda gpu: setattr(gpu.ecc, "uncorrected_aggregate", 7),
     lambda h: pynvml.nvmlDeviceGetTotalEccErrors(h, 1, 1), 7),
    (lambda gpu: setattr(gpu.remap, "pending", 1), pynvml.nvmlDeviceGetRemappedRows, (0, 0, 1, 0)),
    (lambda gpu: setattr(gpu, "clock_events", 0x80), pynvml.nvmlDeviceGetCurrentClocksEventReasons, 0x80),
    (lambda gpu: setattr(gpu, "clock_events", 0x40), pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, 0x40),
    (lambda gpu: gpu.violations_ns.update({1: 12}),
     lambda h: pynvml.nvmlDeviceGetViolationStatus(h, 1).violationTime, 12),
    (lambda gpu: setattr(gpu.pcie, "generation", 2), pynvml.nvmlDeviceGetCurrPcieLinkGeneration, 2),
    (lambda gpu: setattr(gpu.pcie, "generation_max", 4), pynvml.nvmlDeviceGetMaxPcieLinkGeneration, 4),
    (lambda gpu: setattr(gpu.pcie, "width", 8), pynvml.nvmlDeviceGetCurrPcieLinkWidth, 8),
    (lambda gpu: setattr(gpu.pcie, "width_max", 8), pynvml.nvmlDeviceGetMaxPcieLinkWidth, 8),
    (lambda gpu: setattr(gpu.pcie, "replays", 3), pynvml.nvmlDeviceGetPcieReplayCounter, 3),
    (lambda gpu: setattr(gpu.links[4], "active", False), lambda h: pynvml.nvmlDeviceGetNvLinkState(h, 4), 0),
    (lambda gpu: setattr(gpu.links[4], "crc", 5), lambda h: pynvml.nvmlDeviceGetNvLinkErrorCounter(h, 4, 2), 5),
    (lambda gpu: setattr(gpu, "persistence", 0), pynvml.nvmlDeviceGetPersistenceMode, 0),
    (lambda gpu: setattr(gpu, "mig_mode", 1), pynvml.nvmlDeviceGetMigMode, [1, 1]),
    (lambda gpu: setattr(gpu, "event_types", 8), pynvml.nvmlDeviceGetSupportedEventTypes, 8),
    (lambda gpu: gpu.processes.extend([10, 20]),
     lambda h: [one.pid for one in pynvml.nvmlDeviceGetComputeRunningProcesses(h)], [10, 20]),
    (lambda gpu: None, pynvml.nvmlDeviceGetComputeRunningProcesses, []),
]


@pytest.mark.parametrize(("change", "read", "value"), READINGS)
def test_every_reading_follows_the_value_at_once(
        driver: SimulatedDriver, change: Callable[[SimulatedGpu], None], read: Callable[[Any], Any], value: Any,
) -> None:
    """A value that is set on the GPU is what pynvml's own function returns next, on that GPU only."""
    before = read(handle(0))
    change(driver.gpus[2])
    assert read(handle(2)) == value
    assert read(handle(0)) == before


def test_versioned_structs_must_carry_their_version_and_come_by_reference(driver: SimulatedDriver) -> None:
    """As in nvml.h: another version is refused, and what is no pointer cannot be filled."""
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetSramEccErrorStatus(handle(0), status)
    driver.gpus[0].sram_threshold = True
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle(0), ctypes.byref(status))
    assert status.bThresholdExceeded == 1
    status.version = 0x2000068
    with pytest.raises(pynvml.NVMLError_ArgumentVersionMismatch):
        pynvml.nvmlDeviceGetSramEccErrorStatus(handle(0), ctypes.byref(status))


def test_both_versions_of_the_fabric_info(driver: SimulatedDriver) -> None:
    """Version 2 and 3 are filled, each as far as it reaches."""
    for info in (pynvml.c_nvmlGpuFabricInfo_v2_t(), pynvml.c_nvmlGpuFabricInfo_v3_t()):
        pynvml.nvmlDeviceGetGpuFabricInfoV(handle(0), ctypes.byref(info))
        assert info.state == pynvml.NVML_GPU_FABRIC_STATE_COMPLETED
        assert bytes(info.clusterUuid) == driver.gpus[0].fabric.cluster  # type: ignore[union-attr]


@pytest.mark.parametrize("code", CODES)
def test_every_return_code_becomes_its_error(driver: SimulatedDriver, code: int) -> None:
    """A code set for one call of one GPU is raised as pynvml's class for it, there and nowhere else."""
    driver.gpus[2].fail("nvmlDeviceGetTemperature", code)
    with pytest.raises(pynvml.nvmlExceptionClass(code)):
        temperature(2)
    assert temperature(1) == 35
    assert pynvml.nvmlDeviceGetPowerUsage(handle(2)) == 70_000
    driver.gpus[2].heal("nvmlDeviceGetTemperature")
    assert temperature(2) == 35


def test_a_lost_gpu_gives_no_handle_and_the_others_answer(driver: SimulatedDriver) -> None:
    """C19a and b: the code is free, the handle fails too, the count stays."""
    held = handle(3)
    driver.gpus[3].lose(pynvml.NVML_ERROR_UNKNOWN)
    with pytest.raises(pynvml.NVMLError_Unknown):
        handle(3)
    with pytest.raises(pynvml.NVMLError_Unknown):
        pynvml.nvmlDeviceGetName(held)
    assert pynvml.nvmlDeviceGetCount() == 4
    assert [temperature(index) for index in range(3)] == [35, 35, 35]


def test_unknown_function_and_missing_function_are_not_found(driver: SimulatedDriver) -> None:
    """What the library does not have is an AttributeError to pynvml; what an older one lacks is not found either."""
    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        pynvml.nvmlDeviceGetVirtualizationMode(handle(0))
    pynvml.nvmlDeviceGetTemperatureV(handle(0), 0)
    driver.missing = frozenset({"nvmlDeviceGetTemperatureV", "nvmlDeviceGetFanSpeed"})
    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        pynvml.nvmlDeviceGetTemperatureV(handle(0), 0)


def test_not_supported_is_a_code_of_its_own(driver: SimulatedDriver) -> None:
    """C22: on a card for desktops the missing features say so, and name comes as bytes."""
    with SimulatedDriver([SimulatedGpu.consumer()]):
        pynvml.nvmlInit()
        for call in (pynvml.nvmlDeviceGetEccMode, pynvml.nvmlDeviceGetRemappedRows, pynvml.nvmlDeviceGetMigMode,
                     pynvml.nvmlDeviceGetRetiredPagesPendingStatus,
                     lambda h: pynvml.nvmlDeviceGetNvLinkState(h, 0)):
            with pytest.raises(pynvml.NVMLError_NotSupported):
                call(handle(0))
        assert temperature(0) == 35
    assert pynvml.nvmlDeviceGetCount() == 4  # the driver installed before is back


@pytest.mark.parametrize("code", [
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    pynvml.NVML_ERROR_UNKNOWN])
def test_opening_fails_as_told(code: int) -> None:
    """C25: whatever the driver says at opening; nothing is open then."""
    with SimulatedDriver(1) as driver:
        driver.fail("nvmlInit", code)
        with pytest.raises(pynvml.nvmlExceptionClass(code)):
            pynvml.nvmlInit()
        with pytest.raises(pynvml.NVMLError_Uninitialized):
            pynvml.nvmlDeviceGetCount()
        driver.heal("nvmlInit")
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetCount() == 1


def test_a_reloaded_driver_knows_no_old_handle(driver: SimulatedDriver) -> None:
    """After a reload every call is uninitialized until NVML is opened again; old handles stay invalid."""
    old = handle(0)
    driver.gpus[0].ecc.corrected_volatile = 4  # type: ignore[union-attr]
    assert driver.reload("590.1") == pynvml.NVML_SUCCESS
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetName(old)
    pynvml.nvmlInit()
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetName(old)
    assert pynvml.nvmlSystemGetDriverVersion() == "590.1"
    assert pynvml.nvmlDeviceGetTotalEccErrors(handle(0), 0, 0) == 0


def test_an_open_client_keeps_the_driver_in_use(driver: SimulatedDriver) -> None:
    """Reset and unload are refused while anybody has it open, ours or another's."""
    gpu = driver.gpus[1]
    gpu.recovery_action, gpu.remap.pending = 1, 1  # type: ignore[union-attr]
    gpu.fail("nvmlDeviceGetTemperature", pynvml.NVML_ERROR_RESET_REQUIRED)
    assert driver.reset_gpu(gpu) == driver.unload() == pynvml.NVML_ERROR_IN_USE
    pynvml.nvmlShutdown()
    driver.other_clients = 1
    assert driver.reset_gpu(gpu) == pynvml.NVML_ERROR_IN_USE
    driver.other_clients = 0
    assert driver.reset_gpu(gpu) == pynvml.NVML_SUCCESS
    pynvml.nvmlInit()
    assert temperature(1) == 35
    assert pynvml.nvmlDeviceGetRemappedRows(handle(1)) == (0, 1, 0, 0)
    assert gpu.recovery_action == 0


def test_a_removed_gpu_frees_its_index(driver: SimulatedDriver) -> None:
    """C21: lost while NVML is open, gone and the next one in its place after it is opened again."""
    held = handle(1)
    driver.remove(driver.gpus[1])
    assert pynvml.nvmlDeviceGetCount() == 4
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetName(held)
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 3
    assert pynvml.nvmlDeviceGetUUID(handle(1)) == driver.gpus[2].uuid
    driver.remove(driver.gpus[0], at_once=True)
    assert pynvml.nvmlDeviceGetCount() == 2
    driver.insert(driver.gpus[1])
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert [pynvml.nvmlDeviceGetUUID(handle(index)) for index in range(3)] == [
        gpu.uuid for gpu in driver.gpus[1:]]


def test_mig_instances_hang_below_their_gpu(driver: SimulatedDriver) -> None:
    """A MIG handle names its instances and has its own UUID."""
    driver.gpus[0].mig = [MigInstance(5, 0, "MIG-aaaa")]
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(handle(0)) == 1
    instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(0), 0)
    assert pynvml.nvmlDeviceGetUUID(instance) == "MIG-aaaa"
    assert (pynvml.nvmlDeviceGetGpuInstanceId(instance), pynvml.nvmlDeviceGetComputeInstanceId(instance)) == (5, 0)
    assert pynvml.nvmlDeviceIsMigDeviceHandle(instance).value == 1
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(0), 1)


def test_calls_are_counted_by_function(driver: SimulatedDriver) -> None:
    """Each call counts once under its C name, failed ones too."""
    held = handle(0)
    driver.calls.clear()
    driver.gpus[0].lose()
    for _ in range(2):
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlDeviceGetPowerUsage(held)
    assert driver.calls == {"nvmlDeviceGetPowerUsage": 2}


def test_calls_are_told_and_their_cpu_time_is_noted(driver: SimulatedDriver) -> None:
    """For measuring a client: who called, on its own thread, and how much of the process was the simulator."""
    held, before = handle(0), driver.cpu_seconds
    told: list[str] = []
    driver.on_call = told.append
    for _ in range(100):
        pynvml.nvmlDeviceGetPowerUsage(held)
    assert told == ["nvmlDeviceGetPowerUsage"] * 100
    assert driver.cpu_seconds > before
