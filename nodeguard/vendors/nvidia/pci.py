"""NVIDIA devices on the PCI bus, without the driver's help."""

from pathlib import Path

from nodeguard.model.device import pci_address

VENDOR = "0x10de"
CLASSES = {"0x0302": "gpu", "0x0300": "gpu", "0x0680": "nvswitch"}
"""3D controller, VGA controller, bridge of another kind (PCI Code and ID Assignment; pci.ids). A GPU's audio and USB
functions are of other classes."""


class Bus:
    """What the bus shows. What a function is, is read once; that it is there, and its driver, at every look."""

    def __init__(self, sys_root: Path) -> None:
        self._devices = sys_root / "bus/pci/devices"
        self._kinds: dict[str, str | None] = {}

    def kinds(self) -> frozenset[str]:
        """Kinds of device that are here."""
        return frozenset(kind for name in self._names() or () if (kind := self._kind(name)) is not None)

    def gpus(self) -> dict[str, str | None] | None:
        """PCI address → bound kernel driver (None: none) of every GPU; None where the bus cannot be seen.

        One that is bound to ``vfio-pci`` is passed through to a virtual machine on purpose.
        """
        names = self._names()
        if names is None:
            return None
        found = ((pci_address(name), name) for name in names if self._kind(name) == "gpu")
        return {address: self._driver(name) for address, name in found if address is not None}

    def _names(self) -> list[str] | None:
        try:
            return sorted(path.name for path in self._devices.iterdir() if path.name.endswith(".0"))
        except OSError:
            return None

    def _kind(self, name: str) -> str | None:
        if name not in self._kinds:
            self._kinds[name] = self._read_kind(self._devices / name)
        return self._kinds[name]

    @staticmethod
    def _read_kind(device: Path) -> str | None:
        try:
            vendor = (device / "vendor").read_text().strip()
            code = (device / "class").read_text().strip()
        except OSError:
            return None
        return CLASSES.get(code[:6]) if vendor == VENDOR else None

    def _driver(self, name: str) -> str | None:
        try:
            return (self._devices / name / "driver").readlink().name
        except OSError:
            return None
