"""NVML's functions on one GPU. Each takes the GPU in place of its handle and returns NVML's code."""

from collections.abc import Callable, Mapping
from typing import Any

import pynvml

from nodeguard.sim.driver.abi import number, put, put_text, set_struct, target
from nodeguard.sim.driver.gpu import NO_INSTANCE, Ecc, SimulatedGpu

Function = Callable[..., int]

_OK = int(pynvml.NVML_SUCCESS)
_NOT_SUPPORTED = int(pynvml.NVML_ERROR_NOT_SUPPORTED)
_INVALID = int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
_SHORT = int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
_UNKNOWN_MEMORY = int(pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value)


def _value(attribute: str, part: str = "") -> Function:
    """A function with one out argument that holds a value of the GPU, or of a part of it."""
    def get(gpu: SimulatedGpu, out: Any) -> int:
        owner = getattr(gpu, part) if part else gpu
        return put(out, None if owner is None else getattr(owner, attribute))
    return get



def _name(gpu: SimulatedGpu, buffer: Any, length: Any) -> int:
    return put_text(buffer, length, gpu.name)


def _pci_info(gpu: SimulatedGpu, info: Any) -> int:
    domain, bus, rest = gpu.pci.split(":")
    numbers = int(domain, 16), int(bus, 16), int(rest.partition(".")[0], 16)
    return set_struct(
        info, domain=numbers[0], bus=numbers[1], device=numbers[2], pciDeviceId=0x233010DE,
        pciSubSystemId=0x16C110DE, busId=pynvml.NVML_DEVICE_PCI_BUS_ID_FMT % numbers,
        busIdLegacy=pynvml.NVML_DEVICE_PCI_BUS_ID_LEGACY_FMT % numbers)


def _temperature(gpu: SimulatedGpu, sensor: Any, out: Any) -> int:
    return put(out, gpu.temperature) if number(sensor) == pynvml.NVML_TEMPERATURE_GPU else _INVALID


def _temperature_versioned(gpu: SimulatedGpu, struct: Any) -> int:
    if gpu.temperature is None:
        return _NOT_SUPPORTED
    return set_struct(struct, pynvml.nvmlTemperature_v1, temperature=gpu.temperature)


def _threshold(gpu: SimulatedGpu, which: Any, out: Any) -> int:
    return put(out, gpu.thresholds.get(number(which)))


def _utilization(gpu: SimulatedGpu, rates: Any) -> int:
    if gpu.utilization_percent is None:
        return _NOT_SUPPORTED
    return set_struct(rates, gpu=gpu.utilization_percent, memory=0)


def _memory(gpu: SimulatedGpu, memory: Any) -> int:
    return set_struct(memory, total=gpu.memory_total, used=gpu.memory_used, free=gpu.memory_total - gpu.memory_used)


def _memory_v2(gpu: SimulatedGpu, memory: Any) -> int:
    return set_struct(memory, pynvml.nvmlMemory_v2, total=gpu.memory_total, used=gpu.memory_used, reserved=0,
                      free=gpu.memory_total - gpu.memory_used)


def _ecc_mode(gpu: SimulatedGpu, current: Any, pending: Any) -> int:
    return put(current, gpu.ecc_mode) or put(pending, gpu.ecc_mode)


def _ecc(ecc: Ecc, error: int, counter: int) -> int:
    names = ("corrected_volatile", "corrected_aggregate", "uncorrected_volatile", "uncorrected_aggregate")
    return int(getattr(ecc, names[2 * error + counter]))


def _total_ecc(gpu: SimulatedGpu, error: Any, counter: Any, out: Any) -> int:
    return put(out, None if gpu.ecc is None else _ecc(gpu.ecc, number(error), number(counter)))


def _remapped(gpu: SimulatedGpu, corrected: Any, uncorrected: Any, pending: Any, failed: Any) -> int:
    if gpu.remap is None:
        return _NOT_SUPPORTED
    return (put(corrected, gpu.remap.corrected) or put(uncorrected, gpu.remap.uncorrected)
            or put(pending, gpu.remap.pending) or put(failed, gpu.remap.failed))


def _sram(gpu: SimulatedGpu, status: Any) -> int:
    if gpu.sram_threshold is None:
        return _NOT_SUPPORTED
    return set_struct(status, pynvml.nvmlEccSramErrorStatus_v1, bThresholdExceeded=int(gpu.sram_threshold))


def _violation(gpu: SimulatedGpu, policy: Any, out: Any) -> int:
    time = gpu.violations_ns.get(number(policy))
    return _NOT_SUPPORTED if time is None else set_struct(out, referenceTime=0, violationTime=time)


def _link_state(gpu: SimulatedGpu, link: Any, out: Any) -> int:
    if not gpu.links:
        return _NOT_SUPPORTED
    return put(out, int(gpu.links[number(link)].active)) if number(link) < len(gpu.links) else _INVALID


def _link_errors(gpu: SimulatedGpu, link: Any, counter: Any, out: Any) -> int:
    if not gpu.links:
        return _NOT_SUPPORTED
    name = {0: "replay", 1: "recovery", 2: "crc"}.get(number(counter))
    if name is None or number(link) >= len(gpu.links):
        return _INVALID
    return put(out, getattr(gpu.links[number(link)], name))


def _fabric(gpu: SimulatedGpu, info: Any) -> int:
    if gpu.fabric is None:
        return _NOT_SUPPORTED
    code = set_struct(
        info, pynvml.nvmlGpuFabricInfo_v2, pynvml.nvmlGpuFabricInfo_v3, state=gpu.fabric.state,
        status=gpu.fabric.status, cliqueId=gpu.fabric.clique, healthMask=gpu.fabric.health_mask)
    if code == _OK:
        target(info).clusterUuid[:] = gpu.fabric.cluster
    return code


def _mig_mode(gpu: SimulatedGpu, current: Any, pending: Any) -> int:
    return put(current, gpu.mig_mode) or put(pending, gpu.mig_mode)


def _processes(gpu: SimulatedGpu, count: Any, infos: Any) -> int:
    room, running = target(count).value, list(gpu.processes)
    target(count).value = len(running)
    if infos is None or room < len(running):
        return _SHORT if running else _OK
    for info, pid in zip(infos, running, strict=False):
        info.pid, info.usedGpuMemory = pid, _UNKNOWN_MEMORY
        info.gpuInstanceId, info.computeInstanceId = gpu.placed.get(pid, (NO_INSTANCE, NO_INSTANCE))
    return _OK


FUNCTIONS: Mapping[str, Function] = {
    "nvmlDeviceGetName": _name,
    "nvmlDeviceGetPciInfo_v3": _pci_info,
    "nvmlDeviceGetPersistenceMode": _value("persistence"),
    "nvmlDeviceGetTemperature": _temperature,
    "nvmlDeviceGetTemperatureV": _temperature_versioned,
    "nvmlDeviceGetTemperatureThreshold": _threshold,
    "nvmlDeviceGetPowerUsage": _value("power_milliwatts"),
    "nvmlDeviceGetPowerManagementLimit": _value("power_limit_milliwatts"),
    "nvmlDeviceGetEnforcedPowerLimit": _value("power_limit_milliwatts"),
    "nvmlDeviceGetUtilizationRates": _utilization,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetMemoryInfo_v2": _memory_v2,
    "nvmlDeviceGetEccMode": _ecc_mode,
    "nvmlDeviceGetTotalEccErrors": _total_ecc,
    "nvmlDeviceGetRemappedRows": _remapped,
    "nvmlDeviceGetRetiredPagesPendingStatus": _value("pending", "retired"),
    "nvmlDeviceGetSramEccErrorStatus": _sram,
    "nvmlDeviceGetCurrentClocksEventReasons": _value("clock_events"),
    "nvmlDeviceGetCurrentClocksThrottleReasons": _value("clock_events"),
    "nvmlDeviceGetViolationStatus": _violation,
    "nvmlDeviceGetCurrPcieLinkGeneration": _value("generation", "pcie"),
    "nvmlDeviceGetMaxPcieLinkGeneration": _value("generation_max", "pcie"),
    "nvmlDeviceGetCurrPcieLinkWidth": _value("width", "pcie"),
    "nvmlDeviceGetMaxPcieLinkWidth": _value("width_max", "pcie"),
    "nvmlDeviceGetPcieReplayCounter": _value("replays", "pcie"),
    "nvmlDeviceGetNvLinkState": _link_state,
    "nvmlDeviceGetNvLinkErrorCounter": _link_errors,
    "nvmlDeviceGetGpuFabricInfoV": _fabric,
    "nvmlDeviceGetMigMode": _mig_mode,
    "nvmlDeviceGetSupportedEventTypes": _value("event_types"),
    "nvmlDeviceGetComputeRunningProcesses_v3": _processes,
}
