"""Signals of PCIe links and functions."""

from nodeguard.model.signals.signal import Signal

_DEVICES = ("gpu", "pcie", "nvswitch")


def _link(name: str, text: str) -> Signal:
    return Signal(f"pcie_link_{name}", "gauge", _DEVICES, ("nvml", "pcie"), text)


def _aer(severity: str, text: str) -> Signal:
    # kernel Documentation/ABI/testing/sysfs-bus-pci-devices-aer
    return Signal(f"pcie_aer_{severity}_total", "counter", _DEVICES, ("pcie",), text)


SIGNALS: tuple[Signal, ...] = (
    _link("generation", "PCIe generation in use."),
    _link("generation_max", "PCIe generation possible here."),
    _link("width", "PCIe lanes in use."),
    _link("width_max", "PCIe lanes possible here."),
    Signal("pcie_replay_total", "counter", _DEVICES, ("nvml", "exporter"), "PCIe packets sent again."),
    _aer("correctable", "PCIe errors that the hardware corrected (AER)."),
    _aer("nonfatal", "PCIe errors that lost a transaction and left the link usable (AER)."),
    _aer("fatal", "PCIe errors after which the link cannot be trusted (AER)."),
    Signal("pcie_bus_error", "event", _DEVICES, ("kmsg",), "The kernel reported a PCIe error that was not corrected.",
           ("severity", "layer", "driver")),
    Signal("pcie_function_count", "gauge", ("node",), ("pcie",), "Accelerators and network adapters on the PCI bus."),
)
