"""A simulated GPU: every value that NVML can be asked for, to be set at any time."""

import uuid as uuids
from dataclasses import dataclass, field
from typing import Any, Self

import pynvml

from nodeguard.sim.driver.faults import Faults

NO_INSTANCE = 0xFFFFFFFF
"""NVML's number where no MIG instance is concerned."""

_GIB = 1 << 30

EVENT_TYPES = (
    pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
    | pynvml.nvmlEventTypeSingleBitEccError | pynvml.nvmlEventTypeGpuUnavailableError
    | pynvml.nvmlEventTypeGpuRecoveryAction)


@dataclass(slots=True)
class Link:
    """One NVLink."""

    active: bool = True
    replay: int = 0
    recovery: int = 0
    crc: int = 0


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A compute instance in a GPU instance."""

    gpu_instance: int
    compute_instance: int
    uuid: str


@dataclass(frozen=True, slots=True)
class FieldFault:
    """What a field answers instead of its value."""

    code: int = pynvml.NVML_SUCCESS
    """The field's own nvmlReturn."""
    value: float = 0
    value_type: int | None = None
    """None: the type that the field has."""


@dataclass(slots=True)
class Ecc:
    """ECC counters by (uncorrected, aggregate)."""

    corrected_volatile: int = 0
    uncorrected_volatile: int = 0
    corrected_aggregate: int = 0
    uncorrected_aggregate: int = 0


@dataclass(slots=True)
class Remap:
    """The row remapper."""

    corrected: int = 0
    uncorrected: int = 0
    pending: int = 0
    failed: int = 0


@dataclass(slots=True)
class Retired:
    """Retired pages, as GPUs before the row remapper have them."""

    single_bit: int = 0
    double_bit: int = 0
    pending: int = 0


@dataclass(slots=True)
class Fabric:
    """Registration with the NVLink fabric."""

    state: int = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED
    status: int = pynvml.NVML_SUCCESS
    health_mask: int = 0x1AA
    """Every 2-bit part explicitly healthy, configuration correct."""
    clique: int = 1
    cluster: bytes = bytes(range(16))


@dataclass(slots=True)
class Pcie:
    """The PCIe link."""

    generation: int = 5
    generation_max: int = 5
    width: int = 16
    width_max: int = 16
    replays: int = 0


def _thresholds() -> dict[int, int]:
    return {
        pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN: 94, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN: 89,
        pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX: 95, pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX: 87}


def _violations() -> dict[int, int]:
    return dict.fromkeys(range(pynvml.NVML_PERF_POLICY_RELIABILITY + 1), 0)


@dataclass(eq=False)
class SimulatedGpu(Faults):
    """An H100-like GPU at rest. A value of None is "not supported"; the rest of nvml.h's units are kept."""

    pci: str = "0000:1b:00.0"
    uuid: str = ""
    name: str | bytes = "NVIDIA H100 80GB HBM3"
    temperature: int | None = 35
    memory_temperature: int | None = 42
    thresholds: dict[int, int] = field(default_factory=_thresholds)
    power_milliwatts: int | None = 70_000
    power_limit_milliwatts: int | None = 700_000
    utilization_percent: int | None = 0
    memory_total: int = 80 * _GIB
    memory_used: int = 0
    ecc_mode: int | None = 1
    ecc: Ecc | None = field(default_factory=Ecc)
    remap: Remap | None = field(default_factory=Remap)
    retired: Retired | None = None
    sram_threshold: bool | None = False
    clock_events: int | None = pynvml.nvmlClocksEventReasonGpuIdle
    violations_ns: dict[int, int] = field(default_factory=_violations)
    pcie: Pcie | None = field(default_factory=Pcie)
    links: list[Link] = field(default_factory=lambda: [Link() for _ in range(18)])
    fabric: Fabric | None = field(default_factory=Fabric)
    recovery_action: int | None = 0
    persistence: int | None = 1
    mig_mode: int | None = 0
    mig: list[MigInstance] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    placed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Process → GPU instance and compute instance that it runs in, where NVML is to tell."""
    event_types: int = EVENT_TYPES
    field_faults: dict[tuple[int, int | None], FieldFault] = field(default_factory=dict)
    """By (field, scope), scope None: whatever the scope."""
    numa_node: int = 0
    driver_name: str = "nvidia"
    """The kernel driver it is bound to, as sysfs shows it; ``vfio-pci`` when it is passed to a guest."""

    def __post_init__(self) -> None:
        super().__init__()
        self.uuid = self.uuid or f"GPU-{uuids.uuid5(uuids.NAMESPACE_DNS, self.pci)}"

    @classmethod
    def consumer(cls, **values: Any) -> Self:
        """A card for desktops: no ECC, no remapping, no NVLink, no recovery action, no memory temperature."""
        nothing: dict[str, Any] = dict.fromkeys((
            "ecc", "ecc_mode", "remap", "retired", "sram_threshold", "fabric", "recovery_action", "mig_mode",
            "memory_temperature"))
        return cls(**{"name": b"NVIDIA GeForce RTX 4090", "links": [], "event_types": 0, **nothing, **values})

    def fail_field(self, number: int, code: int = pynvml.NVML_SUCCESS, *, scope: int | None = None,
                   value: float = 0, value_type: int | None = None) -> None:
        """From now on the field answers with this code of its own, or with this value and type."""
        self.field_faults = {**self.field_faults, (number, scope): FieldFault(code, value, value_type)}

    def heal_field(self, number: int, scope: int | None = None) -> None:
        """The field answers with its value again."""
        self.field_faults = {key: fault for key, fault in self.field_faults.items() if key != (number, scope)}

    def reset(self) -> None:
        """What a reset of the GPU does: pending work is done, what lasts until a reset ends, injected hangs too."""
        self.recovery_action = None if self.recovery_action is None else 0
        if self.remap is not None:
            self.remap.uncorrected += self.remap.pending
            self.remap.pending = 0
        if self.retired is not None:
            self.retired.pending = 0
        self.release_all()
        self.forget(pynvml.NVML_ERROR_RESET_REQUIRED)
        self.driver_loaded()

    def driver_loaded(self) -> None:
        """Counters that live in the driver start again."""
        if self.ecc is not None:
            self.ecc.corrected_volatile = self.ecc.uncorrected_volatile = 0
        self.violations_ns = dict.fromkeys(self.violations_ns, 0)
        if self.pcie is not None:
            self.pcie.replays = 0
