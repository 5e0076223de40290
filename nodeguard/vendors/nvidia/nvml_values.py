"""What NVML's numbers mean: field values, blanks, masks and states. Pure.

Field identifiers and value types are those of nvml.h. The identifiers 251 to 273 are not used: they were renumbered
between CUDA 13.0 and 13.0 Update 1, so their meaning depends on the driver.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

Field = tuple[int, int]
"""A field's identifier and its scope (a link's number; 0 where it has none)."""

_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of the value union by value type, as nvmlValueType_t counts them."""

_BLANK_DOUBLE = 140737488355328.0
_BLANKS = (range(0x7FFFFFF0, 0x80000000), range(0x7FFFFFFFFFFFFFF0, 0x8000000000000001))
_NOT_AVAILABLE = frozenset({(1 << 32) - 1, (1 << 64) - 1})


def known(value: float) -> float | None:
    """The value, or None if it stands for "no value".

    Those are NVML_VALUE_NOT_AVAILABLE (all bits set), the blank values of DCGM's tools (2^31-16 and up to 2^31-1,
    the same of 2^63, 2^47 and up as a double), bit 63 alone, and what is no finite number.
    """
    if isinstance(value, int):
        return None if value in _NOT_AVAILABLE or any(value in blanks for blanks in _BLANKS) else value
    return value if -_BLANK_DOUBLE < value < _BLANK_DOUBLE else None


def field_value(value_type: int, union: Any) -> float | None:
    """The member of a field's value union that its type names; None for a blank or a type not known here."""
    if not 0 <= value_type < len(_MEMBERS):
        return None
    return known(getattr(union, _MEMBERS[value_type]))


@dataclass(frozen=True, slots=True)
class FieldSignal:
    """A signal that fields carry; several fields are added up."""

    signal: str
    fields: tuple[int, ...]
    scale: float = 1
    """From the field's unit to the signal's."""
    instead: str = ""
    """pynvml's function that gives the same in the same unit, where the driver does not know the field."""


CLOCK_EVENTS: Mapping[str, int] = MappingProxyType({
    "idle": 0x1, "sw_power_cap": 0x4, "hw_slowdown": 0x8, "sw_thermal": 0x20, "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
})
"""Bits of nvmlClocksEventReasons; those that an operator sets (application clocks, sync boost, display) are left."""

NVLINK_COUNT = 91
NVLINK_STATE = 165
NVLINK_ERRORS: Mapping[str, int] = MappingProxyType({"replay": 161, "recovery": 162, "crc": 163})
"""Per link, by scope."""

FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")
"""By nvmlGpuFabricState_t."""

FABRIC_FAULTS: Mapping[str, int] = MappingProxyType({
    "degraded_bandwidth": 0, "route_recovery": 2, "route_unhealthy": 4, "access_timeout_recovery": 6})
"""Sub-fields of the fabric's health mask by shift, 2 bits each: 0 not supported, 1 at fault, 2 explicitly healthy."""

_CONFIGURATION_SHIFT = 8


def fabric_faults(mask: int) -> dict[str, int | None]:
    """Each part of the fabric's health mask: 1 at fault, 0 healthy, None not supported.

    ``incorrect_configuration`` is 4 bits wide: 0 not supported, 1 none, from 2 on the kind of mistake (nvml.h
    NVML_GPU_FABRIC_HEALTH_MASK).
    """
    found = {part: _two_bits(mask >> shift & 0x3) for part, shift in FABRIC_FAULTS.items()}
    configuration = mask >> _CONFIGURATION_SHIFT & 0xF
    found["incorrect_configuration"] = int(configuration > 1) if configuration else None
    return found


def _two_bits(value: int) -> int | None:
    return int(value == 1) if value in {1, 2} else None


def fabric_state(state: int, status: int, mask: int) -> str | None:
    """The fabric's state in our words; None for a number that nvml.h does not know.

    A completed registration whose own status is an error, or whose health mask names a fault, is ``unhealthy``.
    """
    if not 0 <= state < len(FABRIC_STATES):
        return None
    word = FABRIC_STATES[state]
    faulty = status != 0 or any(fabric_faults(mask).values())
    return "unhealthy" if word == "completed" and faulty else word
