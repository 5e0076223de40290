"""PCI functions as files below ``/sys``, for a directory or for a recording."""

from collections.abc import Mapping
from pathlib import Path

BUS = "bus/pci/devices"


def function(name: str, vendor: str, code: str, files: Mapping[str, str] | None = None, *,
             below: tuple[str, ...] = ()) -> Mapping[str, object]:
    """A recording's ``sysfs`` entry for one function. ``below``: what lies above it, from the host bridge down."""
    base = f"{BUS}/{name}"
    entry: dict[str, object] = {f"{base}/vendor": vendor, f"{base}/class": code}
    if below:
        entry[base] = {"link": "/".join(("../../../devices", *below, name))}
    entry.update({f"{base}/{file}": text for file, text in (files or {}).items()})
    return entry


def aer(**totals: int) -> Mapping[str, str]:
    """The AER files of a function, for :func:`function`: totals by severity."""
    words = {"correctable": "COR", "nonfatal": "NONFATAL", "fatal": "FATAL"}
    return {f"aer_dev_{severity}": f"Undefined 0\nTOTAL_ERR_{words[severity]} {count}"
            for severity, count in totals.items()}


def link(generation: str, width: int, generation_max: str = "32.0", width_max: int = 16) -> Mapping[str, str]:
    """The link files of a function; generations in gigatransfers a second."""
    return {"current_link_speed": f"{generation} GT/s PCIe", "current_link_width": str(width),
            "max_link_speed": f"{generation_max} GT/s PCIe", "max_link_width": str(width_max)}


def write(root: Path, entry: Mapping[str, object]) -> None:
    """Write an entry below ``root``, a directory that stands for ``/sys``."""
    links = {path: value["link"] for path, value in entry.items() if isinstance(value, dict)}
    for path, target in links.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        (place.parent / target).mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    for path, text in entry.items():
        if path not in links:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f"{text}\n")
