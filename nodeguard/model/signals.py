"""The catalogue of signals: every kind of measurement that rules, recordings and metrics speak of.

Names follow the Prometheus conventions; the same name is the rule's word, the recording's key and, with the
prefix ``nodeguard_``, the exported metric. To add a signal: one row here, and the source that reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Kind = Literal["gauge", "counter", "state", "event"]

XID_ATTRIBUTES = (
    "code", "class", "pid", "process", "pod", "gpu_instance", "compute_instance", "caused_by", "reset_required",
    "unit", "word", "injected", "link", "subcode", "resolution",
)
SXID_ATTRIBUTES = ("code", "word", "link", "switch")


@dataclass(frozen=True, slots=True)
class Signal:
    """One row of the catalogue."""

    name: str
    kind: Kind
    devices: tuple[str, ...]
    """Kinds of device that carry it."""
    sources: tuple[str, ...]
    """Sources that can read it; an event rule is judged once one of them is up and caught up."""
    help: str
    attributes: tuple[str, ...] = ()
    """Names that ``match``, ``distinct`` and ``same`` may use."""
    states: tuple[str, ...] = ()
    """Words of a state signal; empty: numbers."""
    bits: int | None = None
    """Width of a hardware counter that stops at its maximum: there its value is unknown."""
    lifetime: bool = False
    """The device itself keeps the counter over reboots, so its baseline and windows outlive them too."""
    steady: bool = False
    """Told only when it changes and true until then: time alone lets ``for`` and ``after`` pass."""

    @property
    def saturates_at(self) -> int | None:
        """The value at which the counter stops counting, or None."""
        return None if self.bits is None else (1 << self.bits) - 1


_NVML = ("nvml", "exporter")
_GPU = ("gpu",)
_PORT = ("rdma_port",)
_PCI_DEVICES = ("gpu", "pcie", "nvswitch")


def _gpu(name: str, kind: Kind, text: str, *, states: tuple[str, ...] = (), labels: tuple[str, ...] = ()) -> Signal:
    return Signal(name, kind, _GPU, _NVML, text, attributes=labels, states=states)


def _lifetime(name: str, text: str) -> Signal:
    return Signal(name, "counter", _GPU, _NVML, text, lifetime=True)


def _port_counter(file: str, bits: int | None, text: str) -> Signal:
    return Signal(f"rdma_{file}_total", "counter", _PORT, ("rdma",), text, bits=bits)


_EVENTS = (
    Signal("gpu_xid", "event", ("gpu", "node"), ("kmsg", "nvml_events", "exporter"),
           "The NVIDIA driver reported an Xid error.", XID_ATTRIBUTES),
    Signal("gpu_sxid", "event", ("nvswitch", "node"), ("kmsg",),
           "The NVSwitch driver reported an SXid error.", SXID_ATTRIBUTES),
    Signal("gpu_lost", "event", ("gpu", "node"), ("kmsg", "nvml", "nvml_events"),
           "The GPU no longer answers on its bus.", ("cause", "code")),
    Signal("gpu_driver_message", "event", ("gpu", "node"), ("kmsg",),
           "The NVIDIA driver printed a known line that carries no Xid number.", ("kind", "index")),
    Signal("gpu_ecc_double_bit_event", "event", _GPU, ("nvml_events",), "NVML reported a double bit error.", ()),
    Signal("gpu_unavailable_event", "event", _GPU, ("nvml_events",), "NVML reported the GPU as unavailable.", ()),
    Signal("kmsg_gap", "event", ("node",), ("kmsg",),
           "Kernel log records were overwritten before they could be read.", ("lost",)),
)

_GPU_LEVELS = (
    _gpu("gpu_temperature_celsius", "gauge", "Temperature of the GPU die."),
    _gpu("gpu_memory_temperature_celsius", "gauge", "Temperature of the GPU memory."),
    _gpu("gpu_temperature_slowdown_celsius", "gauge", "Die temperature at which this GPU slows itself down."),
    _gpu("gpu_temperature_shutdown_celsius", "gauge", "Die temperature at which this GPU shuts down."),
    _gpu("gpu_temperature_max_celsius", "gauge", "Highest die temperature of normal work."),
    _gpu("gpu_memory_temperature_max_celsius", "gauge", "Highest memory temperature of normal work."),
    _gpu("gpu_power_watts", "gauge", "Power drawn."),
    _gpu("gpu_power_limit_watts", "gauge", "Power limit in force."),
    _gpu("gpu_utilization_ratio", "gauge", "Share of time a kernel was running, 0 to 1."),
    _gpu("gpu_memory_used_bytes", "gauge", "Device memory in use."),
    _gpu("gpu_memory_total_bytes", "gauge", "Device memory in all."),
    _gpu("gpu_ecc_corrected_volatile_total", "counter", "ECC errors corrected since the driver was loaded."),
    _gpu("gpu_ecc_uncorrected_volatile_total", "counter", "ECC errors not corrected since the driver was loaded."),
    _lifetime("gpu_ecc_corrected_aggregate_total", "ECC errors corrected in the GPU's life."),
    _lifetime("gpu_ecc_uncorrected_aggregate_total", "ECC errors not corrected in the GPU's life."),
    _gpu("gpu_sram_threshold_exceeded", "state", "The vendor's own limit of SRAM errors is exceeded, 0 or 1."),
    _gpu("gpu_row_remap_pending", "state", "A row remap waits for a GPU reset, 0 or 1."),
    _gpu("gpu_row_remap_failed", "state", "A row remap failed, 0 or 1."),
    _lifetime("gpu_row_remap_uncorrected_total", "Rows remapped for uncorrectable errors."),
    _lifetime("gpu_row_remap_corrected_total", "Rows remapped for correctable errors."),
    _lifetime("gpu_retired_pages_total", "Memory pages retired in the GPU's life."),
    _gpu("gpu_retired_pages_pending", "state", "A page retirement waits for a reset, 0 or 1."),
    Signal("gpu_recovery_action", "state", ("gpu", "node"), ("nvml", "kmsg", "nvml_events"),
           "What the driver says would cure the GPU: 0 none, 1 reset, 2 reboot, 3 drain peer-to-peer, "
           "4 drain and reset, 5 recover the IMEX domain."),
    *(_gpu(f"gpu_clock_event_{bit}", "state", f"Clocks are held down: {text}, 0 or 1.") for bit, text in (
        ("idle", "nothing to do"), ("sw_power_cap", "power limit"), ("hw_slowdown", "hardware slowdown"),
        ("sw_thermal", "driver's thermal limit"), ("hw_thermal", "hardware thermal limit"),
        ("hw_power_brake", "external power brake"))),
    Signal("pcie_link_generation", "gauge", _PCI_DEVICES, ("nvml", "pcie"), "PCIe generation in use."),
    Signal("pcie_link_generation_max", "gauge", _PCI_DEVICES, ("nvml", "pcie"), "PCIe generation possible here."),
    Signal("pcie_link_width", "gauge", _PCI_DEVICES, ("nvml", "pcie"), "PCIe lanes in use."),
    Signal("pcie_link_width_max", "gauge", _PCI_DEVICES, ("nvml", "pcie"), "PCIe lanes possible here."),
    Signal("pcie_replay_total", "counter", _PCI_DEVICES, _NVML, "PCIe packets sent again."),
    _gpu("nvlink_state", "state", "State of one NVLink.", states=("active", "inactive"), labels=("link",)),
    _gpu("gpu_fabric_state", "state", "Registration with the NVLink fabric.",
         states=("not_supported", "not_started", "in_progress", "completed", "unhealthy")),
    *(_gpu(f"nvlink_{error}_errors_total", "counter", f"NVLink {text}.", labels=("link",)) for error, text in (
        ("replay", "packets sent again"), ("recovery", "link recoveries"), ("crc", "checksum errors"))),
    _gpu("gpu_fabric_health_fault", "state", "A part of the NVLink fabric's health is at fault, 0 or 1.",
         labels=("part",)),
    *(_gpu(f"gpu_clock_violation_{policy}_seconds_total", "counter", f"Time that clocks were held down by {text}.")
      for policy, text in (("power", "the power limit"), ("thermal", "temperature"),
                           ("board_limit", "the board's limits"), ("reliability", "the reliability limit"))),
    Signal("gpu_count", "gauge", ("node",), ("nvml",), "GPUs that the driver can see."),
    Signal("gpu_count_expected", "gauge", ("node",), ("agent",), "GPUs that the operator says are here."),
)

_RDMA = (
    Signal("rdma_port_state", "state", _PORT, ("rdma",), "Logical state of the port.",
           states=("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")),
    Signal("rdma_port_phys_state", "state", _PORT, ("rdma",), "Physical state of the port.",
           states=("Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery",
                   "Phy Test")),
    Signal("rdma_port_rate_gbps", "gauge", _PORT, ("rdma",), "Rate of the port in gigabits a second."),
    # widths: kernel drivers/infiniband/core/sysfs.c PORT_PMA_ATTR; these stop at their maximum
    _port_counter("link_downed", 8, "Times the link went down."),
    _port_counter("link_error_recovery", 8, "Times the link recovered from an error."),
    _port_counter("symbol_error", 16, "Symbol errors."),
    _port_counter("port_rcv_errors", 16, "Packets received with an error."),
    _port_counter("port_rcv_remote_physical_errors", 16, "Packets marked bad by the far end."),
    _port_counter("port_rcv_switch_relay_errors", 16, "Packets that a switch could not relay."),
    _port_counter("port_rcv_constraint_errors", 8, "Packets received against a constraint."),
    _port_counter("port_xmit_constraint_errors", 8, "Packets not sent because of a constraint."),
    _port_counter("port_xmit_discards", 16, "Packets discarded before sending."),
    _port_counter("local_link_integrity_errors", 4, "Local link integrity errors."),
    _port_counter("excessive_buffer_overrun_errors", 4, "Buffer overruns."),
    _port_counter("VL15_dropped", 16, "Management packets dropped."),
    _port_counter("port_xmit_wait", 32, "Ticks with data waiting to be sent: congestion, never a fault."),
    _port_counter("port_xmit_data", None, "Data sent, in units of 4 bytes."),
    _port_counter("port_rcv_data", None, "Data received, in units of 4 bytes."),
)

_NODE = (
    Signal("host_memory_available_ratio", "gauge", ("node",), ("host",), "Memory available, 0 to 1."),
    Signal("source_up", "state", ("node",), ("agent",), "The source can see, 0 or 1.", attributes=("source",),
           steady=True),
    Signal("rules_invalid", "state", ("node",), ("agent",), "The newest rule files are refused, 0 or 1.", steady=True),
    Signal("state_unwritable", "state", ("node",), ("agent",), "The agent cannot keep its state, 0 or 1.", steady=True),
    Signal("source_stalled_seconds", "gauge", ("node", "gpu", "rdma_port"), ("agent",),
           "How long a call of the source has been out without an answer.", attributes=("source",)),
)

SIGNALS: Mapping[str, Signal] = MappingProxyType(
    {signal.name: signal for signal in (*_EVENTS, *_GPU_LEVELS, *_RDMA, *_NODE)}
)
