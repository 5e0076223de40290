"""Field values: which fields a simulated GPU has, of what type, and how nvmlDeviceGetFieldValues fills them."""

import time
from collections.abc import Callable
from typing import Any

import pynvml

from nodeguard.sim.driver.abi import number, target
from nodeguard.sim.driver.gpu import FieldFault, Link, SimulatedGpu

Getter = Callable[[SimulatedGpu, int], float | None]

_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal", pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal", pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal", pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}
_UINT = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
_ULL = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG


def _of(part: str, name: str) -> Getter:
    def get(gpu: SimulatedGpu, _: int) -> float | None:
        whole: Any = getattr(gpu, part)
        return None if whole is None else getattr(whole, name)
    return get


def _plain(name: str) -> Getter:
    def get(gpu: SimulatedGpu, _: int) -> float | None:
        value: float | None = getattr(gpu, name)
        return value
    return get


def _violation(policy: int) -> Getter:
    return lambda gpu, _: gpu.violations_ns.get(policy)


def _link(name: str) -> Getter:
    def get(gpu: SimulatedGpu, scope: int) -> float | None:
        link: Link | None = gpu.links[scope] if scope < len(gpu.links) else None
        return None if link is None else int(getattr(link, name))
    return get


FIELDS: dict[int, tuple[int, Getter]] = {
    1: (_UINT, _plain("ecc_mode")), 2: (_UINT, _plain("ecc_mode")),
    3: (_ULL, _of("ecc", "corrected_volatile")), 4: (_ULL, _of("ecc", "uncorrected_volatile")),
    5: (_ULL, _of("ecc", "corrected_aggregate")), 6: (_ULL, _of("ecc", "uncorrected_aggregate")),
    29: (_UINT, _of("retired", "single_bit")), 30: (_UINT, _of("retired", "double_bit")),
    31: (_UINT, _of("retired", "pending")),
    **{74 + policy: (_ULL, _violation(policy)) for policy in range(6)},
    82: (_UINT, _plain("memory_temperature")),
    91: (_UINT, lambda gpu, _: len(gpu.links) or None),
    94: (_UINT, _of("pcie", "replays")),
    142: (_UINT, _of("remap", "corrected")), 143: (_UINT, _of("remap", "uncorrected")),
    144: (_UINT, _of("remap", "pending")), 145: (_UINT, _of("remap", "failed")),
    161: (_ULL, _link("replay")), 162: (_ULL, _link("recovery")), 163: (_ULL, _link("crc")),
    165: (_UINT, _link("active")),
    185: (_UINT, _plain("power_milliwatts")), 186: (_UINT, _plain("power_milliwatts")),
    190: (_UINT, _plain("power_limit_milliwatts")),
    230: (_UINT, _plain("recovery_action")),
}


def fill(gpu: SimulatedGpu, count: Any, values: Any, newest: int) -> int:
    """Fill an array of field values; each has a return code of its own. Fields above ``newest`` are not known."""
    for entry in target(values)[: number(count)]:
        entry.timestamp, entry.latencyUsec = int(time.time() * 1e6), 0
        fault = gpu.field_faults.get((entry.fieldId, entry.scopeId)) or gpu.field_faults.get((entry.fieldId, None))
        if fault is not None:
            _broken(entry, fault)
        elif entry.fieldId not in FIELDS or entry.fieldId > newest:
            entry.nvmlReturn = pynvml.NVML_ERROR_INVALID_ARGUMENT
        else:
            _whole(gpu, entry)
    return int(pynvml.NVML_SUCCESS)


def _whole(gpu: SimulatedGpu, entry: Any) -> None:
    value_type, get = FIELDS[entry.fieldId]
    value = get(gpu, entry.scopeId)
    entry.valueType = value_type
    entry.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if value is None else pynvml.NVML_SUCCESS
    if value is not None:
        setattr(entry.value, _MEMBERS[value_type], value)


def _broken(entry: Any, fault: FieldFault) -> None:
    entry.nvmlReturn = fault.code
    default = FIELDS[entry.fieldId][0] if entry.fieldId in FIELDS else _UINT
    entry.valueType = default if fault.value_type is None else fault.value_type
    member = _MEMBERS.get(entry.valueType)
    if member is not None:
        setattr(entry.value, member, fault.value)
