"""Devices and their one spelling: ``gpu/GPU-<uuid>``, ``rdma_port/mlx5_0/1``, ``node`` and so on.

A device is a plain string so that it can be a dictionary key, a recording's text and an annotation's field
without conversion; the functions here are the only makers.
"""

import re
from typing import NewType

Device = NewType("Device", str)

NODE = Device("node")

KINDS = ("gpu", "nvswitch", "rdma_port", "pcie", "disk", "nic", "node")
"""Every kind of device, the first word of its name."""

_PCI = re.compile(r"\A\s*(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.([0-7]))?\s*\Z")


def pci_address(text: str) -> str | None:
    """Normal form ``dddd:bb:dd.0`` of a PCI address: lower case, 4-digit domain, function 0; None if it is none.

    NVML prints an 8-digit upper-case domain, the kernel log no function, sysfs both (open-gpu-kernel-modules
    kernel_rc.c; nvml.h nvmlPciInfo_t): all of them name the same slot.
    """
    match = _PCI.match(text)
    if match is None:
        return None
    domain, bus, slot = match.group(1) or "0", match.group(2), match.group(3)
    if int(slot, 16) > 0x1F:
        return None
    return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(slot, 16):02x}.0"


def gpu(uuid: str) -> Device:
    """The GPU with this UUID (``GPU-…``)."""
    return Device(f"gpu/{uuid}")


def gpu_at(pci: str) -> Device:
    """The GPU in this slot (normal form) while its UUID is unknown."""
    return Device(f"gpu/{pci}")


def mig(parent: Device, gpu_instance: int, compute_instance: int | None = None) -> Device:
    """A MIG instance of ``parent``."""
    name = f"{parent}/gi{gpu_instance}"
    return Device(name if compute_instance is None else f"{name}/ci{compute_instance}")


def nvswitch(pci: str) -> Device:
    """The NVSwitch in this slot (normal form)."""
    return Device(f"nvswitch/{pci}")


def rdma_port(hca: str, port: int) -> Device:
    """Port ``port`` (from 1) of the HCA called ``hca``."""
    return Device(f"rdma_port/{hca}/{port}")


def pcie(pci: str) -> Device:
    """The PCIe function in this slot (normal form)."""
    return Device(f"pcie/{pci}")


def kind_of(device: Device) -> str:
    """The kind of a device: the part before the first slash."""
    return device.partition("/")[0]


def parent_of(device: Device) -> Device:
    """The GPU that a MIG instance is cut from; any other device itself."""
    if not device.startswith("gpu/"):
        return device
    return Device("/".join(device.split("/", 2)[:2]))


def is_within(device: Device, parent: Device) -> bool:
    """Whether ``device`` is ``parent`` or one of its MIG instances."""
    return device == parent or device.startswith(parent + "/")


def pci_of(device: Device) -> str | None:
    """The PCI address in the name of a device, if its name is one."""
    rest = device.partition("/")[2].partition("/")[0]
    return pci_address(rest) if rest else None
