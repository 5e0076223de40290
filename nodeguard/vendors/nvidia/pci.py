"""NVIDIA devices on the PCI bus, without the driver's help."""

from pathlib import Path

VENDOR = "0x10de"
_CLASSES = {"0x0302": "gpu", "0x0300": "gpu", "0x0680": "nvswitch"}
"""3D controller, VGA controller, bridge of another kind (PCI Code and ID Assignment; pci.ids)."""


def kinds_here(sys_root: Path) -> frozenset[str]:
    """Kinds of device that the bus shows; nothing where sysfs cannot be read."""
    kinds = set()
    for device in sys_root.glob("bus/pci/devices/*"):
        try:
            vendor = (device / "vendor").read_text().strip()
            code = (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == VENDOR and code[:6] in _CLASSES:
            kinds.add(_CLASSES[code[:6]])
    return frozenset(kinds)
