"""Signals of the host: memory, CPU, disks, clock, network, kubelet."""

from nodeguard.model.signals.signal import Signal

SIGNALS: tuple[Signal, ...] = (
    Signal("host_memory_available_ratio", "gauge", ("node",), ("host",), "Memory available, 0 to 1."),
)
