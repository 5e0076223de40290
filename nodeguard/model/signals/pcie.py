"""Signals of PCIe links and functions."""

from nodeguard.model.signals.signal import Signal

_DEVICES = ("gpu", "pcie", "nvswitch")

SIGNALS: tuple[Signal, ...] = (
    Signal("pcie_link_generation", "gauge", _DEVICES, ("nvml", "pcie"), "PCIe generation in use."),
    Signal("pcie_link_generation_max", "gauge", _DEVICES, ("nvml", "pcie"), "PCIe generation possible here."),
    Signal("pcie_link_width", "gauge", _DEVICES, ("nvml", "pcie"), "PCIe lanes in use."),
    Signal("pcie_link_width_max", "gauge", _DEVICES, ("nvml", "pcie"), "PCIe lanes possible here."),
    Signal("pcie_replay_total", "counter", _DEVICES, ("nvml", "exporter"), "PCIe packets sent again."),
)
