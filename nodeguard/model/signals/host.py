"""Signals of the host: memory, CPU, disks, clock, network, kernel, kubelet and container runtime."""

from nodeguard.model.signals.signal import Signal

_NODE = ("node",)
_DISK = ("disk",)
_NIC = ("nic",)
_HOST = ("host",)
_DISKS = ("disks",)
_KUBELET = ("kubelet",)
_KMSG = ("kmsg",)

HOST_SOURCES = ("host", "disks", "kubelet")
"""Sources of the host's readings: those of a recording's ``host`` entries."""

_POLLED = (
    Signal("host_memory_available_ratio", "gauge", _NODE, _HOST, "Memory available, 0 to 1."),
    # kernel Documentation/accounting/psi.rst
    Signal("host_cpu_pressure_ratio", "gauge", _NODE, _HOST,
           "Share of the last minute in which some task waited for a CPU, 0 to 1."),
    Signal("host_memory_pressure_ratio", "gauge", _NODE, _HOST,
           "Share of the last minute in which every task waited for memory, 0 to 1."),
    Signal("host_io_pressure_ratio", "gauge", _NODE, _HOST,
           "Share of the last minute in which every task waited for a disk, 0 to 1."),
    Signal("host_oom_kills_total", "counter", _NODE, _HOST, "Processes killed for want of memory since boot."),
    Signal("host_clock_synchronized", "state", _NODE, _HOST, "Somebody keeps the wall clock, 0 or 1."),
    Signal("host_clock_error_seconds", "gauge", _NODE, _HOST,
           "How wrong the wall clock may be, as its keeper estimates."),
    Signal("host_clock_step_seconds", "gauge", _NODE, _HOST,
           "By how much the wall clock jumped since the last poll, forward or back."),
    # kernel Documentation/admin-guide/ras.rst
    Signal("host_memory_corrected_errors_total", "counter", _NODE, _HOST,
           "Errors that the host's memory controllers corrected (EDAC).", ("controller",)),
    Signal("host_memory_uncorrected_errors_total", "counter", _NODE, _HOST,
           "Errors that the host's memory controllers could not correct (EDAC).", ("controller",)),
    # kernel Documentation/ABI/testing/sysfs-class-net
    Signal("host_nic_carrier", "state", _NIC, _HOST, "The node's network interface has a link, 0 or 1."),
    Signal("host_nic_link_downed_total", "counter", _NIC, _HOST, "Times the network interface lost its link."),
    Signal("host_disk_available_ratio", "gauge", _DISK, _DISKS, "Space that programs may use, 0 to 1."),
    Signal("host_disk_inodes_available_ratio", "gauge", _DISK, _DISKS, "Inodes that programs may use, 0 to 1."),
    Signal("host_disk_read_only", "state", _DISK, _DISKS, "The file system takes no writes, 0 or 1."),
    Signal("host_disk_count", "gauge", _NODE, _DISKS, "Local file systems that are watched."),
    Signal("host_kubelet_state", "state", _NODE, _KUBELET, "What the kubelet's health endpoint answers.",
           states=("ok", "failing", "silent")),
    Signal("host_runtime_state", "state", _NODE, _KUBELET, "Whether the container runtime answers on its socket.",
           states=("ok", "silent")),
)

_TOLD = (
    Signal("host_lockup", "event", _NODE, _KMSG, "The kernel found a CPU or a task that does not get on.",
           ("kind", "process")),
    Signal("host_kernel_error", "event", _NODE, _KMSG, "The kernel met a fault of its own.", ("kind",)),
    Signal("host_oom_kill", "event", _NODE, _KMSG, "The kernel killed a process for want of memory.",
           ("limit", "process", "pid")),
    Signal("host_hardware_error", "event", _NODE, _KMSG,
           "CPU, firmware or memory controller reported a hardware error.", ("kind", "severity")),
    Signal("host_disk_error", "event", _DISK, _KMSG, "The kernel could not read or write a disk or a file system.",
           ("kind",)),
)

SIGNALS: tuple[Signal, ...] = (*_POLLED, *_TOLD)
"""Signals of the host."""
