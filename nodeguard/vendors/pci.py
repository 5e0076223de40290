"""Accelerators of every brand on the PCI bus, by vendor and class (pci.ids; PCI Code and ID Assignment).

0x0300 VGA, 0x0302 3D controller, 0x0380 other display controller, 0x1200 processing accelerator. Intel's 0x0300 is the
graphics that comes with the processor.
"""

from collections.abc import Mapping
from types import MappingProxyType

from nodeguard.vendors.nvidia import pci as nvidia

ACCELERATORS: Mapping[str, Mapping[str, str]] = MappingProxyType({
    nvidia.VENDOR: nvidia.CLASSES,
    "0x1002": {"0x0300": "gpu", "0x0380": "gpu", "0x1200": "gpu"},  # AMD
    "0x8086": {"0x0380": "gpu", "0x1200": "gpu"},  # Intel
    "0x1da3": {"0x1200": "gpu"},  # Habana
    "0x19e5": {"0x1200": "gpu"},  # Huawei
})
"""Vendor → the first six characters of the class → kind of device."""

GPU_DRIVERS = frozenset({"nvidia", "amdgpu", "i915", "xe", "habanalabs"})
"""Kernel drivers of accelerators, as kernel lines name them."""
NVSWITCH_DRIVER = "nvidia-nvswitch"


def accelerator_kind(vendor: str, code: str) -> str | None:
    """``gpu``, ``nvswitch`` or None, from sysfs' ``vendor`` and ``class``."""
    return ACCELERATORS.get(vendor, {}).get(code[:6])
