"""Signals of GPUs and NVSwitches."""

from nodeguard.model.signals.signal import Kind, Signal

XID_ATTRIBUTES = (
    "code", "class", "pid", "process", "pod", "gpu_instance", "compute_instance", "caused_by", "reset_required",
    "unit", "word", "injected", "link", "subcode", "resolution",
)
SXID_ATTRIBUTES = ("code", "word", "link", "switch")

_NVML = ("nvml", "exporter")
_GPU = ("gpu",)


def _gpu(name: str, kind: Kind, text: str, *, states: tuple[str, ...] = (), labels: tuple[str, ...] = ()) -> Signal:
    return Signal(name, kind, _GPU, _NVML, text, attributes=labels, states=states)


def _lifetime(name: str, text: str) -> Signal:
    return Signal(name, "counter", _GPU, _NVML, text, lifetime=True)


def _exported(name: str, text: str, *, states: tuple[str, ...] = (), labels: tuple[str, ...] = ()) -> Signal:
    return Signal(name, "state", _GPU, ("exporter",), text, attributes=labels, states=states)


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
)

_LEVELS = (
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
    _gpu("nvlink_state", "state", "State of one NVLink.", states=("active", "inactive"), labels=("link",)),
    _gpu("gpu_nvlinks_active", "gauge", "NVLinks of this GPU that are up."),
    _gpu("gpu_nvlinks_expected", "gauge", "NVLinks that the operator says should be up on every GPU here."),
    _gpu("gpu_fabric_state", "state", "Registration with the NVLink fabric.",
         states=("not_supported", "not_started", "in_progress", "completed", "unhealthy")),
    *(_gpu(f"nvlink_{error}_errors_total", "counter", f"NVLink {text}.", labels=("link",)) for error, text in (
        ("replay", "packets sent again"), ("recovery", "link recoveries"), ("crc", "checksum errors"))),
    _gpu("gpu_fabric_health_fault", "state", "A part of the NVLink fabric's health is at fault, 0 or 1.",
         labels=("part",)),
    *(_gpu(f"gpu_clock_violation_{policy}_seconds_total", "counter", f"Time that clocks were held down by {text}.")
      for policy, text in (("power", "the power limit"), ("thermal", "temperature"),
                           ("board_limit", "the board's limits"), ("reliability", "the reliability limit"))),
    _exported("gpu_listed", "The device is on the page of its vendor's exporter, 1.", labels=("vendor",)),
    _exported("gpu_vendor", "Whose device it is.", states=("nvidia", "amd", "intel", "huawei")),
    _exported("gpu_health_state", "The vendor's own verdict on a part of the device; `device` is the whole.",
              states=("healthy", "warning", "unhealthy"), labels=("part",)),
    _exported("gpu_link_state", "State of one link of the device to others.", states=("up", "down"), labels=("link",)),
    Signal("gpu_link_uncorrected_errors_total", "counter", _GPU, ("exporter",),
           "Errors on the links between devices that were not corrected."),
    Signal("gpu_resets_total", "counter", _GPU, ("exporter",), "Resets of the device since boot."),
    Signal("gpu_driver_errors_total", "counter", _GPU, ("exporter",), "Errors of the device's driver since boot."),
    Signal("gpu_count", "gauge", ("node",), _NVML, "GPUs that the driver can see."),
    Signal("gpu_count_expected", "gauge", ("node",), ("agent",), "GPUs that the operator says are here."),
)

SIGNALS: tuple[Signal, ...] = (*_EVENTS, *_LEVELS)
