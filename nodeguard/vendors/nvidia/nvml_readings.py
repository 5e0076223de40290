"""What is read from one GPU, in two tiers, as samples. Pure but for what it asks through :class:`Ask`.

The fast tier is what a fault shows in within a second and the companions that rules need beside it; the slow tier is
what changes rarely or costs the driver a lock. To read one more field: one row in the tier's table.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from nodeguard.model.device import Device
from nodeguard.model.sample import Sample, Value
from nodeguard.vendors.nvidia import nvml_values as values
from nodeguard.vendors.nvidia.nvml_values import Field, FieldSignal, known

_DIE = 0
_MILLI = 1e-3
_NANO = 1e-9
_LINK_LIMIT = 36
"""Links that nvml.h has room for (NVML_NVLINK_MAX_LINKS)."""


class Ask(Protocol):
    """Questions to one GPU. Without a known answer they give None; a lost GPU ends the whole reading."""

    @property
    def device(self) -> Device:
        """The GPU that is asked."""
        ...

    def call(self, function: str, *arguments: int) -> Any:
        """What pynvml's ``function`` returns for this GPU."""
        ...

    def struct(self, function: str, struct: str) -> Any:
        """The versioned struct of pynvml called ``struct``, filled by ``function``."""
        ...

    def fields(self, wanted: list[Field]) -> dict[Field, float]:
        """The known values of these fields, in one call."""
        ...

    def refused(self, function: str, *arguments: int) -> bool:
        """Whether the driver said that it does not support this question."""
        ...

    def field_refused(self, number: int, scope: int = 0) -> bool:
        """The same for a field."""
        ...


FAST_FIELDS = (
    FieldSignal("gpu_memory_temperature_celsius", (82,)),
    FieldSignal("gpu_power_watts", (186,), _MILLI, instead="nvmlDeviceGetPowerUsage"),
    FieldSignal("gpu_recovery_action", (230,)),
)

SLOW_FIELDS = (
    FieldSignal("gpu_ecc_corrected_volatile_total", (3,)),
    FieldSignal("gpu_ecc_uncorrected_volatile_total", (4,)),
    FieldSignal("gpu_ecc_corrected_aggregate_total", (5,)),
    FieldSignal("gpu_ecc_uncorrected_aggregate_total", (6,)),
    FieldSignal("gpu_retired_pages_total", (29, 30)),
    FieldSignal("gpu_retired_pages_pending", (31,)),
    FieldSignal("gpu_row_remap_corrected_total", (142,)),
    FieldSignal("gpu_row_remap_uncorrected_total", (143,)),
    FieldSignal("gpu_row_remap_pending", (144,)),
    FieldSignal("gpu_row_remap_failed", (145,)),
    FieldSignal("gpu_power_limit_watts", (190,), _MILLI, instead="nvmlDeviceGetEnforcedPowerLimit"),
    FieldSignal("pcie_replay_total", (94,), instead="nvmlDeviceGetPcieReplayCounter"),
)

SLOW_CALLS: tuple[tuple[Any, ...], ...] = (
    ("gpu_temperature_shutdown_celsius", "nvmlDeviceGetTemperatureThreshold", 0),
    ("gpu_temperature_slowdown_celsius", "nvmlDeviceGetTemperatureThreshold", 1),
    ("gpu_memory_temperature_max_celsius", "nvmlDeviceGetTemperatureThreshold", 2),
    ("gpu_temperature_max_celsius", "nvmlDeviceGetTemperatureThreshold", 3),
    ("pcie_link_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    ("pcie_link_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    ("pcie_link_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    ("pcie_link_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
)
"""Signal, pynvml's function, its arguments after the handle."""


VIOLATIONS = {"power": 0, "thermal": 1, "board_limit": 3, "reliability": 5}
"""nvmlPerfPolicyType_t. Asked by nvmlDeviceGetViolationStatus, whose unit nvml.h states (nanoseconds); for the fields
74 to 79, which are about the same policies, it states none."""


def fast(ask: Ask) -> Iterator[Sample]:
    """Every second: temperature, power, recovery action, clock events, utilisation."""
    yield from _fields(ask, FAST_FIELDS, ask.fields(_wanted(FAST_FIELDS)))
    yield _one(ask, "gpu_temperature_celsius", _temperature(ask))
    yield from _clock_events(ask)
    yield _utilization(ask)


def slow(ask: Ask) -> Iterator[Sample]:
    """Every half minute: limits, memory errors, PCIe, NVLink, fabric, memory in use.

    The PCIe link is read together with the utilisation, because an idle GPU lowers its generation.
    """
    found = ask.fields([*_wanted(SLOW_FIELDS), (values.NVLINK_COUNT, 0)])
    yield from _fields(ask, SLOW_FIELDS, found)
    yield _utilization(ask)
    for signal, function, *arguments in SLOW_CALLS:
        yield _one(ask, signal, ask.call(function, *arguments))
    yield from _violations(ask)
    yield _sram(ask)
    yield from _memory(ask)
    yield from _fabric(ask)
    yield from _nvlinks(ask, int(found.get((values.NVLINK_COUNT, 0), 0)))


def _one(ask: Ask, signal: str, value: Value | None, **labels: str) -> Sample:
    return Sample(signal, ask.device, value, tuple(labels.items()))


def _wanted(table: tuple[FieldSignal, ...]) -> list[Field]:
    return [(number, 0) for row in table for number in row.fields]


def _fields(ask: Ask, table: tuple[FieldSignal, ...], found: Mapping[Field, float]) -> Iterator[Sample]:
    for row in table:
        parts = [found.get((number, 0)) for number in row.fields]
        value = None if None in parts else sum(part for part in parts if part is not None)
        if value is None and row.instead and ask.field_refused(row.fields[0]):
            value = ask.call(row.instead)
        yield _one(ask, row.signal, value * row.scale if value is not None and row.scale != 1 else value)


def _temperature(ask: Ask) -> float | None:
    modern = "nvmlDeviceGetTemperatureV"
    value: float | None = ask.call(modern, _DIE)
    if value is None and ask.refused(modern, _DIE):  # an older driver
        value = ask.call("nvmlDeviceGetTemperature", _DIE)
    return value


def _clock_events(ask: Ask) -> Iterator[Sample]:
    modern = "nvmlDeviceGetCurrentClocksEventReasons"
    mask = ask.call(modern)
    if mask is None and ask.refused(modern):  # called "throttle reasons" before driver 535
        mask = ask.call("nvmlDeviceGetCurrentClocksThrottleReasons")
    for name, bit in values.CLOCK_EVENTS.items():
        yield _one(ask, f"gpu_clock_event_{name}", None if mask is None else int(bool(mask & bit)))


def _utilization(ask: Ask) -> Sample:
    rates = ask.call("nvmlDeviceGetUtilizationRates")
    return _one(ask, "gpu_utilization_ratio", None if rates is None else rates.gpu / 100)


def _violations(ask: Ask) -> Iterator[Sample]:
    for policy, number in VIOLATIONS.items():
        status = ask.call("nvmlDeviceGetViolationStatus", number)
        held = None if status is None else known(status.violationTime)
        yield _one(ask, f"gpu_clock_violation_{policy}_seconds_total", None if held is None else held * _NANO)


def _sram(ask: Ask) -> Sample:
    status = ask.struct("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t")
    return _one(ask, "gpu_sram_threshold_exceeded", None if status is None else int(bool(status.bThresholdExceeded)))


def _memory(ask: Ask) -> Iterator[Sample]:
    memory = ask.call("nvmlDeviceGetMemoryInfo")
    yield _one(ask, "gpu_memory_used_bytes", None if memory is None else known(memory.used))
    yield _one(ask, "gpu_memory_total_bytes", None if memory is None else known(memory.total))


def _fabric(ask: Ask) -> Iterator[Sample]:
    info = ask.struct("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t")
    state = None if info is None else values.fabric_state(info.state, info.status, info.healthMask)
    yield _one(ask, "gpu_fabric_state", state)
    for part, fault in values.fabric_faults(0 if info is None else info.healthMask).items():
        yield _one(ask, "gpu_fabric_health_fault", fault, part=part)


def _nvlinks(ask: Ask, count: int) -> Iterator[Sample]:
    links = range(min(count, _LINK_LIMIT))
    numbers = (values.NVLINK_STATE, *values.NVLINK_ERRORS.values())
    found = ask.fields([(number, link) for link in links for number in numbers])
    states = {link: _link_state(ask, link, found) for link in links}
    if None not in states.values():
        yield _one(ask, "gpu_nvlinks_active", sum(state == "active" for state in states.values()))
    for link, state in states.items():
        yield _one(ask, "nvlink_state", state, link=str(link))
        for error, number in values.NVLINK_ERRORS.items():
            yield _one(ask, f"nvlink_{error}_errors_total", found.get((number, link)), link=str(link))


def _link_state(ask: Ask, link: int, found: Mapping[Field, float]) -> str | None:
    active = found.get((values.NVLINK_STATE, link))
    if active is None and ask.field_refused(values.NVLINK_STATE, link):
        active = ask.call("nvmlDeviceGetNvLinkState", link)
    return None if active is None else ("active" if active else "inactive")
